"""Batches over HTTP (2025-03-26): one POST with several messages, one answer to all of its requests."""

from __future__ import annotations

import pytest
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, legacy_call
from stage import Stage
from wire_terms import INVALID_REQUEST, MODERN

BATCHING = "2025-03-26"
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
ROOTS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}


@pytest.fixture
async def headers(peer: AsgiPeer) -> dict[str, str]:
    """Those of a session in which batches may be sent; a client of that revision sends no version header."""
    headers = await peer.open_session({"roots": {}}, BATCHING)
    del headers["mcp-protocol-version"]
    return headers


def ids(reply: Reply) -> set[object]:
    return {answer["id"] for answer in reply.last}


async def test_a_batch_is_answered_with_one_json_array(peer: AsgiPeer, headers: dict[str, str]) -> None:
    body = [legacy_call("echo", {"text": "a"}, id=1), PING, ROOTS_CHANGED, legacy_call("echo", {"text": "b"}, id=2)]
    reply = await peer.post(body, headers)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert ids(reply) == {1, "p", 2}


async def test_a_batch_that_says_something_on_its_way_is_answered_on_a_stream(
    stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    body = [legacy_call("report", id=1, _meta={"progressToken": "t"}), PING]
    reply = peer.start(body, headers)
    await reply.until("notifications/progress")
    assert reply.headers["content-type"] == "text/event-stream"
    await reply.end()
    progress, *_, array = reply.events
    assert progress["params"]["progressToken"] == "t"
    assert {answer["id"] for answer in array} == {1, "p"}


@pytest.mark.parametrize("size", [1, 3])
async def test_a_batch_without_requests_is_accepted_with_202(
    peer: AsgiPeer, headers: dict[str, str], size: int
) -> None:
    reply = await peer.post([ROOTS_CHANGED] * size, headers)
    assert (reply.status, reply.body) == (202, b"")


REFUSED: dict[str, tuple[str, dict[str, str], object]] = {
    "no messages": (BATCHING, {}, []),
    "no message": (BATCHING, {}, [1]),
    "over the limit": (BATCHING, {}, [{**PING, "id": number} for number in range(101)]),
    "a modern header": (BATCHING, {"mcp-protocol-version": MODERN}, [legacy_call("echo", {"text": "a"})]),
    "another revision": ("2025-06-18", {}, [legacy_call("echo", {"text": "a"})]),
    "no session": ("", {}, [legacy_call("echo", {"text": "a"})]),
    "no session, a modern header": ("", {"mcp-protocol-version": MODERN}, [legacy_call("echo", {"text": "a"})]),
}


@pytest.mark.parametrize(("version", "more", "body"), REFUSED.values(), ids=REFUSED)
async def test_a_batch_that_cannot_be_taken_is_400_and_executes_nothing(
    stage: Stage, peer: AsgiPeer, version: str, more: dict[str, str], body: object
) -> None:
    headers = await peer.open_session(version=version) if version else dict(JSON_HEADERS)
    if version == BATCHING:
        del headers["mcp-protocol-version"]
    reply = await peer.post(body, {**headers, **more})
    errors = reply.json if isinstance(reply.json, list) else [reply.json]
    assert (reply.status, [each["error"]["code"] for each in errors]) == (400, [INVALID_REQUEST])
    assert stage.runs == 0


async def test_a_batch_whose_calls_were_all_cancelled_or_that_failed_is_answered_as_such(
    stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    failed = await peer.post([{**legacy_call("echo", id=1), "method": "no/such"}], headers)
    assert (failed.status, "error" in failed.json[0]) == (200, True)
    reply = peer.start([legacy_call("wait", id=1)], headers)
    await stage.started.wait()
    await peer.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, headers)
    await reply.end()
    assert (reply.status, reply.body) == (202, b"")
