"""A server whose tool reports much progress; it says in a file how far it is, and in its question in which process."""

from __future__ import annotations

import os
from pathlib import Path

from trio_mcp import Context, Server

server = Server("progress", version="1")
REACHED = Path(os.environ["REACHED"])
NEW = REACHED.with_suffix(".new")
STEP = 100


@server.tool
async def tell(ctx: Context, count: int) -> str:
    """Ask, so that the rest is about a call of this process, and report progress."""
    await ctx.elicit(str(os.getpid()), bool)
    for number in range(1, count + 1):
        await ctx.progress(number, count, "x" * 200)
        if number % STEP == 0:
            # Whole at any time.
            NEW.write_text(str(number))
            NEW.replace(REACHED)
    return "over"


@server.tool
async def where() -> str:
    return str(os.getpid())
