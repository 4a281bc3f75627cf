"""FastAPI with a server mounted in it: `hosted_app.py lazy|handed PORT_FILE`; it notes on stdout what it does."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from trio_mcp import Context, Server
from trio_mcp_transports.http import asgi_app


def note(text: str) -> None:
    print(text, flush=True)


@asynccontextmanager
async def server_lifespan(_server: Server) -> AsyncIterator[None]:
    note("server started")
    yield
    note(f"server ended, pool {app.state.pool}")


server = Server("shop", asyncio=True, lifespan=server_lifespan)


@server.tool
async def buy(ctx: Context) -> str:
    """Ask, and use the pool of the host."""
    answer = await ctx.elicit.strict("How many?", int)
    return f"{answer} of {app.state.pool}"


@server.tool
async def wait() -> None:
    """Wait until the server ends."""
    note("waiting")
    try:
        await asyncio.sleep(60)
    finally:
        note("cancelled")


mcp = asgi_app(server, drain=0.2)


@asynccontextmanager
async def host_lifespan(host: FastAPI) -> AsyncIterator[None]:
    host.state.pool = "open"
    if sys.argv[1] == "handed":
        async with mcp.lifespan():
            yield
    else:
        yield
    host.state.pool = "closed"
    note("host ended")


app = FastAPI(lifespan=host_lifespan)


@app.get("/")
async def index() -> str:
    return "host"


app.mount("/tools", mcp)

if __name__ == "__main__":
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        note(str(listening.getsockname()[1]))
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
