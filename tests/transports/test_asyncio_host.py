"""The application on an asyncio host, without a socket: its answers, its clients that leave, and what remains after its end."""

from __future__ import annotations

import asyncio
import os
import runpy
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from types import FrameType

import pytest
import trio
from asgi_peer import modern_call
from asyncio_peer import WEBSOCKET, Peer, call, get, known, noting, on_asyncio, post, run, shop, until

from trio_mcp import Caller, Context, HttpOptions, Server, ServiceOptions
from trio_mcp.base import forks
from trio_mcp.bridge.guest import current_guest
from trio_mcp.http.authenticator import Authenticator
from trio_mcp.session import Limits
from trio_mcp_transports.http import McpApp, asgi_app


async def nobody(_: Mapping[str, str]) -> None:
    return None


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
@on_asyncio
async def test_a_call_is_answered_as_on_trio_and_the_probes_know_it(kind: str) -> None:
    make, prefix, status = APPS[kind]

    app = make()
    assert (await get("/health").request(app))[0] == 200
    found, body = await call("count", f"{prefix}/mcp").request(app)
    assert found == status
    assert (b'"text":"3"' in body) == (status == 200)
    if status == 200:
        assert (await get("/ready").request(app))[0] == 200
    await leave_nothing()


class Remembering(Authenticator):
    """Knows one caller, and verifies the credentials of others."""

    def __init__(self) -> None:
        self.on_trio = list[bool]()

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        self.on_trio.append(trio.lowlevel.in_trio_task())
        return Caller("ada") if headers.get("authorization") == "Bearer known" else None

    async def __call__(self, headers: Mapping[str, str]) -> Caller | None:
        assert trio.lowlevel.in_trio_task()
        return Caller("ben") if headers.get("authorization") == "Bearer new" else None


@on_asyncio
async def test_a_known_caller_is_served_without_a_task_of_trio_and_others_are_verified_on_it() -> None:
    hook, server = Remembering(), Server("shop", version="1")

    @server.tool
    def who(ctx: Context) -> str:
        return f"{ctx.caller and ctx.caller.principal} {'authorization' in ctx.request.headers}"

    app = asgi_app(server, authenticate=hook)
    body, headers = modern_call("who")
    for token, status, said in (("new", 200, b"ben False"), ("known", 200, b"ada False"), ("bad", 401, b"")):
        peer = post(body, {**headers, "authorization": f"Bearer {token}"})
        found, answer = await peer.request(app)
        assert (found, said in answer) == (status, True)
    await leave_nothing()
    # The first one has started the application.
    assert hook.on_trio[1:] == [False, False]


@on_asyncio
async def test_a_client_that_leaves_cancels_its_call_and_so_does_the_host() -> None:
    events = list[str]()
    app = asgi_app(noting(events))
    leaving = call("wait")
    task = asyncio.create_task(leaving.serve(app))
    await until(lambda: len(events) == 1)
    leaving.leave()
    # Much earlier than a filler is due, which would find it out, too.
    await asyncio.wait_for(task, 5)
    await until(lambda: len(events) == 2)
    cancelled = call("wait")
    task = asyncio.create_task(cancelled.serve(app))
    await until(lambda: len(events) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: events == ["began", "ended"] * 2)
    await leave_nothing()


UNIX_SOCKETS = {"each request alone": ((), 8), "the client that the proxy names": (("unix",), 4)}


@pytest.mark.parametrize("kind", UNIX_SOCKETS)
@on_asyncio
async def test_over_a_unix_socket_a_caller_is_the_client_that_a_trusted_proxy_names_or_else_each_request(
    kind: str,
) -> None:
    trusted, count = UNIX_SOCKETS[kind]
    server = Server("shop", options=ServiceOptions(actors=Limits(actors=8)))
    running = list[int]()

    @server.tool
    async def wait() -> None:
        running.append(1)
        await trio.sleep_forever()

    def from_client(address: str) -> Peer:
        body, headers = modern_call("wait")
        peer = post(body, {**headers, "x-forwarded-for": address})
        peer.scope["client"] = None
        return peer

    app = asgi_app(server, trusted_proxies=trusted)
    async with app.lifespan():
        calls = list[asyncio.Task[None]]()
        for _ in range(count):
            calls.append(asyncio.create_task(from_client("203.0.113.1").serve(app)))
            await until(lambda: len(running) == len(calls))
        assert (await from_client("203.0.113.1").request(app))[0] == 503
        if trusted:
            calls.append(asyncio.create_task(from_client("203.0.113.2").serve(app)))
            await until(lambda: len(running) == len(calls))
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)


@on_asyncio
async def test_a_failure_of_trio_ends_requests_with_503_and_the_next_one_starts_it_again() -> None:
    server = shop()

    async def crash() -> None:
        raise ValueError("bug")

    @server.tool
    async def fail() -> None:
        trio.lowlevel.spawn_system_task(crash)
        await trio.sleep_forever()

    app = asgi_app(server)
    failing = call("fail")
    with pytest.raises(RuntimeError):
        await failing.request(app)
    assert failing.answered[0]["status"] == 503
    # A request that comes before the failure is over is one of those that it ends.
    await until(lambda: current_guest() is None)
    status, body = await call("count").request(app)
    assert (status, b"3" in body) == (200, True)


@on_asyncio
async def test_a_failure_of_trio_ends_requests_whose_callers_are_not_known_yet_with_503() -> None:
    async def crash() -> None:
        raise ValueError("bug")

    async def authenticate(_headers: Mapping[str, str]) -> str:
        trio.lowlevel.spawn_system_task(crash)
        await trio.sleep_forever()
        raise AssertionError

    app = asgi_app(shop(), authenticate=authenticate)
    failing = call("count")
    with pytest.raises(RuntimeError):
        await failing.request(app)
    assert failing.answered[0]["status"] == 503
    await until(lambda: current_guest() is None)


@on_asyncio
async def test_a_lifespan_that_is_handed_over_serves_in_its_block() -> None:
    app = asgi_app(shop())
    async with app.lifespan():
        assert (await get("/ready").request(app))[0] == 200
        await app.drain(1)
        assert (await get("/ready").request(app))[0] == 503
    await leave_nothing()
    assert (await call("count").request(app))[0] == 503


@on_asyncio
async def test_a_start_that_is_cancelled_ends_what_was_being_started() -> None:
    events = list[str]()

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        try:
            events.append("starting")
            await trio.sleep_forever()
            yield
        finally:
            events.append("ended")

    app = asgi_app(Server("shop", lifespan=lifespan))
    starting = asyncio.create_task(app.lifespan().__aenter__())
    await until(lambda: events)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert events == ["starting", "ended"]
    await leave_nothing()


@on_asyncio
async def test_a_host_that_cannot_receive_ends_the_connection_and_gets_its_error() -> None:
    app, incoming = asgi_app(shop()), [{"type": "websocket.connect"}]

    async def receive() -> dict[str, str]:
        if not incoming:
            raise LookupError
        return incoming.pop()

    async def send(_message: object) -> None:
        return

    async with app.lifespan():
        with pytest.raises(LookupError):
            await app(WEBSOCKET, receive, send)
    await leave_nothing()


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
        await until(lambda: heard)
        assert signal.getsignal(signal.SIGTERM) is host
        assert (await get("/ready").request(app))[0] == (200 if drain is None else 503)

    earlier = signal.signal(signal.SIGTERM, host)
    try:
        run(main)
        assert signal.getsignal(signal.SIGTERM) is host
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, earlier)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1")
@on_asyncio
async def test_the_tree_of_each_application_is_logged_at_a_signal_that_would_end_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def logged() -> list[str]:
        return [record.getMessage().split()[3] for record in caplog.records if record.name == "trio_mcp.tree"]

    first = asgi_app({"/shop": shop(), "/garden": Server("garden")})
    second = asgi_app(Server("second"))
    async with first.lifespan():
        async with second.lifespan():
            signal.raise_signal(signal.SIGUSR1)
            await until(lambda: len(logged()) == 3)
        signal.raise_signal(signal.SIGUSR1)
        await until(lambda: len(logged()) == 5)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert [*map(str, logged())] == ["shop", "garden", "second", "shop", "garden"]


@on_asyncio
async def test_where_the_system_has_no_such_signal_and_no_forks_the_application_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Windows."""
    monkeypatch.delattr(signal, "SIGUSR1")
    monkeypatch.delattr(os, "register_at_fork")
    assert runpy.run_path(forks.__file__)["generation"] == 0

    async with (app := asgi_app(shop())).lifespan():
        assert (await call("count").request(app))[0] == 200


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1")
@pytest.mark.parametrize("drain", [10.0, None])
def test_a_signal_that_the_program_handles_is_left_to_it(drain: float | None) -> None:
    def host(_number: int, _frame: FrameType | None) -> None: ...

    async def main() -> None:
        async with asgi_app(shop(), drain=drain).lifespan():
            found.append(signal.getsignal(signal.SIGUSR1))

    found = list[object]()
    for handler in (host, signal.SIG_IGN):
        earlier = signal.signal(signal.SIGUSR1, handler)
        try:
            run(main)
        finally:
            signal.signal(signal.SIGUSR1, earlier)
    assert found == [host, signal.SIG_IGN]


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    async def main() -> None:
        before = signal.getsignal(signal.SIGTERM)
        assert (await call("count").request(asgi_app(shop())))[0] == 200
        assert signal.getsignal(signal.SIGTERM) is before

    async def in_thread() -> None:
        await asyncio.to_thread(asyncio.run, main())

    run(in_thread)


@pytest.mark.parametrize("on_asyncio", [True, False])
def test_a_host_that_ends_without_lifespan_leaves_no_task_thread_or_descriptor(on_asyncio: bool) -> None:
    events = list[str]()

    async def main() -> None:
        task = asyncio.create_task(call("wait").serve(asgi_app(noting(events, on_asyncio=on_asyncio))))
        await until(lambda: events)
        # The host drops its requests, and says nothing to the application.
        task.cancel()
        await asyncio.wait([task])

    def left() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    run(main)
    # Trio keeps idle threads for some seconds, and uses them again.
    threads, descriptors = left()
    events.clear()
    run(main)
    assert events == ["began", "ended"]
    assert left() <= (threads, descriptors)


@pytest.mark.parametrize("on_asyncio", [True, False])
@on_asyncio
async def test_five_hundred_clients_that_leave_at_random_moments_leave_no_call(on_asyncio: bool) -> None:
    random, server = Random(31), Server("shop", asyncio=on_asyncio)
    running = list[int]()

    @server.tool
    async def work() -> str:
        running.append(1)
        try:
            for _ in range(3):
                await (asyncio if on_asyncio else trio).sleep(0.0)
        finally:
            running.pop()
        return "done"

    async def leave(app: McpApp) -> None:
        peer = call("work")
        task = asyncio.create_task(peer.serve(app))
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0)
        if random.random() < 0.5:
            task.cancel()
        else:
            peer.leave()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    app = asgi_app(server, authenticate=known)
    async with app.lifespan():
        for _ in range(50):
            await asyncio.gather(*(leave(app) for _ in range(10)))
        await until(lambda: not app.service.statistics().actors.running)
        assert not running
    await leave_nothing()
