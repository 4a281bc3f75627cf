"""Our HTTP client against servers that answer in ways of their own: a bad answer costs its call, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trio_mcp import Client, Disconnected
from trio_mcp.errors import RemoteProtocolError

# when a body is given up in the middle, httpx2 leaves an iterator inside it to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

LIMIT = 10.0
MAX_MESSAGE = 10_000

Answer = Callable[[int], tuple[str, list[bytes]]]
"""From a request's id to more header lines, and the pieces of a chunked body."""


def said(request_id: int, text: str) -> bytes:
    content = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": content}).encode()


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class OddServer:
    """Answers `tools/call` of a name with the bytes that were given for it."""

    def __init__(self, **answers: Answer) -> None:
        self.connections = 0
        self.left = trio.Event()
        self.told: list[str] = []
        self.mute = False
        self.version = "2025-11-25"
        self.answered: list[Any] = []
        self.takes_answers = False
        self._answers = answers

    async def __call__(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        received = b""
        try:
            while b"\r\n\r\n" in received or (chunk := await stream.receive_some()):
                received += b"" if b"\r\n\r\n" in received else chunk
                head, separator, rest = received.partition(b"\r\n\r\n")
                if separator:
                    received = await self._serve(stream, head, rest)
        except trio.BrokenResourceError:
            pass
        finally:
            self.left.set()

    async def _serve(self, stream: trio.SocketStream, head: bytes, rest: bytes) -> bytes:
        """Answer one request; returns what was read beyond it."""
        [length] = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")]
        while len(rest) < length:
            rest += await stream.receive_some()
        request = json.loads(rest[:length])
        if "method" not in request:
            self.answered.append(request)
            if self.takes_answers:
                await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
                return rest[length:]
            await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return rest[length:]
        headers, pieces = self._answer(request)
        answer = f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{headers}\r\n\r\n".encode()
        for piece in pieces:
            answer += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
        await stream.send_all(answer)
        return rest[length:]

    def _answer(self, request: dict) -> tuple[str, list[bytes]]:
        if request["method"] == "server/discover":
            result = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            }
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
            return "content-type: application/json", [body, b""]
        if request["method"] == "initialize":
            hello = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": hello}).encode()
            return "content-type: application/json", [body, b""]
        if "id" not in request:
            if self.mute:
                return "content-type: text/plain", []
            self.told.append(request["method"])
            return "content-type: text/plain", [b""]
        return self._answers[request["params"]["name"]](request["id"])


def stream_of(*pieces: bytes) -> tuple[str, list[bytes]]:
    return "content-type: text/event-stream", [*pieces, b""]


@asynccontextmanager
async def connected(
    server: OddServer, *, mode: str = "2026-07-28", max_message: int = MAX_MESSAGE, **options: object
) -> AsyncIterator[Client]:
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, server, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            async with Client.connect(url, mode=mode, max_message=max_message, **options) as client:
                yield client
            nursery.cancel_scope.cancel()


def fine(request_id: int) -> tuple[str, list[bytes]]:
    return stream_of(event(said(request_id, "fine")))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _id: stream_of(b"data: " + b"x" * 2 * MAX_MESSAGE), "max_event"),
        (lambda _id: stream_of(b"data: \xff\n\n"), "UTF-8"),
        (lambda _id: stream_of(event(b"{}")[:-1]), "without an answer"),
        (lambda _id: ("content-type: application/json", [b"x" * 2 * MAX_MESSAGE, b""]), str(MAX_MESSAGE)),
        (lambda _id: ("content-type: application/json", [b"not json", b""]), "JSON"),
    ],
    ids=["event too long", "event not UTF-8", "no answer", "body too long", "body not JSON"],
)
async def test_a_bad_answer_is_an_error_of_its_call_and_the_next_call_is_served(answer: Answer, told: str) -> None:
    async with connected(OddServer(bad=answer, fine=fine)) as client:
        with pytest.raises((RemoteProtocolError, Disconnected), match=told):
            await client.call_tool("bad")
        assert (await client.call_tool("fine")).text == "fine"


async def test_a_message_of_any_size_below_the_limit_is_taken() -> None:
    text = "x" * 5_000_000

    def big(request_id: int) -> tuple[str, list[bytes]]:
        return stream_of(event(said(request_id, text)))

    async with connected(OddServer(big=big), max_message=6_000_000) as client:
        assert (await client.call_tool("big")).text == text


async def test_a_compressed_stream_is_read() -> None:
    def squeezed(request_id: int) -> tuple[str, list[bytes]]:
        headers, _ = stream_of()
        body = gzip.compress(event(said(request_id, "small")))
        return f"{headers}\r\ncontent-encoding: gzip", [body[:10], body[10:], b""]

    async with connected(OddServer(squeezed=squeezed)) as client:
        assert (await client.call_tool("squeezed")).text == "small"


async def test_a_stream_that_ended_leaves_its_connection_to_the_next_request() -> None:
    server = OddServer(fine=fine)
    async with connected(server) as client:
        for _ in range(5):
            assert (await client.call_tool("fine")).text == "fine"
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert server.connections == 1


async def test_a_stream_that_stays_open_after_its_answer_holds_nobody_up() -> None:
    def lingering(request_id: int) -> tuple[str, list[bytes]]:
        headers, _ = stream_of()
        return headers, [event(said(request_id, "here"))]

    server = OddServer(lingering=lingering, fine=fine)
    async with connected(server) as client:
        assert (await client.call_tool("lingering")).text == "here"
        assert (await client.call_tool("fine")).text == "fine"
        await server.left.wait()


async def test_a_cancelled_legacy_call_that_gets_no_answer_gives_its_connection_up() -> None:
    """A server need not answer what was cancelled, and may leave the stream of the call open."""

    def silent(_request_id: int) -> tuple[str, list[bytes]]:
        headers, _ = stream_of()
        return headers, [
            event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}')
        ]

    server = OddServer(silent=silent)
    async with connected(server, mode="legacy") as client:
        with trio.CancelScope() as scope:
            await client.call_tool("silent", on_progress=lambda _report: scope.cancel())
        await server.left.wait()
    assert server.told == ["notifications/initialized", "notifications/cancelled"]


async def test_a_server_that_does_not_accept_a_notification_holds_nobody_up_for_long() -> None:
    server = OddServer(fine=fine)
    server.mute = True
    async with connected(server, mode="legacy", post_timeout=0.2) as client:
        assert (await client.call_tool("fine")).text == "fine"


async def test_a_refused_answer_ends_the_call_that_asked() -> None:
    """As when a load balancer takes the answer to a process that does not know the session."""

    def asking(_request_id: int) -> tuple[str, list[bytes]]:
        headers, _ = stream_of()
        question = b'{"jsonrpc":"2.0","id":77,"method":"roots/list","params":{}}'
        return headers, [event(question)]

    server = OddServer(asking=asking)
    async with connected(server, mode="legacy", on_roots=list) as client:
        with pytest.raises(Disconnected, match="404"):
            await client.call_tool("asking")


# batches


PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}'
QUESTIONS = b'[{"jsonrpc":"2.0","id":77,"method":"roots/list"},{"jsonrpc":"2.0","id":78,"method":"ping"}]'


def array(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def batching(**answers: Answer) -> OddServer:
    server = OddServer(**answers)
    server.version = "2025-03-26"
    return server


@pytest.mark.parametrize(
    "answer",
    [
        lambda id: ("content-type: application/json", [array(said(id, "fine")), b""]),
        lambda id: stream_of(event(array(said(id, "fine")))),
        lambda id: stream_of(event(array(PROGRESS, said(id, "fine")))),
        lambda id: stream_of(event(array(PROGRESS)), event(b"[]"), event(said(id, "fine"))),
    ],
    ids=["body", "event", "with progress", "after an array of nothing"],
)
async def test_an_answer_in_an_array_is_taken_where_the_revision_has_batches(answer: Answer) -> None:
    async with connected(batching(call=answer), mode="legacy") as client:
        assert client.protocol_version == "2025-03-26"
        assert (await client.call_tool("call")).text == "fine"


async def test_a_refused_array_of_answers_ends_the_call_that_asked() -> None:
    server = batching(asking=lambda _id: (stream_of()[0], [event(QUESTIONS)]))
    async with connected(server, mode="legacy", on_roots=list) as client:
        with pytest.raises(Disconnected, match="404"):
            await client.call_tool("asking")
