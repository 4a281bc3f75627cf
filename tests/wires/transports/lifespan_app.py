"""A server with a lifespan, for the tests to start as a separate process: on stdio, or for `hypercorn -k trio`.

`app` is the application itself, `mounted` the same in Starlette, which passes no lifespan events on, `managed` in Starlette with
the lifespan of the application. Each prints a line on stderr when the lifespan opens and when it closes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from starlette.applications import Starlette
from starlette.routing import Mount

from trio_mcp import Context, Server
from trio_mcp_transports.http import asgi_app


def say(what: str) -> None:
    # In one piece: `print` writes the end of the line by itself.
    os.write(2, f"{what}\n".encode())


class Broken(Exception):
    pass


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[list[str]]:
    if "BROKEN" in os.environ:
        raise Broken("no database")
    crash = trio.Event()

    async def crashing() -> None:
        await crash.wait()
        raise Broken("the database has left")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crashing)
        say("opened")
        try:
            yield Notes(crash)
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            say("closed")


class Notes(list[str]):
    def __init__(self, crash: trio.Event) -> None:
        super().__init__()
        self.crash = crash


server = Server("lasting", lifespan=lifespan)


@server.tool
async def note(text: str, ctx: Context[Notes]) -> list[str]:
    ctx.state.append(text)
    return ctx.state


@server.tool
async def crash(ctx: Context[Notes]) -> None:
    ctx.state.crash.set()
    await trio.sleep_forever()


app = asgi_app(server)
mounted = Starlette(routes=[Mount("/", app)])
inner = asgi_app(server)
managed = Starlette(routes=[Mount("/", inner)], lifespan=inner.lifespan)

if __name__ == "__main__":
    server.run()
