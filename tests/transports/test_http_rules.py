"""Rules of the checklist for the server's side of Streamable HTTP that hold whatever a request asks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from asgi_peer import JSON_HEADERS, MODERN, AsgiPeer, legacy_call, modern_call

SESSIONS = 200


# sessions (handshake era)


async def test_a_session_id_is_visible_ascii_and_cannot_be_guessed(peer: AsgiPeer) -> None:
    ids = [(await peer.open_session())["mcp-session-id"] for _ in range(SESSIONS)]
    assert len(set(ids)) == SESSIONS
    assert all(re.fullmatch(r"[\x21-\x7e]{22,}", each) for each in ids)  # 22 characters of base64url hold 128 bits
    for place in range(22):
        assert len({each[place] for each in ids}) > 20  # no part of it is a counter or a clock


async def test_a_legacy_request_without_a_version_header_is_served(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    del headers["mcp-protocol-version"]
    reply = await peer.post(legacy_call("echo", {"text": "hi"}), headers)
    assert (reply.status, reply.json["result"]["content"][0]["text"]) == (200, "hi")


NOTHING_TO_ANSWER: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
    {"jsonrpc": "2.0", "method": "notifications/unheard_of"},
    {"jsonrpc": "2.0", "id": 99, "result": {}},
    {"jsonrpc": "2.0", "id": 99, "error": {"code": -1, "message": "no"}},
]


@pytest.mark.parametrize("message", NOTHING_TO_ANSWER, ids=str)
async def test_what_needs_no_answer_is_202_without_a_body(peer: AsgiPeer, message: dict[str, Any]) -> None:
    reply = await peer.post(message, await peer.open_session())
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("message", NOTHING_TO_ANSWER, ids=str)
async def test_what_needs_no_answer_is_refused_with_4xx(peer: AsgiPeer, message: dict[str, Any]) -> None:
    headers = await peer.open_session()
    refused = [
        await peer.post(message),
        await peer.post(message, {**headers, "mcp-session-id": "unknown"}),
        await peer.post(message, {**headers, "mcp-protocol-version": "1999-01-01"}),
        await peer.post([message], headers),
        await peer.post({**message, "jsonrpc": "1.0"}, headers),
    ]
    assert [reply.status for reply in refused] == [400, 404, 400, 400, 400]
    for reply in refused:
        assert reply.json.get("id") in (None, 99)
        assert reply.json["error"]["message"]


# the modern era


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
    body, headers = modern_call("report", id="listen")
    body |= {"method": "subscriptions/listen"}
    body["params"] = {"notifications": {"toolsListChanged": True}, "_meta": body["params"]["_meta"]}
    del headers["mcp-name"]
    stream = peer.start(body, {**headers, "mcp-method": "subscriptions/listen"})
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
