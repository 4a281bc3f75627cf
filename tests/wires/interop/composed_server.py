"""A server with two others in it, one of them behind a proxy: `composed_server.py stdio|http`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from trio_mcp import Context, Server, proxy

PEER = Path(__file__).parent / "peer_server.py"

near = Server("near")


@near.tool
async def ask(ctx: Context) -> str:
    """Ask for a name."""
    return str((await ctx.elicit("Your name?", str)).content)


server = Server("hub")
server.mount("near", near)
server.mount("peer", proxy([sys.executable, str(PEER), "stdio"], env=dict(os.environ)))

if __name__ == "__main__":
    trio.run(lambda: server.serve(sys.argv[1], **({} if sys.argv[1] == "stdio" else {"port": 0})))
