"""One of several processes of a server over HTTP that share a store.

shared_server.py http PORT; `SHARED_STORE` names the store, by default a SQLite file in the directory `HOME_FOLDER`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from trio_mcp import Context, Server, ServiceOptions

HOME = Path(os.environ["HOME_FOLDER"])

STORE = os.environ.get("SHARED_STORE") or str(HOME / "state.db")

server = Server("shared", version="1", options=ServiceOptions(store=STORE))


def act(what: str) -> str:
    """Have an effect: a line in a file that all processes write to."""
    with (HOME / "effects").open("a") as effects:
        effects.write(f"{what}\n")
    return what


@server.tool(resume="replay")
async def order(ctx: Context) -> str:
    sure = await ctx.elicit("Sure?", bool)
    act("ordered")
    return sure.action


@server.tool
async def fill(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


@server.tool
async def pay() -> str:
    act("paid")
    while not (HOME / "go on").exists():  # noqa: ASYNC110  another process makes it
        await trio.sleep(0.05)
    return "paid"


@server.tool(task=True, resume="replay")
async def report(ctx: Context) -> str:
    await ctx.step("gather", act, "gathered")
    return (await ctx.elicit("Publish?", bool)).action


server.run(sys.argv[1], port=int(sys.argv[2]))
