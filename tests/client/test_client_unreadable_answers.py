"""A call whose answer cannot be read fails, and says why; it never waits for an answer that was dropped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from ends import LineEnd
from trio.testing import memory_stream_pair
from wire_terms import NEWEST_LEGACY

from trio_mcp.client import Client, ClientOptions
from trio_mcp.errors import PeerError, RemoteProtocolError
from trio_mcp.types import Implementation

INFO = Implementation(name="t", version="1")
LIMIT = 5_000
VALUES = 1_000
HANDSHAKE = {
    "protocolVersion": NEWEST_LEGACY,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"},
}


RESULTS: dict[str, object] = {"initialize": HANDSHAKE, "ping": {}}


async def serve(stream: trio.abc.Stream, on_request: Callable[[int], Awaitable[None]]) -> None:
    """Answer `initialize` and `ping`, and hand the id of each other request on."""
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in filter(None, lines):
            message = json.loads(line)
            if message["method"] in RESULTS:
                result = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}
                await stream.send_all(json.dumps(result).encode() + b"\n")
            elif "id" in message:
                await on_request(message["id"])


@asynccontextmanager
async def client_of(answer: bytes) -> AsyncIterator[Client]:
    """A client whose server answers with these bytes, in which `%d` stands for the id."""
    ours, theirs = memory_stream_pair()

    async def respond(id: int) -> None:
        await theirs.send_all(answer % id + b"\n")

    async with stdio_client(ours, theirs, respond) as client:
        yield client


@asynccontextmanager
async def stdio_client(
    ours: trio.StapledStream, theirs: trio.abc.Stream, on_request: Callable[[int], Awaitable[None]]
) -> AsyncIterator[Client]:

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineEnd]:
        channel = LineEnd(ours, max_line=LIMIT, max_values=VALUES)
        yield channel
        await channel.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs, on_request)
        async with Client(connect(), ClientOptions(mode=NEWEST_LEGACY, info=INFO)) as client:
            yield client
        nursery.cancel_scope.cancel()


BIG = b"x" * LIMIT


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (b'{"jsonrpc":"2.0","id":%%d,"result":{"content":[{"type":"text","text":"%b"}]}}' % BIG, "max_line"),
        (b'{"result":{"content":[{"type":"text","text":"%b"}]},"jsonrpc":"2.0","id":%%d}' % BIG, "max_line"),
        (b'{"jsonrpc":"2.0","id":%%d,"result":{"content":[%b1]}}' % (b"1," * VALUES), "max_values"),
        (b'{"result":{"content":%b%b},"jsonrpc":"2.0","id":%%d}' % (b"[" * 99, b"]" * 99), "max_depth"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"a":NaN},"content":[]}}', "NaN"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"content":[', "JSON"),
        (b'[{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}]', "batches"),
        (b'{"jsonrpc":"2.0","id":%d}', "result"),
        (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","result":{"content":[]}}', "method"),
        (b'{"jsonrpc":"2.0","id":%d,\n"result":{"content":[]}}', "JSON"),
        (b'{"jsonrpc":"2.0","id":"%d","result":{"content":[]}}', "id"),
        (b'{"jsonrpc":"2.0","id":"\\u003%d","result":{"content":[]}}', "id"),
        (b'{"jsonrpc":"2.0","id":null,"result":{"content":[],"of":%d}}', "id"),
        (b'{"jsonrpc":"2.0","result":{"content":[],"of":%d}}', "id"),
        (b'{"jsonrpc":"2.0","id":99%d,"result":{"content":[]}}', "id"),
    ],
    ids=[
        "over the limit",
        "over the limit, id last",
        "values",
        "depth",
        "NaN",
        "cut short",
        "in a batch",
        "without a result",
        "with a method",
        "in two lines",
        "an id as text",
        "an id as escaped text",
        "an id of null",
        "no id",
        "another id",
    ],
)
async def test_an_unreadable_answer_fails_its_call(answer: bytes, names: str) -> None:
    async with client_of(answer) as client:
        await client.ping()
        with trio.fail_after(60), pytest.raises(RemoteProtocolError, match=names):
            await client.call_tool("picture")


@pytest.mark.parametrize("id", [b"", b'"id":null,', b'"id":"server-error",'])
@pytest.mark.parametrize("code", [-32700, -32600, -32602, -32603, -32000])
async def test_the_one_open_call_fails_with_an_error_whose_server_could_not_read_its_id(code: int, id: bytes) -> None:
    answer = b'{"jsonrpc":"2.0",%%b"error":{"code":%d,"message":"too deep","data":%%%%d}}' % code % id
    async with client_of(answer) as client:
        with trio.fail_after(60), pytest.raises(PeerError, match="too deep"):
            await client.call_tool("picture")


class Server:
    """Says what the test wants it to say."""

    def __init__(self) -> None:
        self._ours, self._stream = memory_stream_pair()
        self._sends, self.requests = trio.open_memory_channel[int](9)
        self.ended: list[tuple[str, str]] = []
        self.ids: dict[str, int] = {}

    @asynccontextmanager
    async def client(self, *calls: str) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
        """Open a client that makes these calls; yields what makes one more. Leaving the block waits for all of them."""
        with trio.fail_after(60):
            async with (
                stdio_client(self._ours, self._stream, self._sends.send) as client,
                trio.open_nursery() as nursery,
            ):

                async def begin(name: str) -> None:
                    nursery.start_soon(self._call, client, name)
                    self.ids[name] = await self.requests.receive()

                for name in calls:
                    await begin(name)
                yield begin

    async def _call(self, client: Client, name: str) -> None:
        try:
            await client.call_tool(name)
            self.ended.append((name, "answered"))
        except (PeerError, RemoteProtocolError):
            self.ended.append((name, "failed"))

    async def say(self, line: bytes) -> None:
        await self._stream.send_all(line + b"\n")
        await trio.testing.wait_all_tasks_blocked()

    async def answer(self, name: str) -> None:
        await self.say(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % self.ids[name])


UNKNOWN_METHOD = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}'
ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"lost"}}'
NO_ID = b'{"jsonrpc":"2.0","result":{"content":[]}}'
OTHER_ID = b'{"jsonrpc":"2.0","id":"x","result":{"content":[]}}'


@pytest.mark.parametrize("lost", [ERROR, OTHER_ID], ids=["an error without an id", "another id"])
async def test_the_call_that_is_left_when_the_others_are_answered_fails_with_what_named_no_call(lost: bytes) -> None:
    server = Server()
    async with server.client("a", "b", "c"):
        await server.say(lost)
        assert server.ended == []
        await server.answer("b")
        assert server.ended == [("b", "answered")]
        await server.answer("a")
    assert sorted(server.ended) == [("a", "answered"), ("b", "answered"), ("c", "failed")]


async def test_as_many_calls_fail_as_answers_named_no_call() -> None:
    server = Server()
    async with server.client("a", "b", "c"):
        await server.say(ERROR)
        await server.say(OTHER_ID)
        await server.answer("c")
    assert sorted(server.ended) == [("a", "failed"), ("b", "failed"), ("c", "answered")]


async def test_a_call_that_is_made_after_what_named_no_call_is_not_failed_by_it() -> None:
    server = Server()
    async with server.client("a", "b") as begin:
        await server.say(ERROR)
        await begin("later")
        await server.answer("a")
        assert sorted(server.ended) == [("a", "answered"), ("b", "failed")]
        await server.answer("later")
    assert server.ended[-1] == ("later", "answered")


@pytest.mark.parametrize("said", [UNKNOWN_METHOD, NO_ID], ids=["unknown method", "a result"])
async def test_what_a_server_says_to_a_notification_fails_no_call(said: bytes) -> None:
    server = Server()
    async with server.client("first"):
        await server.say(said)  # to notifications/initialized
        assert server.ended == []
        await server.answer("first")
    assert server.ended == [("first", "answered")]
