"""HTTP+SSE of 2024-11-05 at the client: its channel against servers of every kind, and how a client falls back to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
from naming import naming, unnamed
from peer import is_malformed, json_of, message_of
from scripted import Json, initialized, said
from scripted_http import Exchange, HttpWire, event, http_conversation
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, Server
from trio_mcp.client import Change
from trio_mcp.errors import Disconnected, McpError, OutcomeUnknown, RemoteProtocolError, RequestTimeout, Unreachable
from trio_mcp.session import Envelope
from trio_mcp_transports.background import open_background
from trio_mcp_transports.entry_points import sse as transport
from trio_mcp_transports.http import HttpLimits
from trio_mcp_transports.httpx import INBOX, ClientLimits, ServerConnection
from trio_mcp_transports.sse.client import SseChannel, connect_sse

URL = "http://scripted.test/sse"
ENDPOINT = b"event: endpoint\ndata: /message?session_id=1\n\n"
LIMIT = 2000
SOON = 20.0

LISTENING: Json = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}

Answer = Callable[[Exchange], None]


@asynccontextmanager
async def talking(answer: Answer) -> AsyncIterator[tuple[SseChannel, HttpWire, Exchange]]:
    """A channel whose stream was answered like this, the server's end, and the stream."""
    wire = HttpWire()
    streams = list[Exchange]()

    async def greet() -> None:
        streams.append(await wire.next("GET"))
        answer(streams[0])

    with trio.fail_after(100):
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(wire.handle)) as http:
            async with open_background() as nursery:
                channel = SseChannel(ServerConnection(URL, http, ClientLimits(message=LIMIT)), nursery)
                nursery.start_soon(greet)
                try:
                    await channel.open()
                    yield channel, wire, streams[0]
                finally:
                    await channel.aclose()


@asynccontextmanager
async def posting(
    channel: SseChannel, wire: HttpWire, message: Envelope | None = None, method: str = "ping"
) -> AsyncIterator[Exchange]:
    """A request that the server is to answer in the block, at whose end it is sent."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, message or request(1))
        yield await wire.post(method)


def request(id: int, method: str = "ping") -> Envelope:
    return Envelope(message_of({"id": id, "method": method}), about=id)


def saying(first: bytes = ENDPOINT) -> Answer:
    def answer(exchange: Exchange) -> None:
        exchange.stream()
        exchange.say(first)

    return answer


def to(uri: str) -> Answer:
    """Begin a stream that says to post to this URI."""
    return saying(f"event: endpoint\ndata: {uri}\n\n".encode())


RESULT = b'data: {"jsonrpc": "2.0", "id": 1, "result": {}}\n\n'


# the stream and the messages


async def test_the_stream_is_asked_for_and_messages_go_where_it_says() -> None:
    async with talking(saying()) as (channel, wire, stream):
        assert stream.headers["accept"] == "text/event-stream"
        async with posting(channel, wire) as posted:
            assert posted.url == "http://scripted.test/message?session_id=1"
            assert posted.headers["content-type"] == "application/json"
            posted.answer(202)
        stream.say(b"event: message\n" + RESULT)
        answer = json_of((await channel.receive()).message)
        assert (answer["id"], answer["result"]) == (1, {})


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
async def test_the_uri_may_be_relative_or_of_the_same_origin(said: str, uri: str) -> None:
    async with talking(to(said)) as (channel, wire, _):
        async with posting(channel, wire) as posted:
            assert posted.url == str(httpx2.URL(uri))
            posted.answer(200, b"Accepted")


async def test_messages_are_posted_one_at_a_time_in_order() -> None:
    async with talking(saying()) as (channel, wire, _), trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(channel.send, request(number))
            await wait_all_tasks_blocked()
        for number in range(3):
            posted = await wire.post("ping")
            await wait_all_tasks_blocked()
            assert (posted.message["id"], wire.unseen) == (number, 0)
            posted.answer(202)


async def test_other_events_and_comments_mean_nothing() -> None:
    async with talking(saying()) as (channel, _, stream):
        stream.say(b": still here\n\nevent: ping\ndata: now\n\n" + ENDPOINT + b"data:\n\n")
        stream.say(b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n')
        first = (await channel.receive()).message
        assert is_malformed(first)  # an event without a type is a message, and this one is empty
        assert json_of((await channel.receive()).message)["method"] == "notifications/tools/list_changed"


async def test_closing_the_channel_ends_the_stream() -> None:
    async with talking(saying()) as (channel, _, stream):
        await channel.aclose()
        await stream.left.wait()
        with pytest.raises(trio.ClosedResourceError):
            await channel.receive()
        with pytest.raises(trio.ClosedResourceError):
            await channel.send(request(1))


async def test_the_end_of_the_stream_is_the_end_of_the_channel() -> None:
    async with talking(saying()) as (channel, _, stream):
        stream.say(RESULT)
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
async def test_a_stream_that_breaks_off_says_why(end: Answer, why: str) -> None:
    async with talking(saying()) as (channel, _, stream):
        stream.say(RESULT)
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
        (lambda posted: posted.answer(404, b"<html>\r\n  <p>Not\tfound\n"), ["HTTP 404", "<html> <p>Not found"]),
        (lambda posted: posted.answer(302, b"", {"location": "http://evil.test/"}), ["HTTP 302"]),
        (lambda posted: posted.answer(500), ["HTTP 500"]),
        (lambda posted: None, ["15 seconds"]),
    ],
    ids=["404", "404 with a page", "redirect", "500", "silence"],
)
async def test_a_request_that_is_not_taken_fails_and_the_channel_goes_on(answer: Answer, names: list[str]) -> None:
    async with talking(saying()) as (channel, wire, _):
        async with posting(channel, wire) as posted:
            answer(posted)
        failure: Any = (await channel.receive()).message
        answered, why = (failure.answers, failure.error) if is_malformed(failure) else (failure.id, failure.why)
        assert (answered, unnamed(str(why), *names)) == (1, [])
        async with posting(channel, wire, request(2)) as posted:
            posted.answer(202)


@pytest.mark.parametrize("body", [b"", b"x" * (LIMIT + 1)], ids=["endless", "huge"])
async def test_a_message_that_was_taken_is_taken_whatever_comes_behind_its_status(body: bytes) -> None:
    async with talking(saying()) as (channel, wire, stream):
        async with posting(channel, wire) as posted:
            posted.stream()
            posted.say(body)
            started = trio.current_time()
        assert trio.current_time() - started < 5
        stream.say(RESULT)
        assert json_of((await channel.receive()).message)["result"] == {}


async def test_the_error_of_a_refused_request_is_its_answer() -> None:
    async with talking(saying()) as (channel, wire, _):
        async with posting(channel, wire) as posted:
            posted.answer(503, {"id": None, "error": {"code": -32000, "message": "busy"}})
        answer: Any = (await channel.receive()).message
        assert (answer.id, answer.error.code) == (1, -32000)


async def test_the_error_of_a_refused_request_may_come_some_seconds_after_its_status() -> None:
    async with talking(saying()) as (channel, wire, _):
        async with posting(channel, wire) as posted, trio.open_nursery() as nursery:
            posted.stream(status=503)
            nursery.start_soon(
                say_late, posted, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"busy"}}'
            )
        answer: Any = (await channel.receive()).message
        assert (answer.id, answer.error.code) == (1, -32000)


async def say_late(exchange: Exchange, body: bytes) -> None:
    await trio.sleep(5)
    exchange.say(body)
    exchange.end()


async def test_a_notification_that_is_not_taken_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(saying()) as (channel, wire, _):
        initialized = message_of({"method": "notifications/initialized"})
        async with posting(channel, wire, Envelope(initialized), initialized.method) as posted:
            posted.answer(500, b"oops")
        assert unnamed(caplog.text, "Notification", "http://scripted.test/sse", "HTTP 500", "oops") == []


async def test_refusals_of_more_requests_than_fit_into_the_inbox_hold_up_nothing() -> None:
    async with talking(saying()) as (channel, wire, _):
        async with trio.open_nursery() as nursery:

            async def send_all() -> None:
                for number in range(INBOX + 10):
                    await channel.send(request(number))

            nursery.start_soon(send_all)
            for _ in range(INBOX + 10):
                (await wire.post("ping")).answer(500)
        heard = {getattr((await channel.receive()).message, "answers", None) for _ in range(INBOX + 10)}
        assert heard == set(range(INBOX + 10))


async def test_a_cancelled_send_leaves_the_channel_in_order() -> None:
    async with talking(saying()) as (channel, wire, _):
        with trio.move_on_after(1):
            await channel.send(request(1))
        await wire.post("ping")
        async with posting(channel, wire, request(2)) as posted:
            assert posted.message["id"] == 2
            posted.answer(202)


# opening

ELSEWHERE = [
    "http://evil.test/in",
    "//evil.test/in",
    "https://scripted.test/in",
    "http://scripted.test:81/in",
    "http://u@scripted.test/in",
    "http://scripted.test:x/in",
    "//scripted.test\\.xn--80/in",
    "//@..xn--80",
    "file:///etc/passwd",
]


@pytest.mark.parametrize(
    ("answer", "kind", "names"),
    [
        (lambda get: get.answer(404, b"not here"), RemoteProtocolError, ["HTTP 404", "not here"]),
        (lambda get: get.answer(401), RemoteProtocolError, ["HTTP 401"]),
        (lambda get: get.answer(307, b"", {"location": "/x"}), RemoteProtocolError, ["HTTP 307"]),
        (lambda get: get.answer(200, b"<html>", {"content-type": "text/html"}), RemoteProtocolError, []),
        (saying(b"data: {}\n\n"), RemoteProtocolError, ["'message'", "'endpoint'"]),
        *((to(uri), RemoteProtocolError, ["URI"]) for uri in ("", "/a\ndata: /b", "/a b", "http://[::1")),
        *((to(uri), RemoteProtocolError, ["origin"]) for uri in ELSEWHERE),
        (to("/" + "a" * LIMIT), RemoteProtocolError, ["2000 bytes"]),
        (saying(b": hello\n\n"), RequestTimeout, ["`endpoint`", "10 seconds"]),
        (lambda get: None, RequestTimeout, ["`endpoint`", "10 seconds"]),
        (lambda get: (get.stream(), get.end()), Disconnected, ["stream"]),
        (lambda get: (get.stream(), get.break_off()), Disconnected, ["connection reset"]),
    ],
)
async def test_no_server_is_an_error_that_says_why(answer: Answer, kind: type[Exception], names: list[str]) -> None:
    with pytest.raises(kind, match=naming(*names)) as raised:
        async with talking(answer):
            raise AssertionError("it was opened")
    assert type(raised.value) is kind


@pytest.mark.trio(run=trio.run)
async def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    with trio.fail_after(SOON), pytest.raises(Disconnected, match=r"http://127\.0\.0\.1:1/sse: "):
        await connect_sse("http://127.0.0.1:1/sse").__aenter__()


# falling back


class SseServer:
    """The server's end of HTTP+SSE: streams that follow each other, and what is posted beside them."""

    def __init__(self, wire: HttpWire) -> None:
        self.wire = wire
        self.stream: Exchange

    async def open(self, status: int = 405, **members: Json) -> None:
        """Refuse `initialize` as a POST to the stream's URL, open a stream, and answer it there."""
        (await self.wire.post("initialize")).answer(status)
        self.stream = await self.wire.next("GET")
        saying()(self.stream)
        opening = await self.reply("initialize", {**initialized("2024-11-05"), **members})
        assert opening.url == "http://scripted.test/message?session_id=1"
        await self.accept("notifications/initialized")
        await wait_all_tasks_blocked()

    async def accept(self, method: str) -> Exchange:
        posted = await self.wire.post(method)
        posted.answer(202)
        return posted

    async def reply(self, method: str, result: Json) -> Exchange:
        posted = await self.accept(method)
        self.stream.say(event({"id": posted.message["id"], "result": result}))
        return posted


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_knows_no_post_is_asked_for_a_stream(status: int) -> None:
    async with http_conversation() as (client, wire, start):
        server = SseServer(wire)
        await server.open(status)
        listing = start(client.list_tools)
        await server.reply("tools/list", {"tools": []})
        assert await listing.result() == []
        assert client.protocol_version == "2024-11-05"
        wire.nothing()


async def test_a_request_that_reads_is_sent_again_on_the_next_stream() -> None:
    async with http_conversation() as (client, wire, start):
        server = SseServer(wire)
        await server.open()
        listing = start(client.list_tools)
        await server.accept("tools/list")
        server.stream.break_off()
        await server.open()
        await server.reply("tools/list", {"tools": []})
        assert await listing.result() == []


async def test_a_tool_whose_stream_ended_is_not_called_again_but_the_next_one_opens_another() -> None:
    async with http_conversation() as (client, wire, start):
        server = SseServer(wire)
        await server.open()
        call = start(client.call_tool, "book")
        await server.accept("tools/call")
        server.stream.break_off()
        await call.fails(OutcomeUnknown, "connection reset")
        wire.nothing()
        again = start(client.call_tool, "book")
        await server.open()
        await server.reply("tools/call", said("booked"))
        assert (await again.result()).text == "booked"


async def test_subscriptions_are_restored_on_the_next_stream_with_a_change_for_each() -> None:
    async with http_conversation() as (client, wire, _):
        server, seen = SseServer(wire), list[Change]()

        async def follow() -> None:
            async with client.listen(tools=True, uris=["config://app"]) as changes:
                async for change in changes:
                    seen.append(change)

        await server.open(capabilities=LISTENING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await server.reply("resources/subscribe", {})
            await wait_all_tasks_blocked()
            server.stream.end()
            # Without a request: who listens needs the session.
            await server.open(capabilities=LISTENING)
            await server.reply("resources/subscribe", {})
            await wait_all_tasks_blocked()
            assert seen == [Change("tools"), Change("updated", "config://app")]
            nursery.cancel_scope.cancel()
            await wire.reply("resources/unsubscribe", {})


async def test_a_server_that_is_gone_is_asked_again_when_a_request_needs_it() -> None:
    async with http_conversation() as (client, wire, start):
        server = SseServer(wire)
        await server.open()
        server.stream.break_off()
        await wait_all_tasks_blocked()
        wire.nothing()
        call = start(client.call_tool, "book")
        (await wire.post("initialize")).fail(httpx2.ConnectError("refused"))
        await call.fails(Unreachable, "refused")
        listing = start(client.list_tools)
        await server.open()
        await server.reply("tools/list", {"tools": []})
        assert await listing.result() == []


def refused(match: str) -> Any:
    return pytest.RaisesGroup(pytest.RaisesExc(McpError, match=match), flatten_subgroups=True)


async def test_without_a_stream_either_the_first_refusal_is_the_error() -> None:
    with refused("you are not welcome"):
        async with http_conversation() as (_, wire, _):
            (await wire.post("initialize")).refuse(400, -32600, "you are not welcome")
            (await wire.next("GET")).answer(405)


async def test_other_refusals_are_final() -> None:
    with refused(r"HTTP 401: who are you\?"):
        async with http_conversation() as (_, wire, _):
            (await wire.post("initialize")).answer(401, b"who are you?")
            await wait_all_tasks_blocked()
            wire.nothing()


# a real server


@pytest.mark.trio(run=trio.run)
async def test_headers_go_with_every_request() -> None:
    async def by_token(headers: Any) -> str | None:
        return "alice" if headers.get("authorization") == "Bearer a" else None

    options = {"announce": False, "signals": False, "authenticate": by_token, "limits": HttpLimits(sessions=1)}
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            (url,) = await nursery.start(partial(transport.serve, Server("strict"), port=0, **options))
            with pytest.raises(McpError, match="401"):
                await connect_sse(url).__aenter__()
            async with Client.connect(url, headers={"authorization": "Bearer a"}) as client:
                await client.ping()
            nursery.cancel_scope.cancel()
