"""A server whose orders charge, ask, wait for a file, and ship: `python order_server.py http PORT`.

`FOLDER` has the file `ledger` with the effects, and later the file `go`. The store is that of `TRIO_MCP_STORE`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio
from chaos.ledger import Ledger

from trio_mcp import Context, Server, TaskOptions
from trio_mcp.session import ServiceOptions

folder = Path(os.environ["FOLDER"])
ledger = Ledger(folder / "ledger")
server = Server("orders", version="1", options=ServiceOptions(tasks=TaskOptions(poll_interval=0.2)))


@server.tool(resume="replay", task=True)
async def order(name: str, ctx: Context) -> str:
    """Charge, ask, and ship when the file is there."""
    await ctx.step("charge", ledger.add, name, "charge")
    answer = await ctx.elicit("Ship it?", bool)
    ledger.add(name, "answered")
    while not await trio.Path(folder / "go").exists():  # noqa: ASYNC110  another process makes it
        await trio.sleep(0.05)
    await ctx.step("ship", ledger.add, name, "ship")
    return f"{name} {answer.action}"


server.run("http", port=int(sys.argv[2]), drain=1.0)
