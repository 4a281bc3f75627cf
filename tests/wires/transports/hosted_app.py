"""FastAPI with a server mounted in it; it notes on stdout what it does.

If the environment has `HANDED`, the host runs the lifespan of the server.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from fastapi import FastAPI

from trio_mcp import Context, Server
from trio_mcp_transports.http import asgi_app


def note(text: str) -> None:
    print(text, flush=True)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in signal.valid_signals()]


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
    before = handlers()
    async with mcp.lifespan() if "HANDED" in os.environ else nullcontext():
        yield
    host.state.pool = "closed"
    note("host ended" if handlers() == before else "host ended, with other handlers of signals")


app = FastAPI(lifespan=host_lifespan)


@app.get("/")
async def index() -> str:
    return "host"


app.mount("/tools", mcp)
