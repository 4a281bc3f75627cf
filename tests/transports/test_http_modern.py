"""The modern era over HTTP: headers that repeat the body, streams without event ids, and `subscriptions/listen`."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, legacy_call, modern_call, modern_request, served
from stage import Stage
from wire_terms import MODERN

from trio_mcp import Context, Mirrored, Server
from trio_mcp.errors import ProtocolError
from trio_mcp.session import MessageFacts, ServerSession
from trio_mcp.session.channel import TURN
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.http.server import entrance

ID = "io.modelcontextprotocol/subscriptionId"


def listen(peer: AsgiPeer, **wanted: Any) -> Reply:
    return peer.start(*modern_request("subscriptions/listen", {"notifications": wanted}, id="ear"))


# headers and metadata


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("mcp-method", "tools/list"),
        ("mcp-method", None),
        ("mcp-method", "Tools/Call"),
        ("mcp-name", "ask"),
        ("mcp-name", None),
        ("mcp-name", "=?base64?!!?="),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-protocol-version", None),
    ],
)
async def test_a_header_that_differs_from_the_body_is_refused(peer: AsgiPeer, header: str, value: str | None) -> None:
    body, headers = modern_call("echo", {"text": "x"})
    headers.pop(header)
    reply = await peer.post(body, headers if value is None else {**headers, header: value})
    assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (400, -32020, 2)
    assert header in reply.json["error"]["message"]
    assert peer.app.service.supervisor.statistics().started == 0


@pytest.mark.parametrize("value", ["=?base64?ZWNobw==?=", " echo ", "echo"])
async def test_a_header_may_be_encoded_or_padded(peer: AsgiPeer, value: str) -> None:
    assert (await peer.post(*modern_call("echo", {"text": "x"}, headers={"mcp-name": value}))).status == 200


@pytest.mark.parametrize(("size", "has_turn"), [(100, False), (TURN, True)])
async def test_others_have_a_turn_between_the_parsing_and_the_validation_of_a_large_message(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, size: int, has_turn: bool
) -> None:
    events: list[str] = []

    def parsed(*args: Any) -> Any:
        events.append("parsed")
        return parse(*args)

    def received(self: ServerSession, *args: Any, **options: Any) -> Any:
        events.append("received")
        return receive(self, *args, **options)

    async def bystander() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            events.append("turn")

    parse, receive = entrance.parse, ServerSession.receive
    monkeypatch.setattr(entrance, "parse", parsed)
    monkeypatch.setattr(ServerSession, "receive", received)
    async with served(asgi_app(stage.server)) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        assert (await peer.post(*modern_call("echo", {"text": "x" * size}))).status == 200
        nursery.cancel_scope.cancel()
    between = events[events.index("parsed") + 1 : events.index("received")]
    assert ("turn" in between) is has_turn


async def test_a_modern_header_without_modern_metadata_is_400_and_says_what_is_missing(peer: AsgiPeer) -> None:
    _, headers = modern_call("echo")
    reply = await peer.post(legacy_call("echo", {"text": "x"}), headers)
    assert (reply.status, reply.json["error"]["code"]) == (400, -32602)
    assert "io.modelcontextprotocol/protocolVersion" in reply.json["error"]["message"]


async def test_missing_capabilities_in_the_metadata_are_400(peer: AsgiPeer) -> None:
    body, headers = modern_call("echo", {"text": "x"})
    del body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    reply = await peer.post(body, headers)
    assert (reply.status, reply.json["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25"])
async def test_a_version_that_needs_no_handshake_is_not_every_version(peer: AsgiPeer, version: str) -> None:
    body, headers = modern_call("echo", {"text": "x"}, meta={"io.modelcontextprotocol/protocolVersion": version})
    reply = await peer.post(body, {**headers, "mcp-protocol-version": version})
    assert (reply.status, reply.json["error"]["code"]) == (400, -32022)
    assert reply.json["error"]["data"]["requested"] == version
    assert MODERN in reply.json["error"]["data"]["supported"]


@pytest.mark.parametrize("method", ["ping", "initialize", "resources/subscribe", "nope"])
async def test_a_method_that_the_revision_lacks_is_404(peer: AsgiPeer, method: str) -> None:
    body, headers = modern_call("echo")
    body["method"] = method
    reply = await peer.post(body, {**headers, "mcp-method": method})
    assert (reply.status, reply.json["error"]["code"]) == (404, -32601)


async def test_a_question_the_client_cannot_answer_is_400_and_names_the_capability(peer: AsgiPeer) -> None:
    reply = await peer.post(*modern_call("ask", meta={"io.modelcontextprotocol/clientCapabilities": {}}))
    assert (reply.status, reply.json["error"]["code"]) == (400, -32021)
    assert reply.json["error"]["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


async def test_a_modern_client_sends_no_responses(peer: AsgiPeer) -> None:
    _, headers = modern_call("echo")
    assert (await peer.post({"jsonrpc": "2.0", "id": 1, "result": {}}, headers)).status == 400


# streams


async def test_a_modern_stream_has_no_event_ids_and_ends_with_its_answer(peer: AsgiPeer) -> None:
    reply = await peer.post(*modern_call("report", meta={"progressToken": "t"}))
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    fields = {line.partition(":")[0] for line in reply.body.decode().splitlines() if line}
    assert fields == {"event", "data"}
    assert [event.get("id") for event in reply.events] == [None, None, 2]


async def test_a_last_event_id_means_nothing_to_a_modern_request(peer: AsgiPeer) -> None:
    body, headers = modern_call("echo", {"text": "hi"})
    plain = await peer.post(body, headers)
    reply = await peer.post(body, {**headers, "last-event-id": "1-1"})
    assert (reply.status, reply.body) == (200, plain.body)


@pytest.mark.parametrize("rejects", [None, ValueError("no"), ProtocolError("no")])
async def test_message_middleware_sees_a_modern_notification_which_has_no_effect(rejects: Exception | None) -> None:
    seen: list[tuple[str, bool, str | None]] = []

    def watch(message: MessageFacts) -> None:
        seen.append((message.method, message.id is None, message.peer.headers.get("mcp-method")))
        if rejects is not None and message.id is None:
            raise rejects

    server = Server("tester", message_middleware=[watch])

    @server.tool
    async def nothing() -> str:
        return "done"

    method = "notifications/cancelled"
    headers = {**JSON_HEADERS, "mcp-protocol-version": MODERN, "mcp-method": method}
    async with served(asgi_app(server)) as peer:
        for params in ({"requestId": 1}, {"requestId": []}):
            reply = await peer.post({"jsonrpc": "2.0", "method": method, "params": params}, headers)
            assert (reply.status, reply.body) == (202, b"")
        assert (await peer.post({"jsonrpc": "2.0", "method": "notifications/unknown"}, headers)).status == 202
        assert (await peer.post(*modern_call("nothing"))).status == 200
    assert seen == [(method, True, method), ("tools/call", False, "tools/call")]


async def test_a_modern_notification_is_taken_with_202_or_refused(peer: AsgiPeer) -> None:
    notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    headers = {**JSON_HEADERS, "mcp-protocol-version": MODERN, "mcp-method": "notifications/cancelled"}
    taken = await peer.post(notification, headers)
    assert (taken.status, taken.body) == (202, b"")
    for wrong in (
        {"origin": "https://evil.example"},
        {"content-type": "text/plain"},
        {"mcp-protocol-version": "2030-01-01"},
    ):
        refused = await peer.post(notification, {**headers, **wrong})
        assert 400 <= refused.status < 500
        assert "id" not in refused.json


async def test_an_answer_carries_the_id_of_its_request_whatever_the_status(peer: AsgiPeer) -> None:
    for request_id in (0, "0", "", -1, 2**53 - 1):
        served_call = modern_call("echo", {"text": "x"}, id=request_id)
        cannot = modern_call("ask", id=request_id, meta={"io.modelcontextprotocol/clientCapabilities": {}})
        body, headers = modern_call("echo", id=request_id)
        for call in (served_call, cannot, (body, {**headers, "mcp-name": "other"})):
            assert (await peer.post(*call)).json["id"] == request_id


async def test_what_a_call_says_goes_out_on_its_own_stream(peer: AsgiPeer) -> None:
    stream = listen(peer, toolsListChanged=True)
    await stream.until("acknowledged")
    meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    reply = await peer.post(*modern_call("report", meta=meta))
    assert [event.get("method", "result") for event in reply.events] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
        "result",
    ]
    assert all("subscriptionId" not in str(event) for event in reply.events)
    assert [event["method"] for event in stream.events] == ["notifications/subscriptions/acknowledged"]
    stream.gone.set()


# subscriptions/listen


async def test_the_stream_opens_with_the_acknowledgement_and_stays_open(stage: Stage, peer: AsgiPeer) -> None:
    reply = listen(peer, toolsListChanged=True)
    await reply.until("acknowledged")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-accel-buffering"] == "no"
    assert not reply.ended.is_set()
    stage.server.remove_tool("echo")
    await reply.until("tools/list_changed")
    assert [event["params"]["_meta"][ID] for event in reply.events] == ["ear", "ear"]
    reply.gone.set()


async def test_a_silent_stream_is_kept_alive(peer: AsgiPeer) -> None:
    reply = listen(peer, toolsListChanged=True)
    await reply.until(": still here", seconds=60)
    reply.gone.set()


async def test_two_streams_that_share_an_id_hear_each_what_they_asked_for(stage: Stage, peer: AsgiPeer) -> None:
    one = listen(peer, toolsListChanged=True)
    two = listen(peer, resourceSubscriptions=["news:today"])
    await one.until("acknowledged")
    await two.until("acknowledged")
    stage.server.remove_tool("echo")
    stage.server.resource_updated("news:today")
    await one.until("list_changed")
    await two.until("resources/updated")
    assert "resources/updated" not in one.body.decode()
    assert "list_changed" not in two.body.decode()
    one.gone.set()
    two.gone.set()


async def test_a_filter_that_is_refused_opens_no_stream(peer: AsgiPeer) -> None:
    reply = await listen(peer, resourceSubscriptions=["nowhere"]).end()
    assert reply.headers["content-type"] == "application/json"
    assert reply.json["error"]["code"] == -32602
    assert reply.json["id"] == "ear"


# arguments that headers repeat (M-HTTP-4s, -5b, -6)


@pytest.fixture
async def mirrored() -> AsyncIterator[AsgiPeer]:
    """A client of tools whose arguments are repeated in headers."""
    server = Server("mirror")

    @server.tool
    async def query(
        region: Annotated[str, Mirrored("Region")], limit: Annotated[int, Mirrored("Limit")] = 3, note: str = ""
    ) -> str:
        return f"{region} {limit}{note}"

    @server.tool
    async def ask(region: Annotated[str, Mirrored("Region")], ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return region

    async with served(asgi_app(server)) as peer:
        yield peer


async def query(peer: AsgiPeer, arguments: dict[str, object], **headers: str) -> Reply:
    body, named = modern_call("query", arguments)
    return await peer.post(body, {**named, **{f"mcp-param-{name}": value for name, value in headers.items()}})


async def test_headers_that_say_the_same_are_accepted(mirrored: AsgiPeer) -> None:
    reply = await query(mirrored, {"region": "eu", "limit": 5}, region=" eu ", limit="5.0")
    assert reply.status == 200
    assert reply.json["result"]["content"][0]["text"] == "eu 5"


async def test_what_a_header_cannot_carry_comes_in_base64(mirrored: AsgiPeer) -> None:
    encoded = base64.b64encode("Zürich".encode()).decode()
    reply = await query(mirrored, {"region": "Zürich"}, region=f"=?base64?{encoded}?=")
    assert reply.json["result"]["content"][0]["text"] == "Zürich 3"


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"region": "us"}),
        ({"region": "eu"}, {"region": "EU"}),
        ({"region": "eu"}, {"region": "=?base64?ZX?="}),
        ({"region": "eu"}, {"region": "=?base64?e*U=?="}),
        ({"region": "eu"}, {"region": "eu", "limit": "3"}),
        ({"region": "eu", "limit": 5}, {"region": "eu", "limit": "6"}),
        ({"region": "eu", "limit": 5}, {"region": "eu", "limit": "five"}),
    ],
)
async def test_headers_that_differ_are_refused_before_anything_runs(
    mirrored: AsgiPeer, arguments: dict[str, object], headers: dict[str, str]
) -> None:
    reply = await query(mirrored, arguments, **headers)
    assert mirrored.app.service.supervisor.statistics().started == 0
    assert reply.status == 400
    assert reply.json["error"]["code"] == -32020
    assert reply.json["id"] == 2


async def test_a_request_that_carries_a_call_forward_is_compared_too(mirrored: AsgiPeer) -> None:
    body, named = modern_call("ask", {"region": "eu"})
    asked = (await mirrored.post(body, {**named, "mcp-param-region": "eu"})).json["result"]
    answers = {key: {"action": "accept", "content": {"value": True}} for key in asked["inputRequests"]}
    body, named = modern_call("ask", {"region": "eu"}, id=3, requestState=asked["requestState"], inputResponses=answers)
    refused = await mirrored.post(body, {**named, "mcp-param-region": "us"})
    accepted = await mirrored.post(body, {**named, "mcp-param-region": "eu"})
    assert (refused.status, refused.json["error"]["code"]) == (400, -32020)
    assert accepted.json["result"]["content"][0]["text"] == "eu"


async def test_an_older_client_sends_none_and_is_served(mirrored: AsgiPeer) -> None:
    headers = await mirrored.open_session()
    reply = await mirrored.post(legacy_call("query", {"region": "eu"}), {**headers, **JSON_HEADERS})
    assert reply.last["result"]["content"][0]["text"] == "eu 3"
