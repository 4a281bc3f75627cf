"""Our HTTP client on the wire: methods, headers and bodies, refusals, and servers that answer in unusual ways."""

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
from listening_server import (
    JSON,
    STREAM,
    Heard,
    ListeningServer,
    Said,
    answered,
    events,
    listening,
    refused,
    streamed,
)

from trio_mcp import Client, Disconnected, PeerError
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.sse import SseDecoder, SseEvent
from trio_mcp.types import Root
from trio_mcp_transports.cookies import MAX_COOKIES
from trio_mcp_transports.httpx import LARGE_PIECE

# when a body is given up in the middle, httpx2 leaves an iterator inside it to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
BOTH_KINDS = {"application/json", "text/event-stream"}


@pytest.fixture(params=["legacy", MODERN])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


def posts(server: ListeningServer) -> list[Heard]:
    return [heard for heard in server.heard if heard.method == "POST"]


# every message


async def test_each_message_is_a_separate_post_that_takes_both_kinds_of_answer(mode: str) -> None:
    server = ListeningServer()
    async with listening(server) as url, Client.connect(url, mode=mode) as client:
        assert (await client.call_tool("book")).text == "fine"
    expected = ["initialize", "notifications/initialized"] if mode == "legacy" else ["server/discover"]
    assert [heard.asks for heard in posts(server)] == [*expected, "tools/call"]
    for heard in posts(server):
        assert set(heard.headers["accept"].replace(" ", "").split(",")) == BOTH_KINDS
        assert heard.headers["content-type"] == "application/json"
        assert heard.body["jsonrpc"] == "2.0"


async def test_cookies_are_sent_back_up_to_a_limit_but_none_that_a_header_cannot_have() -> None:
    given = iter(["a=1", "b=\xe9", f"c={'x' * 5000}", *(f"n{number}=1" for number in range(MAX_COOKIES)), "a=2", ""])

    def setting(heard: Heard) -> Said | None:
        return answered(heard, {"content": []}, {"set-cookie": next(given)}) if heard.asks == "tools/call" else None

    server = ListeningServer(setting)
    async with listening(server) as url, Client.connect(url, mode="legacy") as client:
        for _ in range(MAX_COOKIES + 5):
            await client.call_tool("book")
    sent = server.asked("tools/call")[-1].headers["cookie"].split("; ")
    assert sorted(sent) == sorted(["a=2", *(f"n{number}=1" for number in range(MAX_COOKIES - 1))])


async def test_an_answer_to_the_server_is_a_separate_post() -> None:
    question = {"id": "q", "method": "roots/list", "params": {}}

    def asking(heard: Heard) -> Said | None:
        if heard.asks != "tools/call":
            return None
        done = {"id": heard.body["id"], "result": {"content": []}}
        return streamed(question, done)

    server = ListeningServer(asking)
    async with listening(server) as url:
        async with Client.connect(url, mode="legacy", on_roots=lambda: [Root(uri="file:///a")]) as client:
            await client.call_tool("book")
            answer = await server.answer_to("q")
            assert answer.method == "POST"
    assert answer.body == {"jsonrpc": "2.0", "id": "q", "result": {"roots": [{"uri": "file:///a"}]}}
    assert answer.headers["mcp-session-id"] == "session-1"


# sessions (handshake era)


async def test_the_session_and_the_version_are_named_in_everything_after_initialize() -> None:
    server = ListeningServer()
    async with listening(server) as url, Client.connect(url, mode="legacy") as client:
        await client.call_tool("book")
    first, *others = server.heard
    assert first.asks == "initialize"
    assert "mcp-session-id" not in first.headers
    assert {"notifications/initialized", "tools/call"} <= {heard.asks for heard in others}
    for heard in others:
        assert (heard.headers["mcp-session-id"], heard.headers["mcp-protocol-version"]) == ("session-1", LEGACY)


async def test_no_session_is_named_that_the_server_did_not_give() -> None:
    server = ListeningServer(session_id=None)
    async with listening(server) as url, Client.connect(url, mode="legacy") as client:
        await client.call_tool("book")
    assert all("mcp-session-id" not in heard.headers for heard in server.heard)
    assert [heard.method for heard in server.heard].count("DELETE") == 0


@pytest.mark.parametrize("status", [200, 204, 405, 404, 500])
async def test_a_closed_client_deletes_its_session_whatever_the_server_says(status: int) -> None:
    server = ListeningServer(lambda heard: Said(status) if heard.method == "DELETE" else None)
    async with listening(server) as url:
        async with Client.connect(url, mode="legacy"):
            pass
    last = server.heard[-1]
    assert (last.method, last.headers["mcp-session-id"]) == ("DELETE", "session-1")


# the modern era


async def test_a_modern_request_repeats_itself_in_its_headers() -> None:
    server = ListeningServer()
    async with listening(server) as url, Client.connect(url, mode=MODERN) as client:
        await client.call_tool("book")
        await client.call_tool("Žižkov")
    first, plain, encoded = server.heard
    for heard in server.heard:
        assert heard.method == "POST"
        assert heard.headers["mcp-protocol-version"] == MODERN
        assert heard.headers["mcp-method"] == heard.asks
        assert "mcp-session-id" not in heard.headers
    assert "mcp-name" not in first.headers
    assert (plain.headers["mcp-name"], encoded.headers["mcp-name"]) == ("book", "=?base64?xb1pxb5rb3Y=?=")


async def test_a_cancelled_modern_request_is_closed_and_nothing_is_posted() -> None:
    def silent(heard: Heard) -> Said | None:
        token = heard.body.get("params", {}).get("_meta", {}).get("progressToken")
        report = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        return streamed(report, ending="unfinished") if heard.asks == "tools/call" else None

    server = ListeningServer(silent)
    async with listening(server) as url, Client.connect(url, mode=MODERN) as client:
        with trio.CancelScope() as scope:
            await client.call_tool("book", on_progress=lambda _report: scope.cancel())
        await server.gone.wait()
        assert scope.cancelled_caught
    assert [heard.asks for heard in server.heard] == ["server/discover", "tools/call"]


# what a refusal says of a server


@pytest.mark.parametrize(
    "refusal",
    [
        lambda _heard: Said(400),
        lambda _heard: Said(404),
        lambda _heard: Said(405),
        lambda _heard: Said(400, b"Bad Request: no session", {"content-type": "text/plain"}),
        lambda _heard: Said(400, b"<html>", {"content-type": "text/html"}),
        lambda heard: refused(heard, 400, -32000),
        lambda heard: refused(heard, 400, -32600),
        lambda heard: refused(heard, 200, -32601),
        lambda heard: refused(heard, 200, -32602),
    ],
    ids=["400", "404", "405", "text", "html", "-32000", "-32600", "-32601", "-32602"],
)
async def test_a_refusal_that_is_no_modern_error_means_the_handshake_era(refusal: object) -> None:
    server = ListeningServer(lambda heard: refusal(heard) if heard.asks == "server/discover" else None)  # type: ignore[operator]
    async with listening(server) as url, Client.connect(url) as client:
        assert client.protocol_version == LEGACY
        assert (await client.call_tool("book")).text == "fine"
    assert [heard.asks for heard in posts(server)][:2] == ["server/discover", "initialize"]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_refusal_with_a_modern_error_means_a_modern_server(code: int) -> None:
    server = ListeningServer(lambda heard: refused(heard, 400, code) if heard.asks == "server/discover" else None)
    async with listening(server) as url:
        with pytest.raises(PeerError, match=f"refused with {code}"):
            await Client.connect(url).open()
    assert server.asked("initialize") == []


@pytest.mark.parametrize(
    ("status", "code"), [(404, -32601), (400, -32020), (400, -32602), (503, -32000), (200, -32603)]
)
async def test_a_404_with_an_error_in_its_body_is_that_error(status: int, code: int) -> None:
    server = ListeningServer(lambda heard: refused(heard, status, code) if heard.asks == "tools/call" else None)
    async with listening(server) as url, Client.connect(url, mode=MODERN) as client:
        with pytest.raises(PeerError, match=f"refused with {code}") as raised:
            await client.call_tool("book")
        assert raised.value.code == code
    assert server.asked("initialize") == []


# servers that answer in unusual ways: a bad answer costs its call, and nothing else

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


@pytest.mark.parametrize(("answer", "problem"), BAD.values(), ids=BAD)
async def test_a_bad_answer_is_an_error_of_its_call_and_the_next_call_is_served(answer: Said, problem: str) -> None:
    async with connected(odd_server(lambda _id: answer)) as client:
        with pytest.raises((RemoteProtocolError, Disconnected), match=problem):
            await client.call_tool("odd")
        assert (await client.call_tool("book")).text == "fine"


NAMES_NO_REQUEST: dict[str, Callable[[int], dict[str, Any]]] = {
    "an error without an id": lambda _id: {"jsonrpc": "2.0", "error": {"code": -32603, "message": "lost"}},
    "an error of null": lambda _id: {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "lost"}},
    "a result without an id": lambda id: {"jsonrpc": "2.0", "result": text(id)["result"]},
    "text": lambda id: text(str(id)),
    "a fraction": lambda id: text(id + 0.5),
    "another id": lambda id: text(id + 1_000),
}


@pytest.mark.parametrize("answer", NAMES_NO_REQUEST.values(), ids=NAMES_NO_REQUEST)
@pytest.mark.parametrize("way", ["body", "a stream that ends", "a stream that stays open"])
async def test_a_call_whose_answer_does_not_name_it_fails(
    mode: str, way: str, answer: Callable[[int], dict[str, Any]]
) -> None:
    def odd(id: int) -> Said:
        if way == "body":
            return Said(200, json.dumps(answer(id)).encode(), JSON)
        return events(answer(id), ending="finished" if way.endswith("ends") else "unfinished")

    async with connected(odd_server(odd), mode) as client:
        with pytest.raises((RemoteProtocolError, PeerError, Disconnected)):
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


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "zstd", "gzip, identity"])
async def test_what_is_compressed_twice_or_in_another_way_is_an_error_of_its_call(coding: str) -> None:
    def squeezed(request_id: object) -> Said:
        body = gzip.compress(gzip.compress(events(text(request_id)).body))
        return Said(200, body, {**STREAM, "content-encoding": coding})

    async with connected(odd_server(squeezed)) as client:
        with pytest.raises((RemoteProtocolError, Disconnected), match="compressed"):
            await client.call_tool("odd")
        assert (await client.call_tool("book")).text == "fine"


async def test_other_tasks_run_between_the_pieces_of_what_was_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = 0, list[int]()

    class Noting(SseDecoder):
        def feed(self, data: bytes) -> list[SseEvent]:
            if len(data) > LARGE_PIECE:
                seen.append(turns)
            return super().feed(data)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def squeezed(request_id: object) -> Said:
        said = events(text(request_id))
        comments = (b":" + b"x" * 1000 + b"\n") * 4000
        return replace(said, body=gzip.compress(comments + said.body), headers={**STREAM, "content-encoding": "gzip"})

    monkeypatch.setattr("trio_mcp_transports.http.client.streams.SseDecoder", Noting)
    async with connected(odd_server(squeezed)) as client, trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        assert (await client.call_tool("odd")).text == "fine"
        nursery.cancel_scope.cancel()
    assert len(seen) > 2
    # Trio runs the tasks of a turn in any order.
    assert all(later > earlier for earlier, later in zip(seen, seen[2:], strict=False))


async def test_a_stream_that_ended_leaves_its_connection_to_the_next_request() -> None:
    server = odd_server(lambda id: events(text(id)))
    async with connected(server) as client:
        for _ in range(5):
            assert (await client.call_tool("odd")).text == "fine"
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert server.connections == 1


async def test_a_stream_that_stays_open_after_its_answer_blocks_no_request() -> None:
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
