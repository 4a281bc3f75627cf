"""A server that is killed and started again, on the socket of its parent.

Usage: restarted_app.py FD FOLDER. In FOLDER are the state of the server, and `effects`, what its tool has done.
"""

from __future__ import annotations

import base64
import socket
import sys
from pathlib import Path

import trio

from trio_mcp import Context, Server
from trio_mcp.session import KeyRing, ServiceOptions
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.hypercorn.serve import serve_asgi

KEYS = KeyRing([base64.b64decode("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")])


def serve(fd: int, folder: Path) -> None:
    effects = folder / "effects"

    def do(what: str) -> int:
        with effects.open("a") as file:
            file.write(f"{what}\n")
        return effects.read_text().count(what)

    server = Server("restarted", options=ServiceOptions(keys=KEYS, store=str(folder / "state.db")))

    @server.tool(resume="replay")
    async def order(ctx: Context) -> str:
        charged = await ctx.step("charge", do, "charged")
        sure = await ctx.elicit("Sure?", bool)
        shipped = await ctx.step("ship", do, "shipped")
        return f"{sure.action} {charged} {shipped}"

    app = asgi_app(server, allowed_hosts=["127.0.0.1"])
    with socket.socket(fileno=fd) as listener:
        trio.run(lambda: serve_asgi(app, sockets=[listener], signals=False))


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
