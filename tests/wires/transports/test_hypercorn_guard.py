"""Our connection under hypercorn: one never ends, blocks or starves the others, and its application gets correct events."""

from __future__ import annotations

import logging
import socket
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import hpack
import hypercorn.trio.run
import pytest
import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn_peer import (
    GET,
    SOON,
    Client,
    Exchanges,
    Served,
    Server,
    Steps,
    Told,
    answer,
    bystander,
    echo,
    frame,
    get,
    lifespan,
    over_tls,
    reply,
    running,
    serving,
    soon,
    upgrade,
    whole_body,
)
from hyperframe.frame import HeadersFrame, SettingsFrame
from serving import MODULE, child

from trio_mcp.session import MemoryBudget
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import KnownResponse, MessageSocket, Response, StreamPart, Upgrade
from trio_mcp_transports.hypercorn.config import ConnectionLimits, GuardedConfig, guarded_config
from trio_mcp_transports.hypercorn.connection import Connection
from trio_mcp_transports.hypercorn.connections import connection_limit
from trio_mcp_transports.hypercorn.worker import UnsupportedHypercorn, install, serve_connection

NOT_NOW = 0.5  # seconds in which something that must not happen does not happen
guarded = running


@pytest.fixture
def app() -> Exchanges:
    return Exchanges()


def limited(**limits: Any) -> GuardedConfig:
    return guarded_config(limits=ConnectionLimits(**limits))


def http2(*fields: tuple[bytes, bytes]) -> bytes:
    """An HTTP/2 connection with one request, from its first byte."""
    headers = HeadersFrame(1, hpack.Encoder().encode(fields))
    headers.flags.add("END_HEADERS")
    headers.flags.add("END_STREAM")
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize() + headers.serialize()


HTTP2 = {
    "connect": [(b":method", b"CONNECT"), (b":authority", b"x")],
    "method": [(b":method", b"G\xe9T"), (b":path", b"/"), (b":scheme", b"http"), (b":authority", b"x")],
    "prior knowledge": [(b":method", b"GET"), (b":path", b"/"), (b":scheme", b"http"), (b":authority", b"x")],
    "path": [(b":method", b"GET"), (b":path", b"/\xe9"), (b":scheme", b"http"), (b":authority", b"x")],
}
HOSTILE = upgrade("sec-websocket-protocol: \xe9")


# Errors of one connection


class Surprise(BaseException):
    """No Exception, and not one that Python knows."""


SURPRISES = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    Surprise(),
    RecursionError(),
    ExceptionGroup("", [ValueError()]),
    BaseExceptionGroup("", [Surprise(), ValueError()]),
    BaseExceptionGroup("", [BaseExceptionGroup("", [SystemExit(3)])]),
]


def raising(error: BaseException) -> Served:
    async def handle(_request: Request) -> Response:
        raise error

    return serving(handle)


def responding(response: Any) -> Served:
    """An application that has one response to everything."""

    async def handle(_request: Request) -> Response:
        found: Response = response
        return found

    return serving(handle)


@pytest.mark.parametrize("error", SURPRISES, ids=repr)
async def test_whatever_the_app_raises_ends_only_its_own_exchange(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(raising(error), guarded_config()) as server, bystander(server):
        assert await server.ask() == (500, b"")
    assert [record.message for record in caplog.records] == ["the ASGI app failed in a http exchange"]


async def test_failures_that_peers_cause_again_and_again_are_logged_once_for_each_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(request: Request) -> Response:
        raise KeyError(request.path) if request.path == "/" else ValueError(request.path)

    async with guarded(serving(app), guarded_config()) as server:
        for path in ("/", "/x") * 3:
            assert (await server.ask(get(path)))[0] == 500
    assert [type(record.exc_info and record.exc_info[1]) for record in caplog.records] == [KeyError, ValueError]


async def test_refused_connections_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(serving(answer), limited(max_connections=1)) as server, server.client() as kept:
        assert (await kept.ask())[0] == 200
        for _ in range(3):
            assert (await refused(server))[0] == 503
    (record,) = caplog.records
    assert (record.levelname, "max_connections" in record.message) == ("WARNING", True)


async def test_a_response_that_fails_in_the_middle_of_its_body_is_left_unfinished() -> None:
    class Failing(Told):
        def take_part(self) -> StreamPart | None:
            if not self._parts:
                raise ValueError
            return super().take_part()

    failing = Failing()
    failing.body(b"a", more=True)
    async with guarded(responding(failing)) as server, bystander(server), server.client() as client:
        await client.send(GET)
        assert (await client.until(b"a\r\n")).endswith(b"\r\n\r\n1\r\na\r\n")
        failing.fail()
        assert await client.rest() == b""
        await soon(failing.lost)


@pytest.mark.parametrize(
    "response",
    [
        None,
        KnownResponse(200, headers=[(b"bad\nname", b"x")]),
        KnownResponse(200, headers=[(b"name", b"x\r\ny: z")]),
        KnownResponse(20),
        Upgrade(None, echo, lambda: None),
    ],
)
async def test_a_response_that_cannot_be_sent_is_a_500(response: Any) -> None:
    async with guarded(responding(response)) as server, bystander(server):
        assert await server.ask() == (500, b"")


async def test_an_error_of_the_connection_itself_is_logged_and_closes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(serving(answer), guarded_config()) as server, bystander(server):
        with monkeypatch.context() as patch:
            patch.setattr("trio_mcp_transports.hypercorn.http1.read_head", lambda *_: 1 / 0)
            async with server.client() as client:
                await client.send(GET)
                assert await client.rest() == b""
    assert [record.message for record in caplog.records] == ["a connection failed and was closed"]


# Stalled readers


class Flood(Told):
    """A response without end."""

    def __init__(self) -> None:
        super().__init__()
        self.body(b"x", more=True)

    async def wait_part(self) -> StreamPart:
        await trio.lowlevel.checkpoint()
        return StreamPart(None, bytes(65536), is_last=False)

    @property
    def is_ready(self) -> bool:
        return True

    def take_part(self) -> StreamPart | None:
        return super().take_part() if self._parts else None


@asynccontextmanager
async def stalled(config: GuardedConfig) -> AsyncIterator[tuple[Server, Client, Flood]]:
    """A client that has asked a server for a response without end, and reads nothing."""
    flood = Flood()
    async with guarded(responding(flood), config) as server, server.client(receive_buffer=4096) as client:
        await client.send(GET)
        await client.until(b"x\r\n")
        yield server, client, flood


async def test_a_stalled_reader_is_cut_off_and_its_response_notified() -> None:
    async with stalled(limited(send_timeout=0.3)) as (server, client, flood), bystander(server):
        await soon(flood.lost)
        assert len(await client.rest()) < 64 << 20


async def test_a_stalled_reader_does_not_block_the_shutdown() -> None:
    config = limited(send_timeout=60)
    config.graceful_timeout = 0.1
    async with stalled(config) as (server, _, _):
        server.stop.set()
        await soon(server.ended)
        assert server.error is None


async def test_a_stalled_reader_does_not_block_a_cancel() -> None:
    with trio.fail_after(SOON):
        async with stalled(limited(send_timeout=60)):
            pass


async def test_a_slow_reader_that_goes_on_reading_is_not_cut_off(app: Exchanges) -> None:
    body = bytes(4 << 20)
    async with guarded(serving(app), limited(send_timeout=0.2)) as server:
        async with server.client(receive_buffer=4096) as client:
            await client.send(GET)
            exchange, start = await app.next(), trio.current_time()
            exchange.reply(body)
            await client.head()
            for _ in range(len(body) >> 12):
                assert await client.exactly(4096) == body[:4096]
                await trio.sleep(0.0005)  # the pace of the reader
            await soon(exchange.response.finished)
            assert trio.current_time() - start > 0.2


class Socket:
    """A WebSocket that the test holds."""

    def __init__(self) -> None:
        self.accepted, self.lost, self.over = trio.Event(), trio.Event(), trio.Event()
        self.socket: MessageSocket

    async def __call__(self, _request: Request) -> Response:
        return Upgrade(None, self._serve, self.lost.set)

    async def _serve(self, socket: MessageSocket) -> None:
        socket.open(1 << 30, self.lost.set)
        self.socket = socket
        self.accepted.set()
        while await socket.receive_many():
            pass
        self.over.set()


async def test_writes_from_several_tasks_stay_whole_and_in_order() -> None:
    held = Socket()
    async with guarded(serving(held)) as server, server.websocket(receive_buffer=4096) as client:
        await soon(held.accepted)
        async with trio.open_nursery() as nursery:
            for letter in (b"a", b"b", b"c"):
                nursery.start_soon(held.socket.send_many, [letter * 60_000])
            frames = [await client.frame() for _ in range(3)]
        assert sorted(payload for _, payload in frames) == [letter * 60_000 for letter in (b"a", b"b", b"c")]


async def test_a_cancel_of_the_app_does_not_tear_a_message() -> None:
    held, scope_of_app, ended = Socket(), trio.CancelScope(), trio.Event()

    async def send() -> None:
        with scope_of_app:
            for _ in range(70):
                await held.socket.send_many([b"x" * 60_000])
        ended.set()

    async with guarded(serving(held)) as server, server.websocket(receive_buffer=4096) as client:
        await soon(held.accepted)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            scope_of_app.cancel()  # its send waits for us to read
            nursery.start_soon(held.socket.send_many, [b"the last"])
            while (frame := await client.frame())[1] != b"the last":
                assert frame[1] == b"x" * 60_000
            await soon(ended)


# Disconnects


async def test_a_client_that_left_is_no_error(app: Exchanges, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(serving(app), guarded_config()) as server, bystander(server):
        async with server.client() as client:
            await client.send(GET)
            exchange = await app.next()
            exchange.body(b"a", more=True)
            await client.head()
        await exchange.until_disconnect()
        exchange.body(b"b", more=False)
    assert not caplog.records


@pytest.mark.parametrize("ahead", [get("/bystander"), get("/bystander", "upgrade: h2c"), b"GET /bys"])
async def test_the_end_of_a_client_that_pipelined_is_seen(app: Exchanges, ahead: bytes) -> None:
    async with guarded(serving(app)) as server:
        async with server.client() as client:
            await client.send(GET + ahead)
            exchange = await app.next()
        await exchange.until_disconnect()


async def test_pipelined_requests_are_answered_in_order_and_nothing_of_them_stays_counted(app: Exchanges) -> None:
    memory = MemoryBudget(10**9)
    async with guarded(serving(app), guarded_config(memory=memory)) as server, server.client() as client:
        await client.send(GET + get("/bystander") + b"GET /bystander HTT")
        exchange = await app.next()
        await client.send(b"P/1.1\r\nhost: x\r\n\r\n")
        exchange.reply()
        assert [(await client.response())[2] for _ in range(3)] == [b"ok"] * 3
        assert await client.ask(get("/bystander")) == (200, b"ok")
        assert await client.ask(get("/bystander")) == (200, b"ok")
        assert memory.drawn == 32 * 1024


async def test_a_request_that_comes_whole_takes_one_step() -> None:
    async with guarded(serving(answer)) as server, server.client() as client:
        assert await client.ask() == (200, b"ok")
        with Steps() as steps:
            for _ in range(10):
                assert await client.ask() == (200, b"ok")
    assert steps.count == 10


async def test_a_client_that_pipelines_more_than_the_limit_is_cut_off(app: Exchanges) -> None:
    async with guarded(serving(app), limited(max_pipelined=10_000)) as server, bystander(server):
        async with server.client() as client:
            await client.send(GET + bytes(20_000))
            exchange = await app.next()
            await client.send(b"x")
            assert await client.rest() == b""
            await exchange.until_disconnect()


# HTTP/1.1


async def test_a_body_that_came_with_its_head_needs_no_wait(app: Exchanges) -> None:
    async with guarded(serving(app)) as server, server.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc")
        exchange = await app.next()
        assert exchange.request.body.whole == b"abc"
        exchange.reply(b"hello")
        assert (await client.stream.receive_some()).endswith(b"hello")  # type: ignore[attr-defined]


async def test_an_empty_part_sends_the_response_head_at_once(app: Exchanges) -> None:
    async with guarded(serving(app)) as server, server.client() as client:
        await client.send(GET)
        exchange = await app.next()
        exchange.body(b"", more=True)
        assert (await client.head())[0] == 200
        exchange.body(b"late", more=False)
        assert await client.exactly(14) == b"4\r\nlate\r\n0\r\n\r\n"


async def test_a_head_request_is_answered_without_a_body() -> None:
    async with guarded(serving(answer)) as server, server.client() as client:
        await client.send(GET.replace(b"GET", b"HEAD"))
        assert (await client.head())[1]["content-length"] == "2"
        assert await client.ask() == (200, b"ok")


async def test_a_body_is_read_whatever_way_it_comes() -> None:
    bodies: list[bytes] = []

    async def app(request: Request) -> Response:
        bodies.append(await whole_body(request))
        return reply()

    big = bytes(range(256)) * 8192  # more than the queue holds
    async with guarded(serving(app)) as server, server.client() as client:
        head = b"POST / HTTP/1.1\r\nhost: x\r\n"
        await client.ask(head + b"content-length: %d\r\n\r\n" % len(big) + big)
        await client.ask(head + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        await client.send(head + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await client.head())[0] == 100
        assert await client.ask(b"hi") == (200, b"ok")
    assert bodies == [big, b"abcde", b"hi"]


async def test_an_early_refusal_is_read_by_a_client_that_is_still_sending() -> None:
    async def app(request: Request) -> Response:
        await request.body.receive()
        return reply(b"too large", 413)

    size = 8 << 20
    async with guarded(serving(app)) as server, bystander(server):
        for _ in range(3):
            head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
            assert await server.ask(head + bytes(size)) == (413, b"too large")


async def test_a_body_that_is_not_read_stays_in_the_network() -> None:
    answered = trio.Event()

    async def app(_request: Request) -> Response:
        await answered.wait()
        return reply()

    async with guarded(serving(app)) as server, server.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 90000000\r\n\r\n")
        with trio.move_on_after(NOT_NOW) as full:  # until more has come than the network holds
            while True:
                await client.send(bytes(65536))
        assert full.cancelled_caught
        answered.set()
        assert (await client.response())[0] == 200


async def test_an_h2c_upgrade_is_answered_in_http_1_and_the_connection_kept() -> None:
    async with guarded(serving(answer)) as server, server.client() as client:
        for _ in range(2):
            request = get("/", "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk")
            assert await client.ask(request) == (200, b"ok")


REFUSED = {
    "large head": (431, get("/", "a: " + 20_000 * "x")),
    "very many headers": (431, get("/", *[f"x{number}: y" for number in range(101)])),
    "two framings": (400, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
    "nonsense": (400, b"nonsense\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "version 12": (400, upgrade().replace(b"version: 13", b"version: 12")),
    "header": (400, HOSTILE),
    **{f"HTTP/2, {name}": (505, http2(*fields)) for name, fields in HTTP2.items()},
}


@pytest.mark.parametrize(("status", "data"), REFUSED.values(), ids=REFUSED)
async def test_a_bad_request_is_refused_and_ends_only_its_connection(status: int, data: bytes) -> None:
    async with guarded(serving(answer)) as server, bystander(server), server.client() as client:
        await client.send(data)
        assert (await client.head())[0] == status
        await client.rest()


async def test_a_request_that_no_application_sees_is_logged_once_a_minute_without_what_is_in_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "trio_mcp.http")
    async with guarded(serving(answer)) as server:
        for _ in range(3):
            async with server.client() as client:
                await client.send(b"nonsense \x1b[31m\r\n\r\n")
                assert (await client.head())[0] == 400
        (said,) = (record.getMessage() for record in caplog.records if "400" in record.getMessage())
    assert "not valid HTTP" in said
    assert "nonsense" not in said


async def test_an_extension_that_makes_no_sense_is_taken_as_not_offered() -> None:
    async with guarded(serving(answer)) as server, bystander(server), server.client() as client:
        await client.send(upgrade("sec-websocket-extensions: \xe9"))
        assert (await client.head())[0] == 101


async def test_a_body_that_breaks_is_refused_even_while_the_app_is_about_to_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    async with guarded(serving(answer), guarded_config()) as server, bystander(server), server.client() as client:
        await client.send(head + b"nonsense\r\n")
        assert (await client.response())[0] == 400
        await client.rest()
    assert not caplog.records


# Time


async def test_a_slow_head_is_cut_off_however_it_trickles() -> None:
    async with guarded(serving(answer), limited(header_timeout=0.3)) as server, bystander(server):
        async with server.client() as client, trio.open_nursery() as nursery:
            nursery.start_soon(trickle, client, nursery.cancel_scope)
            assert await client.rest() == b""
            nursery.cancel_scope.cancel()


async def trickle(client: Client, scope: trio.CancelScope) -> None:
    while True:
        try:
            await client.send(b"G")
        except trio.BrokenResourceError:
            return
        await trio.sleep(0.05)


async def test_a_second_head_has_the_same_time_as_the_first() -> None:
    async with guarded(serving(answer), limited(header_timeout=0.3)) as server, server.client() as client:
        assert await client.ask() == (200, b"ok")
        await client.send(b"GET")
        with trio.fail_after(SOON):
            assert await client.rest() == b""


async def test_an_idle_connection_is_kept_longer_than_a_head_may_take_and_then_closed() -> None:
    config = limited(header_timeout=0.2)
    config.keep_alive_timeout = 0.6
    async with guarded(serving(answer), config) as server, server.client() as client:
        for _ in range(2):
            assert await client.ask() == (200, b"ok")
            await trio.sleep(0.4)
        start = trio.current_time()
        assert await client.rest() == b""
        assert trio.current_time() - start < 0.6


async def test_a_request_that_comes_in_the_moment_in_which_its_idle_connection_ends_is_answered() -> None:
    config = guarded_config(keep_alive_timeout=0.2)
    async with guarded(serving(answer), config) as server, server.client() as client:
        assert await client.ask() == (200, b"ok")
        await trio.sleep(0.1)
        await client.send(GET)
        # The server, which runs in the same loop, finds that it has come when its time is over.
        time.sleep(0.3)  # noqa: ASYNC251
        assert (await client.response())[0] == 200


async def test_a_request_in_progress_has_no_deadline_of_the_connection(app: Exchanges) -> None:
    config = limited(header_timeout=0.1)
    config.keep_alive_timeout = 0.1
    async with guarded(serving(app), config) as server, server.client() as client:
        await client.send(GET)
        exchange = await app.next()
        with trio.move_on_after(NOT_NOW):
            await exchange.until_disconnect()
        exchange.reply()
        assert (await client.response())[0] == 200


async def test_at_the_shutdown_idle_connections_close_and_busy_ones_finish(app: Exchanges) -> None:
    async with guarded(serving(app), guarded_config()) as server, server.client() as idle, server.client() as busy:
        await idle.ask(get("/bystander"))
        await busy.send(GET)
        exchange = await app.next()
        server.stop.set()
        assert await idle.rest() == b""
        exchange.reply()
        status, headers, _ = await busy.response()
        assert (status, headers["connection"]) == (200, "close")
        await soon(server.ended)


async def test_a_deadline_that_passes_as_a_request_comes_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Connection.receive

    async def late(connection: Connection) -> bytes:
        data = await receive(connection)
        if b"/late" in data:
            connection._reading.cancel()  # noqa: SLF001
        return data

    async def app(_request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        return reply(b"in time")

    monkeypatch.setattr(Connection, "receive", late)
    async with guarded(serving(app)) as server, server.client() as client:
        for _ in range(2):
            assert await client.ask(get("/late")) == (200, b"in time")


# Connections


async def test_above_the_connection_limit_a_connection_gets_503_and_the_limit_recovers() -> None:
    async with guarded(serving(answer), limited(max_connections=2)) as server:
        async with bystander(server, OTHER), bystander(server):
            status, headers = await refused(server)
            assert (status, headers["connection"]) == (503, "close")
        async with bystander(server):
            pass


OTHER = "127.0.0.2"
"""An address of the machine that another client may have."""


async def test_an_address_gets_half_of_the_connections_and_another_is_served() -> None:
    async with guarded(serving(answer), limited(max_connections=8)) as server, AsyncExitStack() as clients:
        for _ in range(4):
            await clients.enter_async_context(bystander(server))
        assert (await refused(server))[0] == 503
        for _ in range(2):
            await clients.enter_async_context(bystander(server, OTHER))
        assert (await refused(server, OTHER))[0] == 503


async def test_a_trusted_proxy_may_open_all_connections() -> None:
    config = limited(max_connections=8)
    config.trusted_proxies = ["127.0.0.1"]
    async with guarded(serving(answer), config) as server, AsyncExitStack() as clients:
        for _ in range(8):
            await clients.enter_async_context(bystander(server))
        assert (await refused(server))[0] == 503


async def refused(server: Server, address: str = "127.0.0.1") -> tuple[int, dict[str, str]]:
    async with server.client(address=address) as client:
        await client.send(GET)
        head = await client.head()
        assert b"max_connections" in await client.rest()
        return head


async def test_a_flood_of_connections_leaves_those_inside_the_limit_alone() -> None:
    async with guarded(serving(answer), limited(max_connections=1)) as server, bystander(server):
        clients = [server.client() for _ in range(50)]
        for client in clients:
            await client.__aenter__()
        for client in clients:
            await client.__aexit__(None, None, None)


def test_the_connection_limit_leaves_the_process_files_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (128, 128))
    assert connection_limit(ConnectionLimits()) == 80
    monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))
    assert connection_limit(ConnectionLimits()) == 10_000


# WebSocket


async def test_compression_is_never_negotiated_and_a_compressed_frame_ends_the_connection() -> None:
    async with guarded(serving(answer)) as server, bystander(server), server.client() as client:
        await client.send(upgrade("sec-websocket-extensions: permessage-deflate"))
        assert "sec-websocket-extensions" not in (await client.head())[1]
        await client.send(frame(1, b"hello"))
        assert await client.frame() == (0x81, b"hello")
        await client.send(frame(1, b"hello", first=0xC0))
        assert (await client.frame())[1][:2] == (1002).to_bytes(2, "big")
        await client.rest()


async def test_a_silent_websocket_is_cut_after_two_intervals_and_one_that_answers_is_not() -> None:
    config = guarded_config(websocket_ping_interval=0.2)
    async with guarded(serving(answer), config) as server, server.websocket() as silent, server.websocket() as alive:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_pings, alive)
            await silent.rest()
            assert 0.4 < trio.current_time() - start < SOON
            nursery.cancel_scope.cancel()
        await alive.send(frame(1, b"hello"))
        while (await alive.frame())[0] != 0x81:
            pass


@pytest.mark.parametrize(
    "begun", [frame(1, b"x" * 100)[:50], frame(1, b"a", first=0), frame(1, b"a", first=0) + frame(0, b"", first=0)]
)
async def test_a_websocket_message_that_does_not_end_is_cut_however_its_bytes_drip(begun: bytes) -> None:
    config = guarded_config(limits=ConnectionLimits(message_timeout=0.4), websocket_ping_interval=0.1)
    async with guarded(serving(answer), config) as server, bystander(server), server.websocket() as client:
        await client.send(frame(1, b"whole"))
        start = trio.current_time()
        await client.send(begun)
        drip = begun[-1:] if len(begun) == 50 else frame(0, b"b", first=0)
        while (said := await client.frame())[0] != 0x88:
            assert said in ((0x89, b""), (0x81, b"whole"))
            await client.send(drip)
        assert said[1] == (1008).to_bytes(2, "big") + b"a message may take 0.4 seconds"
        assert trio.current_time() - start > 0.4
        await client.rest()


async def test_a_websocket_may_talk_without_a_pause_for_longer_than_one_message_may_take() -> None:
    config = guarded_config(limits=ConnectionLimits(message_timeout=0.2), websocket_ping_interval=0.05)
    async with guarded(serving(answer), config) as server, server.websocket() as client:
        start, pending = trio.current_time(), b""
        while trio.current_time() - start < 0.6:
            data = pending + frame(1, b"hello")  # it always ends with the beginning of the next one
            await client.send(data[:-3])
            pending = data[-3:]
            assert (await client.frame())[0] in (0x81, 0x89)


async def answer_pings(client: Client) -> None:
    while True:
        await client.frame()
        await client.send(frame(10))


async def test_a_websocket_outlives_the_time_of_its_head() -> None:
    served: list[object] = []

    async def serve(socket: MessageSocket) -> None:
        served.append(socket)
        await echo(socket)

    config = limited(header_timeout=0.2)
    config.keep_alive_timeout = 0.2
    accepting = responding(Upgrade(None, serve, lambda: None))
    async with guarded(accepting, config) as server, server.websocket() as client:
        await trio.sleep(0.5)  # longer than the head had
        await client.send(frame(1, b"hello"))
        assert await client.frame() == (0x81, b"hello")
    assert len(served) == 1


async def test_a_websocket_send_after_the_client_left_raises() -> None:
    held = Socket()
    async with guarded(serving(held)) as server, server.websocket() as client:
        await client.stream.aclose()
        await soon(held.lost)
        await soon(held.over)
        with pytest.raises(OSError):
            await held.socket.send_many([b"x"])
        await held.socket.close(1000, "")


async def test_a_websocket_app_that_fails_in_the_handshake_gets_its_client_a_500() -> None:
    async with guarded(raising(ValueError())) as server, bystander(server), server.client() as client:
        await client.send(upgrade())
        assert (await client.head())[0] == 500
        await client.rest()


async def test_a_websocket_whose_app_fails_is_closed_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_socket: MessageSocket) -> None:
        raise ValueError

    failing = responding(Upgrade(None, fail, lambda: None))
    async with guarded(failing, guarded_config()) as server, bystander(server), server.websocket() as client:
        assert (await client.frame())[1] == (1011).to_bytes(2, "big")
    assert [record.message for record in caplog.records] == ["the ASGI app failed in a websocket exchange"]


async def test_a_websocket_app_can_refuse_with_any_response() -> None:
    async with guarded(responding(reply(b"whom", 401))) as server, server.client() as client:
        assert await client.ask(upgrade()) == (401, b"whom")
        assert await client.rest() == b""


async def test_a_websocket_that_ended_gives_its_place_back() -> None:
    async with guarded(serving(answer), limited(max_connections=1)) as server:
        async with server.websocket():
            pass
        with trio.fail_after(SOON):  # the ping interval is 20 s
            while await server.ask() != (200, b"ok"):
                pass


@pytest.mark.parametrize("is_asked", [True, False])
async def test_frames_before_the_handshake_is_accepted_end_the_connection(
    is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked, opened, lost = trio.Event(), trio.Event(), trio.Event()

    async def open_door() -> None:
        asked.set()
        await opened.wait()

    async def app(request: Request) -> Response:
        await request.watch(open_door(), trio.CancelScope())
        return Upgrade(None, echo, lost.set)

    async with guarded(serving(app), guarded_config()) as server, server.client() as client:
        early = frame(1, b"early")
        await client.send(upgrade() if is_asked else upgrade() + early)
        if is_asked:
            await soon(asked)
            await client.send(early)
            await trio.testing.wait_all_tasks_blocked(0.01)
        opened.set()
        assert (await client.head())[0] == 400
        await client.rest()
        assert lost.is_set() is is_asked
        assert asked.is_set() is is_asked
    assert not caplog.records


# TLS


async def test_tls_offers_http_1_only_and_is_guarded_too(certificate: Path) -> None:
    async with (
        guarded(serving(answer), over_tls(certificate)) as server,
        server.secured(certificate, "h2", "http/1.1") as (client, tls),
    ):
        assert tls.selected_alpn_protocol() == "http/1.1"
        assert await client.ask() == (200, b"ok")
        async with server.client() as stranger:
            await stranger.send(b"this is no TLS")
            await stranger.rest()
        assert await client.ask() == (200, b"ok")
        await client.send(HOSTILE)
        assert (await client.head())[0] == 400


# Which connections are ours


async def test_a_connection_that_negotiated_http_2_is_left_to_hypercorn(certificate: Path) -> None:
    config = Config()
    config.certfile = config.keyfile = str(certificate)
    config.alpn_protocols = ["h2", "http/1.1"]
    async with (
        guarded(serving(answer), config) as server,
        server.secured(certificate, "h2", "http/1.1") as (client, tls),
    ):
        assert tls.selected_alpn_protocol() == "h2"
        await client.send(http2((b":method", b"GET"), (b":path", b"/"), (b":scheme", b"https"), (b":authority", b"x")))
        await client.until(b"ok")


@pytest.mark.parametrize("config", [Config(), guarded_config()], ids=["its own", "guarded"])
async def test_the_connections_of_another_application_are_left_to_hypercorn(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[object] = []
    run = TCPServer.run

    async def counted(self: TCPServer) -> None:
        served.append(self.app)
        await run(self)

    async def other(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    monkeypatch.setattr(TCPServer, "run", counted)
    async with guarded(serving(answer), config) as server:
        assert await server.ask() == (200, b"ok")
    assert not served
    async with guarded(other, config) as server:
        assert await server.ask() == (200, b"ok")
    assert len(served) == 1


# Settings and installing


def test_the_settings_are_quiet_and_bounded() -> None:
    config = guarded_config(bind=["127.0.0.1:0"], graceful_timeout=7)
    assert (config.keep_alive_timeout, config.graceful_timeout) == (75, 7)
    assert (config.include_server_header, config.accesslog, config.read_timeout) == (False, None, None)
    assert config.alpn_protocols == ["http/1.1"]
    assert config.keep_alive_max_requests > 10**9
    assert config.log.error_logger is not None
    assert config.log.error_logger.name == "trio_mcp.http"


def test_listening_sockets_carry_the_kernels_own_limits() -> None:
    sockets = guarded_config(bind=["127.0.0.1:0"], limits=ConnectionLimits(send_timeout=3)).create_sockets()
    (sock,) = sockets.insecure_sockets
    with sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypercorn.trio.run, "TCPServer", TCPServer)
    monkeypatch.setattr(Config, "alpn_protocols", ["h2", "http/1.1"])


def test_installing_is_idempotent(uninstalled: None) -> None:
    install()
    install()
    assert vars(hypercorn.trio.run)["TCPServer"] is serve_connection
    assert Config().alpn_protocols == ["http/1.1"]


@pytest.mark.parametrize("version", ["0.17.3", "0.19.0", "1.0", "0.19.dev1"])
def test_another_version_of_hypercorn_is_refused(
    version: str, uninstalled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    with pytest.raises(
        UnsupportedHypercorn, match=rf"hypercorn {version} is installed, and 0\.18 or newer, below 0\.19"
    ):
        install()


def test_a_hypercorn_that_someone_else_patched_is_refused(uninstalled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypercorn.trio.run, "TCPServer", int)
    with pytest.raises(UnsupportedHypercorn, match="not hypercorn's own class"):
        install()


APP = """
    from trio_mcp_transports.asgi.responses import HttpApp, KnownResponse
    from trio_mcp_transports.hypercorn.worker import install

    class Own(HttpApp):
        async def respond(self, request):
            return KnownResponse(200, b"ok")

        async def __call__(self, scope, receive, send):
            while True:
                kind = (await receive())["type"]
                if kind == "lifespan.startup":
                    install()
                await send({"type": kind + ".complete"})
                if kind == "lifespan.shutdown":
                    return

    app = Own()
"""


async def test_an_app_that_installs_at_startup_is_guarded_under_the_hypercorn_command(tmp_path: Path) -> None:
    (tmp_path / "guarded_app.py").write_text(textwrap.dedent(APP))
    command = ("hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "guarded_app:app")
    async with child(MODULE, *command, strict=False, cwd=tmp_path, start_new_session=True) as process:
        server = Server(port=int((await process.announced()).rpartition(":")[2]))
        for _ in range(2):
            assert await server.ask() == (200, b"ok")
            async with server.client() as client:
                await client.send(HOSTILE)
                assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
