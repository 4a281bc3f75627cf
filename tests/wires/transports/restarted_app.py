"""A server that is killed and started again, on the socket of its parent.

Usage: restarted_app.py FD FOLDER. In FOLDER are the state of the server, and `effects`, what its tools have done, which it
also says on stdout.
"""

from __future__ import annotations

import base64
import socket
import sys
from pathlib import Path

import trio

from trio_mcp import Context, Server
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.session import ServiceOptions
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.hypercorn.serve import serve_asgi

KEYS = KeyRing([base64.b64decode("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")])


def serve(fd: int, folder: Path) -> None:
    effects = folder / "effects"

    def do(what: str) -> int:
        with effects.open("a") as file:
            file.write(f"{what}\n")
        print(what, flush=True)
        return effects.read_text().count(what)

    server = Server("restarted", options=ServiceOptions(keys=KEYS, store=str(folder / "state.db")))

    @server.tool(resume="replay")
    async def order(ctx: Context) -> str:
        charged = await ctx.step("charge", do, "charged")
        sure = await ctx.elicit("Sure?", bool)
        shipped = await ctx.step("ship", do, "shipped")
        return f"{sure.action} {charged} {shipped}"

    @server.tool(resume="replay")
    async def count(ctx: Context) -> str:
        for number in range(1, 5):
            await ctx.progress(number, 5)
        run = await trio.to_thread.run_sync(do, "ran")
        if run == 1:
            await trio.sleep_forever()
        await ctx.progress(5, 5)
        return f"counted in run {run}"

    @server.tool(resume="replay")
    async def pay(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.step("charge", charge_slowly)
        return "paid"

    async def charge_slowly() -> None:
        do("charged")
        await trio.sleep_forever()

    @server.tool
    async def ask(ctx: Context) -> str:
        do("asked")
        return (await ctx.elicit("Sure?", bool)).action

    app = asgi_app(server, allowed_hosts=["127.0.0.1"])
    with socket.socket(fileno=fd) as listener:
        trio.run(lambda: serve_asgi(app, sockets=[listener], signals=False))


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
