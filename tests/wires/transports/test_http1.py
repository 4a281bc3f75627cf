"""Requests on our own connection: the same answers however their heads were read, streams without tasks, every option."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from hypercorn.config import Config
from hypercorn_peer import Client, Server as RunningServer, get, over_tls, running, soon
from peer import EVERYTHING, hello, modern_meta
from wire_terms import headers_of

from trio_mcp import Context, Server, ToolError
from trio_mcp.session import MemoryBudget
from trio_mcp.stores import LogKey, MemoryEventStore
from trio_mcp_transports.asgi.exchange import Exchange
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app
from trio_mcp_transports.http.sessions.readers import ResumedStream
from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config
from trio_mcp_transports.hypercorn.open_request import GATHERING_SECONDS, OpenRequest
from trio_mcp_transports.hypercorn.response import Writer

Json = dict[str, Any]

PATTERN, H11 = "pattern", "h11"
"""What reads the head of a request."""
ERAS = ["2025-03-26", "2025-11-25", "2026-07-28"]
MODERN = "2026-07-28"
PROGRESS: Json = {"progressToken": "t"}
LEFT_TO_H11 = "x-empty:"
"""A header that means nothing, and which the pattern does not take."""


def post(body: bytes, *headers: str, way: str = PATTERN) -> bytes:
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
        *([LEFT_TO_H11] if way == H11 else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def comparable(data: bytes) -> bytes:
    """A response without what differs from one to the next: its date, and the numbers of streams in the ids of events."""
    return re.sub(rb"\nid: \d+-", b"\nid: N-", re.sub(rb"\r\ndate: [^\r]*", b"", data))


@dataclass
class Peer:
    """A client of one server over one connection, in one era, that knows the bytes which it sends."""

    client: Client
    era: str
    server: RunningServer
    headers: list[str] = field(default_factory=list)

    async def initialize(self) -> None:
        """Open a session, if the era has sessions."""
        if self.era == MODERN:
            return
        await self.client.send(post(encoded("initialize", hello(self.era))))
        response = await self.raw_response()
        session_id = re.search(rb"mcp-session-id: ([^\r]*)", response)
        assert session_id is not None, response
        self.headers = [f"Mcp-Session-Id: {session_id[1].decode()}", f"MCP-Protocol-Version: {self.era}"]
        await self.client.send(post(encoded("notifications/initialized", {}, id=None), *self.headers))
        assert (await self.client.response())[0] == 202

    def call(self, tool: str, way: str = PATTERN, *, id: int = 1, meta: Json | None = None, **arguments: Any) -> bytes:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, way, id=id, meta=meta)

    def request(self, method: str, params: Json, way: str = PATTERN, *, id: int = 1, meta: Json | None = None) -> bytes:
        """The bytes of a request."""
        if self.era == MODERN:
            params = {**params, "_meta": modern_meta(EVERYTHING, meta)}
            headers = [f"{name}: {value}" for name, value in headers_of(method, params).items()]
            return post(encoded(method, params, id=id), *headers, way=way)
        params = {**params, "_meta": meta} if meta else params
        return post(encoded(method, params, id=id), *self.headers, way=way)

    async def raw_response(self) -> bytes:
        """The bytes of the next response, without what differs from one to the next: its date, and the sizes of its chunks."""
        body, head = b"", await self.client.until(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            return comparable(head + await self.client.exactly(int(length[1])))
        while size := int(await self.client.until(b"\r\n"), 16):
            body += (await self.client.exactly(size + 2))[:-2]
        assert await self.client.exactly(2) == b"\r\n"
        return comparable(head + body)


def encoded(method: str, params: Json, *, id: int | None = 1) -> bytes:
    message: Json = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id is None else {**message, "id": id}).encode()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The responses of which a part was waited for in a task, other than that of the log of a stream that is resumed."""
    found: list[object] = []
    wait = OpenRequest._wait_part  # noqa: SLF001

    async def noting(request: OpenRequest, response: Any) -> None:
        if not isinstance(response, ResumedStream):
            found.append(response)
        await wait(request, response)

    monkeypatch.setattr(OpenRequest, "_wait_part", noting)
    return found


def demo() -> Server:
    server = Server("demo")

    @server.tool
    async def echo(text: str) -> str:
        """Return the text."""
        return text

    @server.tool
    async def wait_a_turn(text: str) -> str:
        """Return the text, later."""
        await trio.lowlevel.checkpoint()
        return text

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        """Report progress."""
        for step in range(to):
            await ctx.progress(step + 1, to)
        return "done"

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("broken")

    return server


@asynccontextmanager
async def connected(
    server: Server | McpApp, era: str = MODERN, config: Config | None = None, **options: Any
) -> AsyncIterator[Peer]:
    """A peer of a server that runs for the length of the block; `peer.server` is the server."""
    app = server if isinstance(server, McpApp) else asgi_app(server, **options)
    async with running(app, config or guarded_config()) as running_server:
        async with running_server.client() as client:
            peer = Peer(client, era, running_server)
            await peer.initialize()
            yield peer


# The order of requests on a connection


class Gate:
    """A server whose tool `wait` waits until the test opens the gate."""

    def __init__(self) -> None:
        self.began, self.ended, self.opened = trio.Event(), trio.Event(), trio.Event()
        self.was_cancelled = False
        self.server = demo()

        @self.server.tool
        async def wait(text: str) -> str:
            """Wait, then return the text."""
            self.began.set()
            try:
                await self.opened.wait()
            except trio.Cancelled:
                self.was_cancelled = True
                raise
            finally:
                self.ended.set()
            return text


@pytest.mark.parametrize("ways", [(PATTERN, H11), (H11, PATTERN), (PATTERN, PATTERN)])
async def test_what_comes_before_an_answer_waits_for_it(ways: tuple[str, str]) -> None:
    gate = Gate()
    async with connected(gate.server) as peer:
        await peer.client.send(peer.call("wait", ways[0], text="first"))
        await soon(gate.began)
        await peer.client.send(peer.call("echo", ways[1], text="second"))
        gate.opened.set()
        assert b"first" in await peer.raw_response()
        assert b"second" in await peer.raw_response()


# The end of a connection


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
async def test_the_end_of_its_connection_cancels_a_modern_call_at_once_and_a_legacy_one_after_the_grace(
    era: str,
) -> None:
    gate = Gate()
    async with connected(gate.server, era, limits=HttpLimits(disconnect_grace=0.01)) as peer:
        await peer.client.send(peer.call("wait", text="x"))
        await soon(gate.began)
        await peer.client.stream.aclose()
        await soon(gate.ended)
        assert gate.was_cancelled


async def test_a_cut_connection_takes_its_calls_with_it() -> None:
    gate = Gate()
    async with connected(gate.server) as peer:
        await peer.client.send(peer.call("wait", text="x"))
        await soon(gate.began)
    assert gate.was_cancelled


# Silence and streams


async def test_a_silent_call_gets_its_priming_event_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp_transports.http.sessions.streams.PRIMING_SECONDS", 0.05)
    responses = []
    for way in (PATTERN, H11):
        gate = Gate()
        async with connected(gate.server, "2025-11-25") as peer:
            await peer.client.send(peer.call("wait", way, text="at last"))
            head = await peer.client.until(b"\r\n\r\n")
            first = await peer.client.until(b"\n\n\r\n")
            gate.opened.set()
            rest = await peer.client.until(b"\r\n0\r\n\r\n")
            assert b"at last" in rest
            responses.append(comparable(head + first + rest))
    assert responses[0] == responses[1]


@pytest.mark.parametrize("way", [PATTERN, H11])
@pytest.mark.parametrize("is_whole", [True, False])
async def test_the_silence_of_a_call_that_was_answered_ends_nothing_later(
    way: str, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.02)
    async with connected(demo()) as peer:
        for _ in range(3):
            await peer.client.send(peer.call("wait_a_turn", text="x"))
            await peer.raw_response()
            request = peer.call("wait_a_turn", way, text="y")
            if not is_whole:
                await peer.client.send(request[:-5])
                request = request[-5:]
            await trio.testing.wait_all_tasks_blocked(0.05)
            await peer.client.send(request)
            assert b"y" in await peer.raw_response()


async def test_the_silence_of_a_call_that_was_answered_does_not_end_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.05)
    for way in (PATTERN, H11):
        gate = Gate()
        async with connected(gate.server) as peer:
            await peer.client.send(peer.call("echo", text="x") + peer.call("wait_a_turn", text="y"))
            assert b"x" in await peer.raw_response()
            assert b"y" in await peer.raw_response()
            await peer.client.send(peer.call("wait_a_turn", text="y"))
            await peer.raw_response()
            await peer.client.send(peer.call("wait", way, text="at last"))
            for _ in range(3):
                await peer.client.until(b"\n: ")
            gate.opened.set()
            assert b"at last" in await peer.client.until(b"\r\n0\r\n\r\n")


async def test_a_request_that_waits_for_its_turn_is_not_ended_by_an_older_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.02)
    app = asgi_app(demo())
    async with connected(app) as peer:
        await peer.client.send(peer.call("wait_a_turn", text="x"))
        await peer.raw_response()
        turn, passed = app.service.turn, trio.Event()
        turn.spent = 1_000_000  # more than a turn has time for

        async def pass_on() -> None:
            passed.set()
            await trio.sleep(0.05)
            turn.spent = 0

        monkeypatch.setattr(type(turn), "pass_on", lambda _turn: pass_on())
        await peer.client.send(peer.call("echo", text="y"))
        await soon(passed)
        assert b"y" in await peer.raw_response()


async def test_the_task_of_a_stream_does_not_have_the_context_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="of no call")
    found = []
    server = Server("s")

    @server.tool
    async def talk(ctx: Context) -> str:
        """Report progress."""
        variable.set("of a call")
        await ctx.progress(1)
        return "done"

    async def wait_part(exchange: Exchange) -> Any:
        found.append(variable.get())
        return await wait(exchange)

    wait = Exchange.wait_part
    monkeypatch.setattr(Exchange, "wait_part", wait_part)
    # As where the events of a stream have to be waited for.
    monkeypatch.setattr(Exchange, "take_part", lambda _: None)
    async with connected(server) as peer:
        await peer.client.send(peer.call("talk", meta={"progressToken": "t"}))
        assert b"done" in await peer.raw_response()
    assert set(found) == {"of no call"}


# Writing


@pytest.mark.parametrize("way", [PATTERN, H11])
@pytest.mark.parametrize(("size", "meta"), [(60_000, None), (3_000_000, None), (1_000_000, PROGRESS)])
async def test_a_large_answer_arrives_whole_however_slowly_it_is_read(
    size: int, meta: Json | None, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The moments in which a silent call gets a comment pass meanwhile.
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.001)
    server = Server("large")

    @server.tool
    async def large(size: int, ctx: Context) -> str:
        """Say something, if that is wanted, then return much."""
        await ctx.progress(1)
        return "x" * size

    async with running(asgi_app(server), guarded_config()) as running_server:
        async with running_server.client(receive_buffer=4096) as client:
            peer = Peer(client, MODERN, running_server)
            for _ in range(2):
                await client.send(peer.call("large", way, meta=meta, size=size))
                said, _, answer = (await peer.raw_response()).partition(b"xxx")
                assert len(answer) >= size - 3
                assert (b'"progress":1' in said) is (meta is PROGRESS)


# What a server adds


async def test_the_last_response_says_that_it_is_the_last() -> None:
    config = guarded_config()
    config.keep_alive_max_requests = 2
    async with connected(demo(), config=config) as peer:
        for is_last in (False, True):
            await peer.client.send(peer.call("echo", text="x"))
            assert (b"connection: close" in await peer.raw_response()) is is_last
        assert await peer.client.rest() == b""


# Requests in pieces


@pytest.mark.parametrize("size", [10, 7_000, 50_000])
async def test_a_body_that_comes_after_its_head_is_taken(size: int) -> None:
    async with connected(demo()) as peer:
        for _ in range(2):
            head, _, body = peer.call("echo", text="x" * size).partition(b"\r\n\r\n")
            await peer.client.send(head + b"\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            await peer.client.send(body[:5])
            await trio.testing.wait_all_tasks_blocked(0.01)
            await peer.client.send(body[5:])
            assert b"x" * size in await peer.raw_response()


async def test_a_body_that_comes_too_late_is_refused() -> None:
    async with connected(demo(), limits=HttpLimits(body_seconds=0.05)) as peer:
        await peer.client.send(peer.call("echo", text="late")[:-5])
        status, headers, _ = await peer.client.response()
        assert (status, headers["connection"]) == (408, "close")
        await peer.client.rest()


@pytest.mark.parametrize("size", [100_000, 3_000_000])
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_long_body_is_read_and_the_next_request_answered(size: int, framing: str) -> None:
    async with connected(demo()) as peer:
        for _ in range(2):
            request = peer.call("echo", text="x" * size)
            if framing == "chunks":
                head, _, body = request.partition(b"\r\n\r\n")
                head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
                request = b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)
            await peer.client.send(request)
            assert b"x" * size in await peer.raw_response()


async def test_a_client_that_leaves_before_its_body_came_leaves_nothing() -> None:
    async with connected(demo()) as peer:
        await peer.client.send(peer.call("echo", text="x")[:-5])
        await peer.client.stream.aclose()  # type: ignore[attr-defined]
        assert (await peer.server.ask(peer.call("echo", text="x")))[0] == 200


async def test_an_error_at_the_end_of_a_call_is_logged_and_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(demo()) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(Exchange, "take_known", lambda *_: 1 / 0)
            await peer.client.send(peer.call("wait_a_turn", text="x"))
            assert (await peer.raw_response()).startswith(b"HTTP/1.1 500 ")
            assert await peer.client.rest() == b""
        assert (await peer.server.ask(peer.call("echo", text="x")))[0] == 200
    assert [record.levelname for record in caplog.records] == ["ERROR"]


# Which applications are ours


async def test_an_application_that_overrides_its_call_sees_every_request() -> None:
    seen: list[str] = []

    class Noting(McpApp):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["type"])
            await super().__call__(scope, receive, send)

    app = asgi_app(demo())
    app.__class__ = Noting
    async with connected(app) as peer:
        await peer.client.send(peer.call("echo", text="x"))
        assert b'"x"' in await peer.raw_response()
    assert "http" in seen


# Options


async def authenticate(_headers: Any) -> str:
    return "someone"


async def authenticate_later(_headers: Any) -> str:
    await trio.lowlevel.checkpoint()
    return "someone"


def settings(**values: Any) -> Config:
    config = guarded_config()
    for name, value in values.items():
        setattr(config, name, value)
    return config


OPTIONS: dict[str, tuple[Config, Json]] = {
    "authenticate": (guarded_config(), {"authenticate": authenticate}),
    "authenticate that waits": (guarded_config(), {"authenticate": authenticate_later}),
    "trusted proxies": (guarded_config(), {"trusted_proxies": ["127.0.0.1"]}),
    "access log": (guarded_config(), {"access_log": True}),
    "root path": (guarded_config(), {"root_path": "/api"}),
    "root path of hypercorn": (settings(root_path="/api"), {}),
    "names of hypercorn": (settings(server_names=["127.0.0.1"]), {}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("option", OPTIONS)
async def test_an_option_changes_no_answer_and_needs_no_task(
    option: str, era: str, tasks: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is, no answer comes so late that it begins as a stream.
    monkeypatch.setattr("trio_mcp_transports.http.sessions.streams.PRIMING_SECONDS", 60)
    config, options = OPTIONS[option]
    answers = []
    for each, more in ((guarded_config(), {}), (config, options)):
        async with connected(demo(), era, each, **more) as peer:
            for call in ("echo", "wait_a_turn"):
                await peer.client.send(peer.call(call, text="x"))
                answers.append(re.sub(rb"\r\nx-request-id: [^\r]*", b"", await peer.raw_response()))
    assert answers[:2] == answers[2:]
    assert tasks == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_query_changes_no_answer(era: str) -> None:
    async with connected(demo(), era) as peer:
        answers = []
        for query in (b"", b"?a=1&b=%20"):
            await peer.client.send(peer.call("echo", text="x").replace(b"/mcp", b"/mcp" + query, 1))
            answers.append(await peer.raw_response())
    assert answers[0] == answers[1]
    assert answers[0].startswith(b"HTTP/1.1 200 ")


async def test_the_access_log_of_hypercorn_has_each_request(caplog: pytest.LogCaptureFixture) -> None:
    config = settings(accesslog=logging.getLogger("of.hypercorn"), access_log_format="%(R)s %(s)s")
    caplog.set_level(logging.INFO, "of.hypercorn")
    async with connected(demo(), config=config) as peer:
        await peer.client.send(peer.call("echo", text="x").replace(b"/mcp", b"/mcp?q=1", 1))
        await peer.raw_response()
        assert (await peer.server.ask(b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))[0] == 404
    assert [record.getMessage() for record in caplog.records] == ["POST /mcp?q=1 1.1 200", "GET /none 1.1 404"]


@pytest.mark.parametrize("era", ERAS)
async def test_requests_over_tls_are_answered_as_others(era: str, certificate: Path, tasks: list[object]) -> None:
    async with (
        running(asgi_app(demo()), over_tls(certificate)) as running_server,
        running_server.secured(certificate) as (client, _),
    ):
        peer = Peer(client, era, running_server)
        await peer.initialize()
        for call in ("echo", "wait_a_turn"):
            await peer.client.send(peer.call(call, text="x"))
            assert b'"x"' in await peer.raw_response()
        await peer.client.send(peer.call("count", to=3, meta=PROGRESS))
        assert b"done" in await peer.raw_response()
    assert tasks == []


# Authentication that takes its time


class Door:
    """An `authenticate` that waits until the test opens it."""

    def __init__(self) -> None:
        self.asked, self.opened, self.ended = trio.Event(), trio.Event(), trio.Event()
        self.was_cancelled = False

    async def __call__(self, headers: Any) -> str:
        if "x-quick" in headers:
            return "quick"
        self.asked.set()
        try:
            await self.opened.wait()
        except trio.Cancelled:
            self.was_cancelled = True
            raise
        finally:
            self.ended.set()
        return "someone"


async def test_while_a_sender_is_authenticated_other_connections_go_on() -> None:
    door = Door()
    async with connected(demo(), authenticate=door) as peer, peer.server.client() as other:
        await peer.client.send(peer.call("echo", text="first"))
        await soon(door.asked)
        quick = peer.call("echo", text="second").replace(b"\r\n", b"\r\nX-Quick: 1\r\n", 1)
        assert (await other.ask(quick))[0] == 200
        door.opened.set()
        assert b"first" in await peer.raw_response()


@pytest.mark.parametrize("ahead", [b"", b"POST"])
async def test_the_end_of_a_connection_cancels_the_authentication_of_its_request(ahead: bytes) -> None:
    door = Door()
    async with connected(demo(), authenticate=door) as peer:
        await peer.client.send(peer.call("echo", text="x") + ahead)
        await soon(door.asked)
        await peer.client.stream.aclose()
        await soon(door.ended)
        assert door.was_cancelled
        assert (await peer.server.ask(get("/health")))[0] == 200


async def test_an_authentication_that_takes_too_long_is_503_and_the_connection_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.authentication.AUTHENTICATION_SECONDS", 0.05)
    door = Door()
    async with connected(demo(), authenticate=door) as peer:
        request = peer.call("echo", text="x")
        await peer.client.send(request[:-5])
        await soon(door.ended)
        await peer.client.send(request[-5:])
        status, headers, _ = await peer.client.response()
        assert (status, headers["retry-after"]) == (503, "1")
        await peer.client.send(request.replace(b"\r\n", b"\r\nX-Quick: 1\r\n", 1))
        assert b'"x"' in await peer.raw_response()


async def test_what_comes_while_a_sender_is_authenticated_is_bounded_and_nothing_of_it_is_lost() -> None:
    door = Door()
    text = "x" * 3_000_000
    config = guarded_config(limits=ConnectionLimits(max_pipelined=10_000), memory=MemoryBudget())
    async with connected(demo(), config=config, authenticate=door) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.client.send, peer.call("echo", text=text))
            await soon(door.asked)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert peer.server.memory.drawn < 500_000
            door.opened.set()
            assert text.encode() in await peer.raw_response()


@pytest.mark.parametrize("pieces", [1, 7])
async def test_what_came_while_a_sender_was_authenticated_is_read_then(pieces: int) -> None:
    door = Door()
    async with connected(demo(), authenticate=door) as peer:
        request, second = peer.call("echo", text="first"), peer.call("echo", text="second")
        await peer.client.send(request[:-20])
        await soon(door.asked)
        rest = request[-20:] + second
        for start in range(0, len(rest), -(-len(rest) // pieces)):
            await peer.client.send(rest[start : start + -(-len(rest) // pieces)])
            await trio.testing.wait_all_tasks_blocked(0.001)
        door.opened.set()
        assert b"first" in await peer.raw_response()
        assert b"second" in await peer.raw_response()


# Streams without a task


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was written without a task, for each write."""
    found: list[bytes] = []
    write = Writer.write_or_start

    def noting(writer: Writer, pieces: Sequence[bytes], on_written: Any) -> bool:
        found.append(b"".join(pieces))
        return write(writer, pieces, on_written)

    monkeypatch.setattr(Writer, "write_or_start", noting)
    return found


class Talker:
    """A server whose tool `talk` reports progress once, continues on a signal of the test, and then reports `more`."""

    def __init__(self, more: int = 0, text: str = "") -> None:
        self.reported = 0
        self.ended, self.opened = trio.Event(), trio.Event()
        self.was_cancelled = False
        self.server = Server("talker")

        @self.server.tool
        async def talk(ctx: Context) -> str:
            """Report progress."""
            try:
                await ctx.progress(1)
                self.reported = 1
                await self.opened.wait()
                for step in range(more):
                    await ctx.progress(step + 2, None, text)
                    self.reported += 1
            except trio.Cancelled:
                self.was_cancelled = True
                raise
            finally:
                self.ended.set()
            return "done"


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_said_is_written_before_the_tool_goes_on(
    era: str, writes: list[bytes], tasks: list[object]
) -> None:
    server, written = Server("talker"), []

    @server.tool
    async def talk(ctx: Context) -> str:
        """Report progress after a while of silence, twice."""
        for step in (1, 2):
            await trio.sleep(2 * GATHERING_SECONDS)
            await ctx.progress(step)
            written.append(b'"progress":%d' % step in writes[-1])
        return "done"

    async with connected(server, era) as peer:
        await peer.client.send(peer.call("talk", meta=PROGRESS))
        assert b"done" in await peer.raw_response()
    assert written == [True, True]
    assert tasks == []


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_said_at_once_shares_its_writes_and_stays_in_order(
    era: str, writes: list[bytes], tasks: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_mcp_transports.hypercorn.open_request.GATHERING_SECONDS", 60.0)
    async with connected(demo(), era) as peer:
        before = len(writes)
        await peer.client.send(peer.call("count", to=40, meta=PROGRESS))
        response = await peer.raw_response()
    reported = [int(step) for step in re.findall(rb'"progress":(\d+)', response)]
    assert reported == list(range(1, 41))
    assert response.index(b'"progress":40') < response.index(b"done")
    assert len(writes) - before <= 40 / 2
    assert tasks == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_does_not_read_slows_the_tool_down_and_loses_nothing(era: str) -> None:
    many = 2000
    talker = Talker(many, "x" * 5000)
    async with running(asgi_app(talker.server), guarded_config()) as running_server:
        async with running_server.client(receive_buffer=4096) as client:
            peer = Peer(client, era, running_server)
            await peer.initialize()
            await client.send(peer.call("talk", meta=PROGRESS))
            talker.opened.set()
            before = -1
            with trio.fail_after(5):
                while talker.reported > before:
                    before = talker.reported
                    # Less than the period of the watchdog, which wakes the loop while a call runs.
                    await trio.testing.wait_all_tasks_blocked(0.01)
            assert 0 < talker.reported < many
            response = await peer.raw_response()
    reported = [int(step) for step in re.findall(rb'"progress":(\d+)', response)]
    assert reported == list(range(1, many + 2))
    assert b"done" in response


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
async def test_the_end_of_its_connection_cancels_a_call_that_has_said_something(era: str, tasks: list[object]) -> None:
    talker = Talker()
    async with connected(talker.server, era, limits=HttpLimits(disconnect_grace=0.01)) as peer:
        await peer.client.send(peer.call("talk", meta=PROGRESS))
        await peer.client.until(b'"progress":1')
        await peer.client.stream.aclose()  # type: ignore[attr-defined]
        await soon(talker.ended)
    assert talker.was_cancelled
    assert tasks == []


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("era", [era for era in ERAS if era != MODERN])
async def test_a_get_resumes_a_legacy_stream_whether_its_first_reader_has_left(
    era: str, leaves: bool, tasks: list[object]
) -> None:
    talker = Talker(3)
    async with connected(talker.server, era) as peer, peer.server.client() as client:
        await peer.client.send(peer.call("talk", meta=PROGRESS))
        first = await peer.client.until(b"\n\n\r\n")
        if b'"progress":1' not in first:
            first += await peer.client.until(b"\n\n\r\n")
        last = re.findall(rb"\nid: ([^\n]*)", first)[-1].decode()
        if leaves:
            await peer.client.stream.aclose()  # type: ignore[attr-defined]
        await client.send(get_stream(peer, f"Last-Event-ID: {last}"))
        await client.until(b"\r\n\r\n")
        if not leaves:
            # Its response ends, and its connection goes on.
            await peer.client.until(b"0\r\n\r\n")
            await peer.client.send(peer.request("ping", {}, id=7))
            assert b'"id":7' in await peer.raw_response()
        talker.opened.set()
        rest = await client.until(b"\r\n0\r\n\r\n")
    assert [int(step) for step in re.findall(rb'"progress":(\d+)', rest)] == [2, 3, 4]
    assert b"done" in rest
    assert tasks == []


async def test_a_stream_that_falls_silent_gets_comments_and_its_rest(
    monkeypatch: pytest.MonkeyPatch, tasks: list[object]
) -> None:
    monkeypatch.setattr("trio_mcp_transports.asgi.exchange.KEEP_ALIVE_SECONDS", 0.05)
    talker = Talker(2)
    async with connected(talker.server) as peer:
        await peer.client.send(peer.call("talk", meta=PROGRESS))
        await peer.client.until(b'"progress":1')
        assert tasks == []
        for _ in range(2):
            await peer.client.until(b"\n: ")
        talker.opened.set()
        rest = await peer.client.until(b"\r\n0\r\n\r\n")
        assert b'"progress":3' in rest
        assert b"done" in rest
        await peer.client.send(peer.request("tools/list", {}, id=7))
        assert b'"id":7' in await peer.raw_response()


async def test_what_a_store_has_to_be_waited_for_is_waited_for_in_a_task(tasks: list[object]) -> None:
    class Waiting(MemoryEventStore):
        async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
            await trio.lowlevel.checkpoint()
            await super().append(key, first, events)

    async with connected(demo(), "2025-11-25", event_store=Waiting()) as peer:
        await peer.client.send(peer.call("count", to=3, meta=PROGRESS))
        response = await peer.raw_response()
    assert [int(step) for step in re.findall(rb'"progress":(\d+)', response)] == [1, 2, 3]
    assert b"done" in response
    assert tasks


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_error_in_a_stream_is_logged_and_closes_the_connection(
    is_first: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    talker = Talker(1)
    async with connected(talker.server) as peer:
        with monkeypatch.context() as patch:
            if is_first:
                patch.setattr(Exchange, "take_part", lambda *_: 1 / 0)
            await peer.client.send(peer.call("talk", meta=PROGRESS))
            if not is_first:
                await peer.client.until(b'"progress":1')
                patch.setattr(Exchange, "take_part", lambda *_: 1 / 0)
                talker.opened.set()
            rest = await peer.client.rest()
        assert rest.startswith(b"HTTP/1.1 500 ") is is_first
        assert not rest.endswith(b"0\r\n\r\n") or is_first
        await soon(talker.ended)
        assert (await peer.server.ask(peer.request("tools/list", {})))[0] == 200
    assert [record.levelname for record in caplog.records] == ["ERROR"]


# The stream of a GET


def get_stream(peer: Peer, *more: str) -> bytes:
    """The request for the standalone stream of a session."""
    return get("/mcp", "Accept: text/event-stream", *peer.headers, *more, host="127.0.0.1")


async def test_the_stream_of_a_get_needs_no_task_and_outlives_silence(
    monkeypatch: pytest.MonkeyPatch, tasks: list[object]
) -> None:
    monkeypatch.setattr("trio_mcp_transports.http.sessions.streams.KEEP_ALIVE_SECONDS", 0.02)
    server = demo()
    async with connected(server, "2025-06-18") as peer, peer.server.client() as client:
        await client.send(get_stream(peer))
        for _ in range(3):
            await client.until(b"\n: ")
        server.remove_tool("fail")
        assert b"list_changed" in await client.until(b"list_changed")
    assert tasks == []


async def test_a_response_that_is_ended_early_leaves_the_stream_to_the_grace_and_to_a_get(tasks: list[object]) -> None:
    server, ended, opened = Server("polled"), trio.Event(), trio.Event()

    @server.tool
    async def poll(ctx: Context) -> str:
        """End the response, continue on a signal of the test, and then report."""
        await ctx.progress(1)
        await ctx.end_stream(retry=0.01)
        ended.set()
        await opened.wait()
        await ctx.progress(2)
        return "done"

    async with connected(server, "2025-11-25") as peer, peer.server.client() as client:
        await peer.client.send(peer.call("poll", meta=PROGRESS))
        first = await peer.raw_response()
        last = re.findall(rb"\nid: ([^\n]*)", b"\n" + first)[-1].decode().replace("N", "1")
        await soon(ended)
        await trio.testing.wait_all_tasks_blocked(0.01)
        # The connection goes on, and so does the server.
        await peer.client.send(peer.request("ping", {}, id=7))
        assert b'"id":7' in await peer.raw_response()
        await client.send(get_stream(peer, f"Last-Event-ID: {last}"))
        await client.until(b"\r\n\r\n")
        opened.set()
        assert b"done" in await client.until(b"\r\n0\r\n\r\n")
    assert tasks == []
