"""The application on an asyncio host, without a socket: its answers, its clients that leave, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, modern_call

from trio_mcp import HttpOptions, Server
from trio_mcp.bridge.guest import current_guest
from trio_mcp_transports.http import McpApp, McpApps, asgi_app

BOUND = 20.0


async def nobody(_: Mapping[str, str]) -> None:
    return None


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


class Peer:
    """One request of a client, as an asyncio host passes it on."""

    def __init__(self, scope: Mapping[str, object], *sent: Mapping[str, object]) -> None:
        self.scope = dict(scope)
        self.answered = list[dict[str, Any]]()
        self._incoming = asyncio.Queue[Mapping[str, object]]()
        for message in sent:
            self._incoming.put_nowait(message)

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def serve(self, app: McpApp | McpApps) -> None:
        await app(self.scope, self._incoming.get, self._send)

    async def request(self, app: McpApp | McpApps) -> tuple[int, bytes]:
        await self.serve(app)
        head, *parts = self.answered
        return head["status"], b"".join(part.get("body", b"") for part in parts)

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.answered.append(message)


def get(path: str) -> Peer:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    return Peer(scope, {"type": "http.request", "body": b""})


def call(name: str, path: str = "/mcp") -> Peer:
    body, headers = modern_call(name)
    lines = [(key.encode(), value.encode()) for key, value in {**JSON_HEADERS, **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": lines, "query_string": b""}
    return Peer(scope, {"type": "http.request", "body": json.dumps(body).encode()})


def shop() -> Server:
    server = Server("shop")

    @server.tool
    async def count() -> int:
        return 3

    return server


async def leave_nothing() -> None:
    """What a mounted application has started ends with the loop; nothing else is left."""
    await asyncio.sleep(0)
    assert {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}} <= {
        "Trio as the guest of this event loop"
    }


APPS = {
    "open": (lambda: asgi_app(shop()), "", 200),
    "authenticated": (lambda: asgi_app(Server("shop", http=HttpOptions(authenticate=nobody))), "", 401),
    "several": (lambda: asgi_app({"/shop": shop()}), "/shop", 200),
}


@pytest.mark.parametrize("kind", APPS)
def test_a_call_is_answered_as_on_trio_and_the_probes_know_it(kind: str) -> None:
    make, prefix, status = APPS[kind]

    async def main() -> None:
        app = make()
        assert (await get("/health").request(app))[0] == 200
        found, body = await call("count", f"{prefix}/mcp").request(app)
        assert found == status
        assert (b'"text":"3"' in body) == (status == 200)
        if status == 200:
            assert (await get("/ready").request(app))[0] == 200
        await leave_nothing()

    run(main)


def test_a_client_that_leaves_cancels_its_call_and_so_does_the_host() -> None:
    server, events = Server("shop"), list[str]()

    @server.tool
    async def wait() -> None:
        events.append("began")
        try:
            await trio.sleep_forever()
        finally:
            events.append("ended")

    async def until(count: int) -> None:
        while len(events) < count:  # noqa: ASYNC110  what changes it knows no event of asyncio
            await asyncio.sleep(0)

    async def main() -> None:
        app = asgi_app(server)
        leaving = call("wait")
        task = asyncio.create_task(leaving.serve(app))
        await until(1)
        leaving.leave()
        await task
        await until(2)
        cancelled = call("wait")
        task = asyncio.create_task(cancelled.serve(app))
        await until(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["began", "ended"] * 2
        await leave_nothing()

    run(main)


def test_a_failure_of_trio_ends_requests_with_503_and_the_next_one_starts_it_again() -> None:
    server = shop()

    async def crash() -> None:
        raise ValueError("bug")

    @server.tool
    async def fail() -> None:
        trio.lowlevel.spawn_system_task(crash)
        await trio.sleep_forever()

    async def main() -> None:
        app = asgi_app(server)
        failing = call("fail")
        with pytest.raises(RuntimeError):
            await failing.request(app)
        assert failing.answered[0]["status"] == 503
        # A request that comes before the failure is over is one of those that it ends.
        while current_guest() is not None:  # noqa: ASYNC110  it is over within a few turns of the loop
            await asyncio.sleep(0)
        status, body = await call("count").request(app)
        assert (status, b"3" in body) == (200, True)

    run(main)


def test_a_lifespan_that_is_handed_over_serves_in_its_block() -> None:
    async def main() -> None:
        app = asgi_app(shop())
        async with app.lifespan():
            assert (await get("/ready").request(app))[0] == 200
            await app.drain(1)
            assert (await get("/ready").request(app))[0] == 503
        await leave_nothing()
        assert (await call("count").request(app))[0] == 503

    run(main)


@pytest.mark.parametrize("drain", [0.1, None])
def test_the_signals_of_the_host_are_handled_in_front_of_it_and_restored(drain: float | None) -> None:
    heard = list[int]()

    def host(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    async def main() -> None:
        app = asgi_app(shop(), drain=drain)
        assert (await call("count").request(app))[0] == 200
        assert (signal.getsignal(signal.SIGTERM) is host) == (drain is None)
        signal.raise_signal(signal.SIGTERM)
        while not heard:  # noqa: ASYNC110  it is set by a signal handler
            await asyncio.sleep(0.001)
        assert signal.getsignal(signal.SIGTERM) is host
        assert (await get("/ready").request(app))[0] == (200 if drain is None else 503)

    earlier = signal.signal(signal.SIGTERM, host)
    try:
        run(main)
        assert signal.getsignal(signal.SIGTERM) is host
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, earlier)


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    async def main() -> None:
        before = signal.getsignal(signal.SIGTERM)
        assert (await call("count").request(asgi_app(shop())))[0] == 200
        assert signal.getsignal(signal.SIGTERM) is before

    async def in_thread() -> None:
        await asyncio.to_thread(asyncio.run, main())

    run(in_thread)
