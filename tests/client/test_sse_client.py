"""HTTP+SSE of 2024-11-05 at the client: its channel against servers of every kind, and how a client falls back to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
from naming import naming, unnamed
from scripted_http import Exchange, HttpWire, http_conversation
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Client, Context, Server, accept
from trio_mcp.errors import Disconnected, McpError, RemoteProtocolError, RequestTimeout
from trio_mcp.protocol.jsonrpc import Encoded, Malformed, Notification, Request, Response, Unanswered
from trio_mcp.session import Envelope
from trio_mcp_transports.background import open_background
from trio_mcp_transports.entry_points import sse as transport
from trio_mcp_transports.http import HttpLimits
from trio_mcp_transports.httpx.connection import ServerConnection
from trio_mcp_transports.httpx.limits import INBOX, ClientLimits
from trio_mcp_transports.sse.client import SseChannel, connect_sse

URL = "http://scripted.test/sse"
ENDPOINT = b"event: endpoint\ndata: /message?session_id=1\n\n"
LIMIT = 2000
SOON = 20.0

Answer = Callable[[Exchange], None]


@asynccontextmanager
async def channel_to(wire: HttpWire, url: str = URL) -> AsyncIterator[SseChannel]:
    """A channel to a scripted server, in virtual time."""
    limits = ClientLimits(message=LIMIT)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(wire.handle)) as http:
        async with open_background() as nursery:
            channel = SseChannel(ServerConnection(url, http, limits), nursery)
            await channel.open()
            try:
                yield channel
            finally:
                await channel.aclose()


@asynccontextmanager
async def talking(first: bytes = ENDPOINT) -> AsyncIterator[tuple[SseChannel, HttpWire, Exchange]]:
    """A channel whose stream is open, the server's end, and the stream."""
    wire = HttpWire()
    streams = list[Exchange]()

    async def greet() -> None:
        stream = await wire.next("GET")
        streams.append(stream)
        stream.stream()
        stream.say(first)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(greet)
        with trio.fail_after(100):
            async with channel_to(wire) as channel:
                yield channel, wire, streams[0]


async def opened_with(answer: Answer) -> Exception:
    """What opening raises when the server answers the GET like this."""
    wire = HttpWire()

    async def reply() -> None:
        answer(await wire.next("GET"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reply)
        with trio.fail_after(100):
            try:
                async with channel_to(wire):
                    raise AssertionError("it was opened")
            except McpError as error:
                return error
    raise AssertionError("nothing was raised")


def request(id: int, method: str = "ping") -> Envelope:
    return Envelope(Request(id, method, Encoded(b"{}")), about=id)


def saying(first: bytes) -> Answer:
    def answer(exchange: Exchange) -> None:
        exchange.stream()
        exchange.say(first)

    return answer


# the stream and the messages


async def test_the_stream_is_asked_for_and_messages_go_where_it_says(autojump_clock: MockClock) -> None:
    async with talking() as (channel, wire, stream):
        assert stream.headers["accept"] == "text/event-stream"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(1))
            posted = await wire.next("POST", "ping")
            assert posted.url == "http://scripted.test/message?session_id=1"
            assert posted.headers["content-type"] == "application/json"
            posted.answer(202)
        stream.say(b'event: message\ndata: {"jsonrpc": "2.0", "id": 1, "result": {}}\n\n')
        answer = (await channel.receive()).message
        assert isinstance(answer, Response)
        assert answer.id == 1


@pytest.mark.parametrize(
    ("said", "uri"),
    [
        ("/message?x=1", "http://scripted.test/message?x=1"),
        ("message", "http://scripted.test/message"),
        ("?session=1", "http://scripted.test/sse?session=1"),
        ("http://scripted.test/in", "http://scripted.test/in"),
        ("http://SCRIPTED.test:80/in", "http://SCRIPTED.test:80/in"),
    ],
)
async def test_the_uri_may_be_relative_or_of_the_same_origin(autojump_clock: MockClock, said: str, uri: str) -> None:
    async with talking(f"event: endpoint\ndata: {said}\n\n".encode()) as (channel, wire, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(1))
            posted = await wire.next("POST", "ping")
            assert posted.url == str(httpx2.URL(uri))
            posted.answer(200, b"Accepted")


async def test_messages_are_posted_one_at_a_time_in_order(autojump_clock: MockClock) -> None:
    async with talking() as (channel, wire, _), trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(channel.send, request(number))
            await wait_all_tasks_blocked()
        for number in range(3):
            posted = await wire.next("POST", "ping")
            await wait_all_tasks_blocked()
            assert (posted.message["id"], wire.unseen) == (number, 0)
            posted.answer(202)


async def test_other_events_and_comments_mean_nothing(autojump_clock: MockClock) -> None:
    async with talking() as (channel, _, stream):
        stream.say(b": still here\n\nevent: ping\ndata: now\n\n" + ENDPOINT + b"data:\n\n")
        stream.say(b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n')
        first = (await channel.receive()).message
        assert isinstance(first, Malformed)  # an event without a type is a message, and this one is empty
        assert isinstance((await channel.receive()).message, Notification)


async def test_closing_the_channel_ends_the_stream(autojump_clock: MockClock) -> None:
    async with talking() as (channel, _, stream):
        await channel.aclose()
        await stream.left.wait()
        with pytest.raises(trio.ClosedResourceError):
            await channel.receive()
        with pytest.raises(trio.ClosedResourceError):
            await channel.send(request(1))


async def test_the_end_of_the_stream_is_the_end_of_the_channel(autojump_clock: MockClock) -> None:
    async with talking() as (channel, _, stream):
        stream.say(b'data: {"jsonrpc": "2.0", "id": 1, "result": {}}\n\n')
        stream.end()
        await channel.receive()
        with pytest.raises(trio.EndOfChannel):
            await channel.receive()
        with pytest.raises(trio.BrokenResourceError, match=naming("server", "stream")):
            await channel.send(request(1))


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (Exchange.break_off, "connection reset"),
        (lambda stream: stream.say(b"data: \xff\n\n"), "UTF-8"),
        (lambda stream: stream.say(b"data: " + bytes(LIMIT + 1)), "2000 bytes"),
    ],
    ids=["reset", "not UTF-8", "too long"],
)
async def test_a_stream_that_breaks_off_says_why(autojump_clock: MockClock, end: Answer, why: str) -> None:
    async with talking() as (channel, _, stream):
        stream.say(b'data: {"jsonrpc": "2.0", "id": 1, "result": {}}\n\n')
        await wait_all_tasks_blocked()
        end(stream)
        await channel.receive()
        with pytest.raises(trio.BrokenResourceError, match=why):
            await channel.receive()


# what does not arrive


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda posted: posted.answer(404, b"no session"), ["HTTP 404", "no session"]),
        (lambda posted: posted.answer(302, b"", {"location": "http://evil.test/"}), ["HTTP 302"]),
        (lambda posted: posted.answer(500), ["HTTP 500"]),
        (lambda posted: None, ["15 seconds"]),
    ],
    ids=["404", "redirect", "500", "silence"],
)
async def test_a_request_that_is_not_taken_is_told_so_and_the_channel_goes_on(
    autojump_clock: MockClock, answer: Answer, names: list[str]
) -> None:
    async with talking() as (channel, wire, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(1))
            answer(await wire.next("POST", "ping"))
        failure = (await channel.receive()).message
        assert isinstance(failure, Malformed | Unanswered)
        assert (failure.answers if isinstance(failure, Malformed) else failure.id) == 1
        assert unnamed(str(failure.error) if isinstance(failure, Malformed) else failure.why, *names) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(2))
            (await wire.next("POST", "ping")).answer(202)


@pytest.mark.parametrize("body", [b"", b"x" * (LIMIT + 1)], ids=["endless", "huge"])
async def test_a_message_that_was_taken_is_taken_whatever_comes_behind_its_status(
    autojump_clock: MockClock, body: bytes
) -> None:
    async with talking() as (channel, wire, stream):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(1))
            posted = await wire.next("POST", "ping")
            posted.stream()
            posted.say(body)
            started = trio.current_time()
        assert trio.current_time() - started < 5
        stream.say(b'data: {"jsonrpc": "2.0", "id": 1, "result": {}}\n\n')
        assert isinstance((await channel.receive()).message, Response)


async def test_the_error_of_a_refused_request_is_its_answer(autojump_clock: MockClock) -> None:
    async with talking() as (channel, wire, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(1))
            posted = await wire.next("POST", "ping")
            posted.answer(503, {"id": None, "error": {"code": -32000, "message": "busy"}})
        answer: Any = (await channel.receive()).message
        assert (answer.id, answer.error.code) == (1, -32000)


async def test_a_notification_that_is_not_taken_ends_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking() as (channel, wire, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, Envelope(Notification("notifications/initialized", Encoded(b"{}"))))
            (await wire.next("POST", "notifications/initialized")).answer(500, b"oops")
        assert unnamed(caplog.text, "Notification", "http://scripted.test/sse", "HTTP 500", "oops") == []


async def test_refusals_of_more_requests_than_fit_into_the_inbox_hold_up_nothing(autojump_clock: MockClock) -> None:
    async with talking() as (channel, wire, _):
        async with trio.open_nursery() as nursery:

            async def send_all() -> None:
                for number in range(INBOX + 10):
                    await channel.send(request(number))

            nursery.start_soon(send_all)
            for _ in range(INBOX + 10):
                (await wire.next("POST", "ping")).answer(500)
        heard = {getattr((await channel.receive()).message, "answers", None) for _ in range(INBOX + 10)}
        assert heard == set(range(INBOX + 10))


async def test_a_cancelled_send_leaves_the_channel_in_order(autojump_clock: MockClock) -> None:
    async with talking() as (channel, wire, _):
        with trio.move_on_after(1):
            await channel.send(request(1))
        await wire.next("POST", "ping")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, request(2))
            posted = await wire.next("POST", "ping")
            assert posted.message["id"] == 2
            posted.answer(202)


# opening


@pytest.mark.parametrize(
    ("answer", "kind", "names"),
    [
        (lambda get: get.answer(404, b"not here"), RemoteProtocolError, ["HTTP 404", "not here"]),
        (lambda get: get.answer(401), RemoteProtocolError, ["HTTP 401"]),
        (lambda get: get.answer(307, b"", {"location": "/x"}), RemoteProtocolError, ["HTTP 307"]),
        (lambda get: get.answer(200, b"<html>", {"content-type": "text/html"}), RemoteProtocolError, []),
        (saying(b"data: {}\n\n"), RemoteProtocolError, ["'message'", "'endpoint'"]),
        (saying(b"event: endpoint\ndata:\n\n"), RemoteProtocolError, ["URI"]),
        (saying(b"event: endpoint\ndata: /a\ndata: /b\n\n"), RemoteProtocolError, ["URI"]),
        (saying(b"event: endpoint\ndata: /a b\n\n"), RemoteProtocolError, ["URI"]),
        (saying(b"event: endpoint\ndata: /%b\n\n" % (b"a" * LIMIT)), RemoteProtocolError, ["2000 bytes"]),
        (saying(b"event: endpoint\ndata: http://evil.test/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: //evil.test/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: https://scripted.test/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: http://scripted.test:81/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: http://u@scripted.test/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: http://scripted.test:x/in\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: file:///etc/passwd\n\n"), RemoteProtocolError, ["origin"]),
        (saying(b"event: endpoint\ndata: http://[::1\n\n"), RemoteProtocolError, ["URI"]),
        (saying(b": hello\n\n"), RequestTimeout, ["`endpoint`", "10 seconds"]),
        (lambda get: None, RequestTimeout, ["`endpoint`", "10 seconds"]),
        (lambda get: (get.stream(), get.end()), Disconnected, ["stream"]),
        (lambda get: (get.stream(), get.break_off()), Disconnected, ["connection reset"]),
    ],
)
async def test_a_server_that_is_none_is_an_error_that_says_why(
    autojump_clock: MockClock, answer: Answer, kind: type[Exception], names: list[str]
) -> None:
    error = await opened_with(answer)
    assert (type(error), unnamed(str(error), *names)) == (kind, []), error


async def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    with trio.fail_after(SOON):
        with pytest.raises(Disconnected, match=r"http://127\.0\.0\.1:1/sse: "):
            async with connect_sse("http://127.0.0.1:1/sse"):
                pass


# falling back


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_knows_no_post_is_asked_for_a_stream(autojump_clock: MockClock, status: int) -> None:
    async with http_conversation() as (client, wire, start):
        (await wire.next("POST", "initialize")).answer(status)
        stream = await wire.next("GET")
        stream.stream()
        stream.say(ENDPOINT)
        opening = await wire.next("POST", "initialize")
        assert opening.url == "http://scripted.test/message?session_id=1"
        opening.answer(202)
        hello = {
            "protocolVersion": "2024-11-05",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        stream.say(answered(opening, hello))
        (await wire.next("POST", "notifications/initialized")).answer(202)
        await wait_all_tasks_blocked()
        listing = start(client.list_tools)
        posted = await wire.next("POST", "tools/list")
        posted.answer(202)
        stream.say(answered(posted, {"tools": []}))
        assert await listing.result() == []
        assert client.protocol_version == "2024-11-05"
        late = start(client.list_tools)
        (await wire.next("POST", "tools/list")).answer(202)
        stream.break_off()
        with pytest.raises(Disconnected, match="connection reset"):
            await late.result()
        wire.nothing()


def answered(exchange: Exchange, result: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}
    return b"event: message\ndata: %b\n\n" % json.dumps(message).encode()


async def refused_with(play: Callable[[HttpWire], Awaitable[None]]) -> str:
    """What the client's `open` raises."""
    try:
        async with http_conversation() as (_, wire, _):
            await play(wire)
    except ExceptionGroup as group:
        (error,) = group.exceptions
        assert isinstance(error, McpError), error
        return str(error)
    raise AssertionError("it was opened")


async def test_without_a_stream_either_the_first_refusal_is_the_error(autojump_clock: MockClock) -> None:
    async def play(wire: HttpWire) -> None:
        refusal = {"id": None, "error": {"code": -32600, "message": "you are not welcome"}}
        (await wire.next("POST", "initialize")).answer(400, refusal)
        (await wire.next("GET")).answer(405)

    assert "you are not welcome" in await refused_with(play)


async def test_other_refusals_are_final(autojump_clock: MockClock) -> None:
    async def play(wire: HttpWire) -> None:
        (await wire.next("POST", "initialize")).answer(401, b"who are you?")
        await wait_all_tasks_blocked()
        wire.nothing()

    assert "HTTP 401: who are you?" in await refused_with(play)


# a real server


class Stage:
    def __init__(self) -> None:
        self.server = Server("stage", version="1")
        for tool in (self.ask, self.large):
            self.server.tool(tool)

    async def ask(self, ctx: Context) -> str:
        await ctx.progress(1)
        answer = await ctx.elicit("How many?", int)
        return f"{ctx.request.protocol_version} {answer.content if answer.action == 'accept' else answer.action}"

    async def large(self, size: int) -> str:
        return "x" * size


@asynccontextmanager
async def served(stage: Stage, **options: Any) -> AsyncIterator[str]:
    with trio.fail_after(SOON):
        serve = partial(transport.serve, stage.server, port=0, announce=False, signals=False, **options)
        async with trio.open_nursery() as nursery:
            urls = await nursery.start(serve)
            yield urls[-1]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("options", [{}, {"path": "/mcp"}], ids=["alone", "beside Streamable HTTP"])
async def test_a_client_finds_it_out_by_itself_and_is_asked(options: dict[str, Any]) -> None:
    stage = Stage()
    async with served(stage, **options) as url:
        assert url.endswith("/sse")
        async with Client.connect(url, on_elicit=lambda _: accept(value=7)) as client:
            assert (await client.call_tool("ask")).text == "2025-11-25 7"
            assert len((await client.call_tool("large", {"size": 1_000_000})).text) == 1_000_000


async def test_headers_go_with_every_request() -> None:
    stage = Stage()

    async def by_token(headers: Any) -> str | None:
        return "alice" if headers.get("authorization") == "Bearer a" else None

    async with served(stage, authenticate=by_token, limits=HttpLimits(sessions=1)) as url:
        with pytest.raises(McpError, match="401"):
            async with connect_sse(url):
                pass
        async with Client.connect(url, headers={"authorization": "Bearer a"}) as client:
            assert (await client.call_tool("large", {"size": 3})).text == "xxx"
