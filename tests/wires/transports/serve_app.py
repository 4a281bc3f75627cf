"""An application on `serve_asgi`, for the tests to start as a separate process and to end by signals.

Usage: serve_app.py [options as JSON]. It prints a line for everything that happens to it.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import trio
from hypercorn_peer import reply

from trio_mcp_transports.hypercorn import serve as serving
from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config


def say(*what: object) -> None:
    print(*what, flush=True)


class App:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.drained = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        say(scope["path"])
        try:
            await getattr(self, scope["path"][1:])(receive, send)
        except trio.Cancelled:
            say("cancelled", scope["path"])
            raise

    async def on_drain(self) -> None:
        say("on_drain")
        self.drained.set()
        if self.options.get("drain_fails"):
            raise LookupError("on_drain")
        await trio.sleep(self.options.get("drain_takes", 0))
        say("on_drain done")

    async def ok(self, receive: Any, send: Any) -> None:
        await reply(send, b"ok")

    async def stream(self, receive: Any, send: Any) -> None:
        """Events until the drain, and then a last one."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await self.drained.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async def call(self, receive: Any, send: Any) -> None:
        """An answer that is ready when the drain has begun."""
        await self.drained.wait()
        await reply(send, b"done")

    async def hang(self, receive: Any, send: Any) -> None:
        await trio.sleep_forever()

    async def shield(self, receive: Any, send: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    async def block(self, receive: Any, send: Any) -> None:
        while not self.drained.is_set():
            time.sleep(0.01)  # noqa: ASYNC251

    async def flood(self, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})

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
    vars(serving).update({"HARD_END_AFTER": options.get("hard_end_after", serving.HARD_END_AFTER)})
    app = App(options)
    serve = partial(
        serving.serve_asgi,
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
