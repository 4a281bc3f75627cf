"""Our HTTP client against servers that answer in ways of their own: a bad answer costs its call, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from listening_server import JSON, STREAM, Heard, ListeningServer, Said, events, listening

from trio_mcp import Client, Disconnected
from trio_mcp.errors import RemoteProtocolError

# when a body is given up in the middle, httpx2 leaves an iterator inside it to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

MAX_MESSAGE = 10_000
BATCHING = "2025-03-26"

Odd = Callable[[Any], Said]
"""From a request's id to the response."""


def text(request_id: object, said: str = "fine") -> dict[str, Any]:
    """The answer to a call."""
    content = {"content": [{"type": "text", "text": said}], "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": request_id, "result": content}


def odd_server(odd: Odd, *, answers: int = 202) -> ListeningServer:
    """A server that answers calls of the tool `odd` in its own way, and takes or refuses what answers its questions."""

    def answer(heard: Heard) -> Said | None:
        if isinstance(heard.body, dict) and heard.body.get("params", {}).get("name") == "odd":
            return odd(heard.body["id"])
        return Said(answers) if heard.method == "POST" and "result" in str(heard.body) else None

    return ListeningServer(answer)


@asynccontextmanager
async def connected(server: ListeningServer, mode: str = "2026-07-28", **options: Any) -> AsyncIterator[Client]:
    async with listening(server) as url:
        async with Client.connect(url, mode=mode, **{"max_message": MAX_MESSAGE, **options}) as client:
            yield client


BAD = {
    "event too long": (Said(200, b"data: " + b"x" * 2 * MAX_MESSAGE, STREAM), "max_event"),
    "event not UTF-8": (Said(200, b"data: \xff\n\n", STREAM), "UTF-8"),
    "no answer": (Said(200, b"data: {}\n", STREAM), "without an answer"),
    "body too long": (Said(200, b"x" * 2 * MAX_MESSAGE, JSON), str(MAX_MESSAGE)),
    "body not JSON": (Said(200, b"not json", JSON), "JSON"),
}


@pytest.mark.parametrize(("answer", "told"), BAD.values(), ids=BAD)
async def test_a_bad_answer_is_an_error_of_its_call_and_the_next_call_is_served(answer: Said, told: str) -> None:
    async with connected(odd_server(lambda _id: answer)) as client:
        with pytest.raises((RemoteProtocolError, Disconnected), match=told):
            await client.call_tool("odd")
        assert (await client.call_tool("book")).text == "fine"


async def test_a_message_of_any_size_below_the_limit_is_taken() -> None:
    async with connected(odd_server(lambda id: events(text(id, "x" * 5_000_000))), max_message=6_000_000) as client:
        assert (await client.call_tool("odd")).text == "x" * 5_000_000


async def test_a_compressed_stream_is_read() -> None:
    def squeezed(request_id: object) -> Said:
        said = events(text(request_id))
        return replace(said, body=gzip.compress(said.body), headers={**STREAM, "content-encoding": "gzip"})

    async with connected(odd_server(squeezed)) as client:
        assert (await client.call_tool("odd")).text == "fine"


async def test_a_stream_that_ended_leaves_its_connection_to_the_next_request() -> None:
    server = odd_server(lambda id: events(text(id)))
    async with connected(server) as client:
        for _ in range(5):
            assert (await client.call_tool("odd")).text == "fine"
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert server.connections == 1


async def test_a_stream_that_stays_open_after_its_answer_holds_nobody_up() -> None:
    server = odd_server(lambda id: events(text(id), ending="unfinished"))
    async with connected(server) as client:
        assert (await client.call_tool("odd")).text == "fine"
        assert (await client.call_tool("book")).text == "fine"
        await server.gone.wait()


PROGRESS = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}


async def test_a_cancelled_legacy_call_that_gets_no_answer_gives_its_connection_up() -> None:
    """A server need not answer what was cancelled, and may leave the stream of the call open."""
    server = odd_server(lambda _id: events(PROGRESS, ending="unfinished"))
    async with connected(server, "legacy") as client:
        with trio.CancelScope() as scope:
            await client.call_tool("odd", on_progress=lambda _report: scope.cancel())
        await server.gone.wait()
    assert len(server.asked("notifications/cancelled")) == 1


QUESTIONS = [{"jsonrpc": "2.0", "id": 77, "method": "roots/list"}, {"jsonrpc": "2.0", "id": 78, "method": "ping"}]


@pytest.mark.parametrize(("mode", "asked"), [("legacy", QUESTIONS[0]), (BATCHING, QUESTIONS)], ids=["one", "array"])
async def test_a_refused_answer_ends_the_call_that_asked(mode: str, asked: object) -> None:
    """As when a load balancer takes the answer to a process that does not know the session."""
    server = odd_server(lambda _id: events(asked, ending="unfinished"), answers=404)
    async with connected(server, mode, on_roots=list) as client:
        with pytest.raises(Disconnected, match="404"):
            await client.call_tool("odd")


@pytest.mark.parametrize(
    "answer",
    [
        lambda id: Said(200, json.dumps([text(id)]).encode(), JSON),
        lambda id: events([text(id)]),
        lambda id: events([PROGRESS, text(id)]),
        lambda id: events([PROGRESS], [], text(id)),
    ],
    ids=["body", "event", "with progress", "after an array of nothing"],
)
async def test_an_answer_in_an_array_is_taken_where_the_revision_has_batches(answer: Odd) -> None:
    async with connected(odd_server(answer), BATCHING) as client:
        assert client.protocol_version == BATCHING
        assert (await client.call_tool("odd")).text == "fine"
