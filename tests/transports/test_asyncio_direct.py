"""Requests that are answered in the task of an asyncio host: when they need a Trio task, and how their clients leave."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from asgi_peer import modern_request
from asyncio_peer import BOUND, WEBSOCKET, Peer, call, known, noting, on_asyncio, post, run, shop, talking, until
from peer import hello
from wire_terms import NEWEST_LEGACY

from trio_mcp import Server, ServiceOptions, configure_logging
from trio_mcp.session import KeyRing
from trio_mcp.session.event_loop import HOME
from trio_mcp_transports.asyncio_host.time_limits import SEND_BYTES, seconds_to_send
from trio_mcp_transports.http import HttpLimits, McpApp, McpApps, asgi_app

FULL = 64 * 1024 + 1
"""More than a turn has time for."""


class Spawned(trio.abc.Instrument):
    """The names of the Trio tasks that were started."""

    def __init__(self) -> None:
        self.names = list[str]()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.names.append(task.name)


@asynccontextmanager
async def spawned() -> AsyncIterator[list[str]]:
    tasks = Spawned()
    trio.lowlevel.add_instrument(tasks)
    try:
        yield tasks.names
    finally:
        trio.lowlevel.remove_instrument(tasks)


APPS = {
    "open": (lambda: asgi_app(shop()), "", 0),
    "authenticated": (lambda: asgi_app(shop(), authenticate=known), "", 1),
    "several": (lambda: asgi_app({"/shop": shop()}), "/shop", 0),
    "several, one at the top": (lambda: asgi_app({"/": Server("top"), "/shop": shop()}), "/shop", 0),
}


@pytest.mark.parametrize("kind", APPS)
@on_asyncio
async def test_a_call_needs_no_trio_task_but_its_own_unless_its_caller_must_be_found_out(kind: str) -> None:
    make, prefix, more = APPS[kind]
    path = f"{prefix}/mcp"

    app = make()
    async with app.lifespan(), spawned() as tasks:
        assert (await call("count", path).request(app))[0] == 200
        assert len(tasks) == 1 + more
        assert (await post(*modern_request("tools/list", {}), path).request(app))[0] == 200
        assert len(tasks) == 1 + 2 * more
        assert (await call("none", path).request(app))[0] == 200
        assert (await post({"jsonrpc": "2.0"}, {}, path).request(app))[0] == 400


@on_asyncio
async def test_a_body_in_pieces_and_one_behind_a_full_turn_go_on_in_a_trio_task() -> None:
    app = asgi_app(shop())
    async with app.lifespan(), spawned() as tasks:
        turn = app.service.turn
        assert (await call("count", pieces=3).request(app))[0] == 200
        assert len(tasks) == 2
        # Trio has had turns meanwhile, and so a call behind a full turn need not wait for one.
        turn.spent = FULL
        assert (await call("count").request(app))[0] == 200
        assert turn.spent < FULL
        assert len(tasks) == 3
        turn.spent = FULL
        assert turn.is_over is False
        # No turn of Trio since.
        turn.spent = FULL
        assert (await call("count").request(app))[0] == 200
        assert turn.spent < FULL
        assert len(tasks) == 5


@pytest.mark.parametrize("pieces", [1, 50])
@on_asyncio
async def test_a_body_over_the_limit_is_rejected(pieces: int) -> None:
    app = asgi_app(shop(), limits=HttpLimits(body=100))
    async with app.lifespan():
        assert (await call("count", pieces=pieces).request(app))[0] == 413


@on_asyncio
async def test_a_client_that_leaves_in_the_middle_of_its_body_gets_no_call() -> None:
    app = asgi_app(shop())
    async with app.lifespan():
        peer = call("count", pieces=2)
        peer.drop_last()
        peer.leave()
        assert (await peer.request(app))[0] == 400
        assert not app.service.statistics().actors.running


@on_asyncio
async def test_a_body_that_comes_late_is_received_whether_the_host_returns_a_coroutine_or_another_awaitable() -> None:
    class LatePeer(Peer):
        def __init__(self, whole: Peer, *, is_future: bool) -> None:
            super().__init__(whole.scope, *whole.sent)
            self.is_future = is_future
            self.got = list[bool]()

        async def serve(self, app: McpApp | McpApps) -> None:
            async def late() -> Mapping[str, object]:
                await asyncio.sleep(0)
                self.got.append(True)
                return self.sent[0]

            def receive() -> Awaitable[Mapping[str, object]]:
                return asyncio.ensure_future(late()) if self.is_future else late()

            await app(self.scope, receive, self._send)

    app = asgi_app(shop())
    async with app.lifespan():
        for is_future in (True, False):
            peer = LatePeer(call("count"), is_future=is_future)
            status, body = await peer.request(app)
            assert (status, b'"text":"3"' in body, peer.got[:1]) == (200, True, [True])


@on_asyncio
async def test_a_host_that_cancels_a_request_while_its_body_is_received_cleans_up() -> None:
    events = list[str]()

    class Waiting(Peer):
        async def serve(self, app: McpApp | McpApps) -> None:
            async def receive() -> Mapping[str, object]:
                try:
                    await asyncio.sleep(BOUND)
                finally:
                    await asyncio.sleep(0)
                    events.append("ended")
                raise AssertionError

            await app(self.scope, receive, self._send)

    app = asgi_app(shop())
    async with app.lifespan():
        task = asyncio.create_task(Waiting(call("count").scope).serve(app))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["ended"]


@pytest.mark.parametrize("pieces", [1, 2])
@on_asyncio
async def test_a_body_that_never_comes_is_408(pieces: int) -> None:
    app = asgi_app(shop(), limits=HttpLimits(body_seconds=0.05))
    async with app.lifespan():
        peer = call("count", pieces=pieces)
        peer.drop_last()
        assert (await peer.request(app))[0] == 408


@on_asyncio
async def test_a_request_that_is_cancelled_while_its_caller_is_found_out_leaves_no_call() -> None:
    events = list[str]()

    async def slowly(_headers: Mapping[str, str]) -> str:
        events.append("asked")
        try:
            await trio.sleep_forever()
        finally:
            events.append("given up")

    app = asgi_app(shop(), authenticate=slowly)
    async with app.lifespan():
        task = asyncio.create_task(call("count").serve(app))
        await until(lambda: events)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["asked", "given up"]


@on_asyncio
async def test_a_cancel_in_the_turn_of_the_response_ends_the_call_that_has_begun() -> None:
    events = list[str]()
    app = asgi_app(noting(events), authenticate=known)
    async with app.lifespan():
        for turns in range(12):
            task = asyncio.create_task(call("wait").serve(app))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: events.count("began") == events.count("ended"))
            await until(lambda: not app.service.statistics().actors.running)


@on_asyncio
async def test_a_silent_call_sends_fillers_and_then_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.02)
    server, go_on = Server("shop"), list[bool]()

    @server.tool
    async def wait() -> str:
        while not go_on:  # noqa: ASYNC110  it is set on asyncio
            await trio.sleep(0.001)
        return "done"

    app = asgi_app(server)
    async with app.lifespan():
        peer = call("wait")
        task = asyncio.create_task(peer.serve(app))
        await until(lambda: len(peer.answered) == 3)
        go_on.append(True)
        await task
        head, *parts = peer.answered
        assert (b"content-type", b"text/event-stream") in head["headers"]
        assert [part["body"][:1] for part in parts[:2]] == [b":", b":"]
        assert b'"done"' in parts[-1]["body"]
        assert not parts[-1]["more_body"]


@on_asyncio
async def test_a_stream_ends_when_its_credentials_are_no_longer_accepted() -> None:
    callers = ["ada"]

    async def authenticate(_headers: Mapping[str, str]) -> str | None:
        return callers[0] if callers else None

    app = asgi_app(shop(), authenticate=authenticate, limits=HttpLimits(recheck_seconds=0.02))
    async with app.lifespan():
        body, headers = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        peer = post(body, headers)
        task = asyncio.create_task(peer.serve(app))
        await until(lambda: len(peer.answered) > 1)
        callers.clear()
        await task
        assert not peer.answered[-1]["more_body"]
        await until(lambda: not len(app.service.subscriptions))
    assert {each.get_name() for each in asyncio.all_tasks()} <= {
        asyncio.current_task().get_name(),  # type: ignore[union-attr]
        "Trio as the guest of this event loop",
    }


@on_asyncio
async def test_a_client_that_leaves_while_the_host_sends_ends_its_call() -> None:
    class Broken(Peer):
        async def _send(self, message: dict[str, object]) -> None:
            if self.answered:
                raise OSError("the client has left")
            await super()._send(message)

    events, whole = list[str](), talking()
    app = asgi_app(noting(events))
    async with app.lifespan():
        await Broken(whole.scope, *whole.sent).serve(app)
        await until(lambda: events)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client that does not read count as gone soon."""
    monkeypatch.setattr("trio_mcp_transports.asyncio_host.time_limits.SEND_SECONDS", 0.05)


@pytest.mark.usefixtures("soon")
@on_asyncio
async def test_a_client_that_does_not_read_for_too_long_counts_as_gone() -> None:
    class Stopped(Peer):
        async def _send(self, message: dict[str, Any]) -> None:
            if len(self.answered) > 3:
                await asyncio.sleep(BOUND)
            await super()._send(message)

    events, whole = list[str](), talking()
    app = asgi_app(noting(events))
    async with app.lifespan():
        stopped = Stopped(whole.scope, *whole.sent)
        await stopped.serve(app)
        await until(lambda: events)
        assert len(stopped.answered) == 4


def test_a_client_may_take_longer_for_more_bytes() -> None:
    assert [seconds_to_send(size) for size in (0, 1000, SEND_BYTES, 10 * SEND_BYTES)] == [10, 10, 20, 110]


@pytest.mark.usefixtures("soon")
@on_asyncio
async def test_a_websocket_client_that_does_not_read_for_too_long_counts_as_gone() -> None:
    hi = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello(NEWEST_LEGACY)}
    incoming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps(hi)}]
    sent = list[str]()

    async def receive() -> dict[str, str]:
        if not incoming:
            await asyncio.sleep(BOUND)
        return incoming.pop(0)

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])
        if message["type"] != "websocket.accept":
            await asyncio.sleep(BOUND)

    app = asgi_app(shop())
    async with app.lifespan():
        await app(WEBSOCKET, receive, send)
        assert sent == ["websocket.accept", "websocket.send"]


@on_asyncio
async def test_a_client_that_leaves_ends_a_call_that_says_something_all_the_time_to_a_host_that_drops_it() -> None:
    events, peer = list[str](), talking()
    app = asgi_app(noting(events))
    async with app.lifespan():
        peer.leave()
        await peer.serve(app)
        await until(lambda: events)


def test_a_request_on_asyncio_is_in_the_access_log(root_logger: logging.Logger) -> None:
    async def main(log: io.StringIO) -> None:
        configure_logging("info", stream=log)
        app = asgi_app(shop(), access_log=True)
        async with app.lifespan():
            assert (await call("count").request(app))[0] == 200
            assert (await call("count", pieces=2).request(app))[0] == 200

    log = io.StringIO()
    run(lambda: main(log))
    assert log.getvalue().count("POST") == 2
    assert log.getvalue().count(" 200 ") == 2


@on_asyncio
async def test_calls_that_were_answered_keep_no_memory() -> None:
    app = asgi_app(shop())
    async with app.lifespan():
        assert (await call("count").request(app))[0] == 200
        before = app.service.statistics().memory
        for _ in range(3):
            assert (await call("count").request(app))[0] == 200
        assert app.service.statistics().memory == before


@on_asyncio
async def test_a_stream_whose_client_leaves_asks_no_more_for_its_credentials() -> None:
    def names() -> set[str]:
        return {task.get_name() for task in asyncio.all_tasks()}

    app = asgi_app(shop(), authenticate=known)
    async with app.lifespan():
        body, headers = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        peer = post(body, headers)
        task = asyncio.create_task(peer.serve(app))
        await until(lambda: len(peer.answered) > 1)
        assert "waiting until credentials expire" in names()
        peer.leave()
        await task
        await until(lambda: "waiting until credentials expire" not in names())


@on_asyncio
async def test_a_server_that_a_function_of_a_client_calls_runs_its_own_functions_on_trio() -> None:
    server, homes = Server("shop"), list[object]()

    @server.tool
    async def look() -> None:
        homes.append(HOME.get())

    app = asgi_app(server)
    async with app.lifespan():
        assert app.residence is not None
        # As in a function of a client that was opened on asyncio.
        HOME.set(app.residence.guest)
        assert (await call("look").request(app))[0] == 200
        assert (await call("look", pieces=2).request(app))[0] == 200
    assert homes == [None, None]


@on_asyncio
async def test_a_legacy_session_that_outlives_the_process_is_stored_before_it_is_answered(tmp_path: Path) -> None:
    app = asgi_app(shop(ServiceOptions(store=str(tmp_path / "state.db"), keys=KeyRing.random())))
    async with app.lifespan():
        opening = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello(NEWEST_LEGACY)}, {})
        assert (await opening.request(app))[0] == 200
        session = dict(opening.answered[0]["headers"])[b"mcp-session-id"].decode()
        counting = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "count", "arguments": {}}}
        headers = {"mcp-session-id": session, "mcp-protocol-version": NEWEST_LEGACY}
        assert (await post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers).request(app))[0] == 202
        status, body = await post(counting, headers).request(app)
        assert (status, b'"text":"3"' in body) == (200, True)
