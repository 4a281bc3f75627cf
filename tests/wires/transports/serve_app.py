"""An application on `serve_asgi`, for the tests to start as a separate process and to end by signals.

Usage: serve_app.py [options as JSON]. It prints a line for everything that happens to it.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import trio
from hypercorn_peer import Told, reply

from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import HttpApp, Response
from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config
from trio_mcp_transports.hypercorn.serve import serve_asgi


def say(*what: object) -> None:
    print(*what, flush=True)


class Streamed(Told):
    """Events until the drain, and then a last one."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self.body(b"first", more=True)
        app.streams.append(self)


class App(HttpApp):
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.drained = trio.Event()
        self.streams: list[Streamed] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._lifespan(receive, send)

    async def respond(self, request: Request) -> Response:
        say(request.path)
        try:
            what = getattr(self, request.path[1:])
            response: Response = await (what(request) if request.path == "/echo" else what())
        except trio.Cancelled:
            say("cancelled", request.path)
            raise
        return response

    async def on_drain(self) -> None:
        say("on_drain")
        self.drained.set()
        for stream in self.streams:
            stream.body(b"last", more=False)
        if self.options.get("drain_fails"):
            raise LookupError("on_drain")
        await trio.sleep(self.options.get("drain_takes", 0))
        say("on_drain done")

    async def ok(self) -> Response:
        return reply(b"ok")

    async def echo(self, request: Request) -> Response:
        body = await request.body.receive()
        say("received")
        return reply(body)

    async def slow(self) -> Response:
        """A response that takes its time to begin."""
        await trio.sleep(0.2)
        say("begun")
        return reply()

    async def stream(self) -> Response:
        return Streamed(self)

    async def call(self) -> Response:
        """An answer that is ready when the drain has begun."""
        await self.drained.wait()
        return reply(b"done")

    async def hang(self) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        if self.options.get("never_starts"):
            say("starting")
            await trio.sleep_forever()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        say("lifespan.shutdown")
        await send({"type": "lifespan.shutdown.complete"})


async def main(options: dict[str, Any]) -> None:
    app = App(options)
    serve = partial(
        serve_asgi,
        app,
        port=0,
        drain=options.get("drain", 10.0),
        on_drain=app.on_drain if options.get("on_drain", True) else None,
        config=guarded_config(limits=ConnectionLimits(send_timeout=60)),
    )
    await run(serve)
    say("returned")


async def run(serve: Any) -> None:
    async with trio.open_nursery() as nursery:
        if addresses := await nursery.start(serve):
            say(addresses[0])


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
