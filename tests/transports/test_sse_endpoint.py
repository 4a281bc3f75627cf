"""HTTP+SSE of 2024-11-05 at the server: a stream is a session, and messages are posted to the URI it names. No sockets here."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
from asgi_peer import ALICE, BOB, AsgiPeer, Reply, by_token, initialize, legacy_call, served
from peer import ClientPeer, Json
from stage import Stage
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason
from trio_mcp_transports.http import HttpLimits, asgi_app

OLDEST = "2024-11-05"
BODY_LIMIT = 5000
JSON = {"host": "localhost:8000", "content-type": "application/json"}


class Connection(ClientPeer):
    """One session: its stream, and what is posted to it."""

    def __init__(self, peer: AsgiPeer, stream: Reply, uri: str, headers: Mapping[str, str]) -> None:
        super().__init__()
        self.peer = peer
        self.stream = stream
        self.uri = uri
        self.headers = headers
        self._received = 0

    def begin(self, message: object, headers: Mapping[str, str] | None = None, uri: str | None = None) -> Reply:
        path, _, query = (uri or self.uri).partition("?")
        named = {**JSON, **self.headers} if headers is None else dict(headers)
        return self.peer.start(message, named, path=path, query=query)

    async def post(self, message: object, headers: Mapping[str, str] | None = None, uri: str | None = None) -> Reply:
        return await self.begin(message, headers, uri).end()

    async def send(self, message: Json) -> None:
        """Post a message that is accepted with 202, and wait until nothing more happens by itself."""
        reply = await self.post({"jsonrpc": "2.0", **message})
        assert (reply.status, reply.body) == (202, b""), reply.body
        await wait_all_tasks_blocked()

    async def receive(self) -> Json:
        await wait_all_tasks_blocked()
        self._received += 1
        return self.said[self._received - 1]

    async def close(self) -> None:
        self.stream.gone.set()
        await wait_all_tasks_blocked()

    @property
    def said(self) -> list[Any]:
        """The messages on the stream, without its first event."""
        return [message_in(event) for event in self.events[1:]]

    @property
    def events(self) -> list[str]:
        whole = self.stream.body.decode().split("\n\n")
        return [event for event in whole if event and not event.startswith(":")]


def message_in(event: str) -> Any:
    kind, data = event.split("\n")
    assert kind == "event: message"
    return json.loads(data.removeprefix("data: "))


async def get(peer: AsgiPeer, headers: Mapping[str, str] | None = None, path: str = "/sse", root: str = "") -> Reply:
    named = {"host": "localhost:8000", "accept": "text/event-stream", **(headers or {})}
    reply = peer.start(b"", named, method="GET", path=path, root=root)
    await wait_all_tasks_blocked()
    return reply


async def connected(peer: AsgiPeer, headers: Mapping[str, str] | None = None, **where: str) -> Connection:
    stream = await get(peer, headers, **where)
    assert stream.status == 200, stream.body
    first = stream.body.decode().split("\n\n")[0]
    return Connection(peer, stream, first.removeprefix("event: endpoint\ndata: "), headers or {})


async def opened(peer: AsgiPeer, headers: Mapping[str, str] | None = None) -> Connection:
    """A connection whose handshake is over."""
    connection = await connected(peer, headers)
    await connection.initialize(OLDEST)
    return connection


@asynccontextmanager
async def serving(stage: Stage, **options: Any) -> AsyncIterator[AsgiPeer]:
    limits = HttpLimits(body=BODY_LIMIT, sessions=3, body_seconds=5)
    async with served(asgi_app(stage.server, **{"sse_path": "/sse", "limits": limits, **options})) as peer:
        yield peer


@pytest.fixture
async def peer(stage: Stage) -> AsyncIterator[AsgiPeer]:
    async with serving(stage) as peer:
        yield peer


@pytest.fixture
async def talk(peer: AsgiPeer) -> Connection:
    return await opened(peer)


# the main job


async def test_the_first_event_names_the_uri_to_post_to(peer: AsgiPeer) -> None:
    talk = await connected(peer)
    assert talk.stream.headers["content-type"] == "text/event-stream"
    assert talk.stream.headers["x-accel-buffering"] == "no"
    assert re.fullmatch(r"event: endpoint\ndata: /message\?session_id=[\w-]{32}", talk.events[0])
    assert len(talk.events) == 1


async def test_answers_are_message_events_of_the_stream(peer: AsgiPeer) -> None:
    talk = await connected(peer)
    assert (await talk.initialize(OLDEST))["protocolVersion"] == OLDEST
    assert await talk.text(await talk.call("echo", {"text": "hi\r\nthere"})) == "hi\r\nthere"


async def test_a_modern_request_needs_no_handshake_and_no_headers(peer: AsgiPeer) -> None:
    talk = await connected(peer)
    assert (await talk.result(await talk.leg("echo", {"text": "hi"})))["resultType"] == "complete"


async def test_the_uri_is_below_the_path_where_the_application_is_mounted(stage: Stage) -> None:
    async with serving(stage, sse_path="/events", message_path="/in") as peer:
        talk = await connected(peer, path="/events", root="/tools/")
        assert talk.uri.startswith("/tools/in?session_id=")


async def test_it_is_off_unless_asked_for(stage: Stage) -> None:
    async with serving(stage, sse_path=None) as peer:
        for method, path in (("GET", "/sse"), ("POST", "/message")):
            refused = await peer.post(b"", JSON, method=method, path=path)
            assert (refused.status, refused.json["error"]["message"]) == (
                404,
                "There is nothing here; the MCP endpoint is /mcp.",
            )


async def test_it_may_be_served_alone(stage: Stage) -> None:
    async with serving(stage, path=None) as peer:
        refused = await peer.post(initialize({}))
        assert (refused.status, "is /sse." in refused.json["error"]["message"]) == (404, True)
        await opened(peer)


async def test_it_stands_beside_streamable_http(stage: Stage, peer: AsgiPeer, talk: Connection) -> None:
    session = await peer.open_session()
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), session)).status == 200
    stolen = {**session, "mcp-session-id": talk.uri.partition("=")[2]}
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), stolen)).status == 404


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"path": None, "sse_path": None}, "nothing would be served"),
        ({"sse_path": "/mcp"}, "must differ"),
        ({"sse_path": "/message"}, "must differ"),
        ({"sse_path": "sse"}, "is no path"),
        ({"sse_path": "/sse", "message_path": "/in?x=1"}, "is no path"),
        ({"sse_path": "/sse", "message_path": "/in\nevent: x"}, "is no path"),
        ({"sse_path": "/sse", "message_path": "/%2e"}, "is no path"),
        ({"path": ""}, "is no path"),
    ],
)
def test_paths_that_cannot_be_served_are_refused_where_they_are_written(
    stage: Stage, paths: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        asgi_app(stage.server, **paths)


# the end


async def test_the_end_of_the_stream_cancels_everything_and_forgets_the_session(stage: Stage, talk: Connection) -> None:
    await talk.call("wait")
    assert stage.waiting == 1
    began = trio.current_time()
    await talk.close()
    assert (stage.waiting, stage.reason, trio.current_time() - began) == (0, CancelReason.DISCONNECT, 0)
    refused = await talk.post(legacy_call("echo", {"text": "hi"}))
    assert (refused.status, "unknown or has ended" in refused.json["error"]["message"]) == (404, True)


async def test_a_drain_lets_calls_end_refuses_new_streams_and_ends_those_that_are_open(
    stage: Stage, peer: AsgiPeer, talk: Connection
) -> None:
    call = await talk.call("wait")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.app.drain, 10)
        await wait_all_tasks_blocked()
        refused = await get(peer)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await talk.error(await talk.call("echo", {"text": "late"})))["code"] == -32000
        stage.go_on.set()
    await talk.stream.end()
    assert await talk.text(call) == "waited"


async def test_a_silent_stream_is_kept_alive_and_an_unused_one_ends(peer: AsgiPeer) -> None:
    used, unused = await opened(peer), await connected(peer)
    await trio.sleep(50)
    assert unused.stream.body.count(b": still here\n\n") == 3
    assert not unused.stream.ended.is_set()
    await trio.sleep(3600)
    assert unused.stream.ended.is_set()
    assert not used.stream.ended.is_set()
    assert (await unused.post(initialize({}))).status == 404
    assert await used.text(await used.call("echo", {"text": "still here"})) == "still here"


async def test_a_send_that_fails_ends_the_session(stage: Stage, talk: Connection) -> None:
    await talk.call("wait")
    talk.stream.broken = True
    await talk.post(legacy_call("echo", {"text": "x"}))
    await wait_all_tasks_blocked()
    assert stage.reason is CancelReason.DISCONNECT


# what bad input gets


async def test_what_no_client_gets_is_refused(peer: AsgiPeer) -> None:
    for headers, status in (
        ({"accept": "application/json"}, 406),
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
    ):
        assert (await get(peer, headers)).status == status
    for method in ("POST", "DELETE", "PUT", "HEAD"):
        refused = await peer.post(initialize({}), JSON, method=method, path="/sse")
        assert (refused.status, refused.headers["allow"]) == (405, "GET")
    refused = await get(peer, path="/message")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b'{"jsonrpc": "1.0", "id": 5, "method": "ping"}', {}, 400),
        (b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "id": 6}', {}, 400),
        (b" " * (BODY_LIMIT + 1), {}, 413),
        (b"{}", {"content-length": "10000000000"}, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (b"{}", {"origin": "https://evil.example"}, 403),
        (b"{}", {"host": "evil.example"}, 421),
    ],
)
async def test_an_invalid_message_is_rejected_and_the_session_continues(
    talk: Connection, body: bytes, headers: dict[str, str], status: int
) -> None:
    before = talk.said
    refused = await talk.post(body, {**JSON, **headers})
    assert (refused.status, "error" in refused.json) == (status, True)
    assert talk.said == before
    assert await talk.text(await talk.call("echo", {"text": "hi"})) == "hi"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("?sessionid=x", 400),
        ("?session_id=", 400),
        ("?session_id=x&session_id=y", 400),
        ("?" + "&".join(f"session_id={number}" for number in range(100)), 400),
        ("?session_id=%ff", 404),
        ("?session_id=made-up", 404),
    ],
)
async def test_a_uri_that_names_no_session_is_refused_before_the_body_is_read(
    peer: AsgiPeer, query: str, status: int
) -> None:
    talk = await connected(peer)
    refused = await talk.post(b" " * (BODY_LIMIT + 1), uri="/message" + query)
    assert refused.status == status


async def test_streams_are_counted_and_one_too_many_is_refused(peer: AsgiPeer) -> None:
    talks = [await connected(peer) for _ in range(3)]
    refused = await get(peer)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "HttpLimits.sessions" in refused.json["error"]["message"]
    await talks[0].close()
    await opened(peer)


# slow readers


FLOOD = {"name": "flood", "_meta": {"progressToken": "t"}}


@contextmanager
def stuck(stream: Reply) -> Iterator[trio.Event]:
    """A client that reads no more until the event is set, or the block is left."""
    stream.stuck = trio.Event()
    try:
        yield stream.stuck
    finally:
        stream.stuck.set()


async def test_a_reader_that_is_stuck_holds_up_its_own_calls_and_no_others(peer: AsgiPeer) -> None:
    talk, other = await opened(peer), await opened(peer)
    with stuck(talk.stream):
        flood = await talk.request("tools/call", FLOOD)
        began = trio.current_time()
        waiting = talk.begin(legacy_call("echo", {"text": "hi"}, id="late"))
        with trio.fail_after(11):
            await waiting.ended.wait()
        assert (waiting.status, waiting.json["id"], trio.current_time() - began) == (503, "late", 10)
        assert "read them first" in waiting.json["error"]["message"]
        assert await other.text(await other.call("echo", {"text": "quick"})) == "quick"
        await talk.cancel(flood)
    await wait_all_tasks_blocked()
    assert [each for each in talk.said if each.get("id") == flood] == []
    await talk.call("echo", {"text": "again"})


async def test_a_request_that_waits_for_room_is_taken_when_there_is_some(talk: Connection) -> None:
    with stuck(talk.stream):
        flood = await talk.request("tools/call", FLOOD)
        waiting = talk.begin(legacy_call("echo", {"text": "hi"}, id="late"))
        await wait_all_tasks_blocked()
        assert not waiting.ended.is_set()
    assert (await waiting.end()).status == 202
    await wait_all_tasks_blocked()
    assert [each["params"]["progress"] for each in talk.said if "method" in each] == list(range(1, 1001))
    assert {flood, "late"} < {each.get("id") for each in talk.said}


async def test_a_request_that_waits_for_room_in_a_session_that_ends_is_refused(talk: Connection) -> None:
    with stuck(talk.stream):
        await talk.request("tools/call", FLOOD)
        waiting = talk.begin(legacy_call("echo", {"text": "hi"}, id="late"))
        await wait_all_tasks_blocked()
        talk.stream.broken = True
    assert (await waiting.end()).status == 404


# principals


async def test_a_session_belongs_to_the_principal_that_opened_it(stage: Stage) -> None:
    async with serving(stage, authenticate=by_token) as peer:
        assert (await get(peer)).status == 401
        talk = await opened(peer, ALICE)
        made_up = await talk.post(b"{}", {**JSON, **BOB}, uri="/message?session_id=made-up")
        theirs = await talk.post(b"{}", {**JSON, **BOB})
        assert (theirs.status, theirs.body) == (made_up.status, made_up.body)
        assert theirs.status == 404
        assert (await talk.post(b"{}", JSON)).status == 401
        assert (await talk.post(legacy_call("whoami"), {**JSON, **ALICE, "x-color": "red"})).status == 202
        await wait_all_tasks_blocked()
        assert await talk.text(2) == "alice red"


async def test_the_streams_of_one_principal_are_limited_and_the_rest_is_for_others(stage: Stage) -> None:
    async with serving(stage, authenticate=by_token, limits=HttpLimits(per_principal=1)) as peer:
        held = await connected(peer, ALICE)
        second = await get(peer, ALICE)
        assert second.status == 503
        assert "HttpLimits.per_principal" in second.json["error"]["message"]
        await connected(peer, BOB)
        await held.close()
        await connected(peer, ALICE)


async def test_a_token_that_expires_is_refused_at_once_and_ends_the_stream_soon(stage: Stage) -> None:
    tokens = {"Bearer alice": "alice"}

    async def known(headers: Mapping[str, str]) -> str | None:
        return tokens.get(headers.get("authorization", ""))

    async with serving(stage, authenticate=known, limits=HttpLimits(recheck_seconds=60)) as peer:
        talk = await opened(peer, ALICE)
        await talk.call("wait")
        await trio.sleep(1000)
        tokens.clear()
        assert (await talk.post(legacy_call("whoami"))).status == 401
        assert (stage.waiting, talk.stream.ended.is_set()) == (1, False)
        await trio.sleep(61)
        assert (stage.reason, talk.stream.ended.is_set()) == (CancelReason.DISCONNECT, True)
        tokens["Bearer alice"] = "alice"
        assert (await talk.post(legacy_call("whoami"))).status == 404


async def test_a_stream_ends_when_its_token_is_somebody_elses_now(stage: Stage) -> None:
    names = ["alice"]

    async def known(_headers: Mapping[str, str]) -> str | None:
        return names[0]

    async with serving(stage, authenticate=known) as peer:
        talk = await opened(peer, ALICE)
        names[0] = "bob"
        await trio.sleep(61)
        assert talk.stream.ended.is_set()
