"""Batches over HTTP (2025-03-26): one POST with several messages, one answer to all of its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from asgi_peer import JSON_HEADERS, MODERN, AsgiPeer, Reply, legacy_call, served
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, Server
from trio_mcp.protocol.jsonrpc import INVALID_REQUEST
from trio_mcp_transports.http import HttpLimits, asgi_app

BATCHING = "2025-03-26"
GRACE = 30.0
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
ROOTS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}


class Stage:
    """A server whose tools report what happens to them."""

    def __init__(self) -> None:
        self.server = Server("stage", version="1.0")
        self.runs = 0
        self.waiting = trio.Event()
        self.go_on = trio.Event()
        self.reason: CancelReason | None = None
        for tool in (self.echo, self.wait, self.report, self.count_roots):
            self.server.tool(tool)

    async def echo(self, text: str) -> str:
        self.runs += 1
        return text

    async def wait(self, ctx: Context) -> str:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except trio.Cancelled:
            self.reason = ctx.cancel_reason
            raise
        return "waited"

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await self.go_on.wait()
        return "done"

    async def count_roots(self, ctx: Context) -> int:
        return len(await ctx.roots())


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def peer(stage: Stage) -> AsyncIterator[AsgiPeer]:
    async with served(asgi_app(stage.server, limits=HttpLimits(disconnect_grace=GRACE))) as peer:
        yield peer


@pytest.fixture
async def headers(peer: AsgiPeer) -> dict[str, str]:
    """Those of a session in which batches may be sent; a client of that revision sends no version header."""
    headers = await peer.open_session({"roots": {}}, BATCHING)
    del headers["mcp-protocol-version"]
    return headers


def cancel(id: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def ids(reply: Reply) -> set[object]:
    return {answer["id"] for answer in reply.last}


async def test_a_batch_is_answered_with_one_json_array(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    body = [legacy_call("echo", {"text": "a"}, id=1), PING, ROOTS_CHANGED, legacy_call("echo", {"text": "b"}, id=2)]
    reply = await peer.post(body, headers)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert ids(reply) == {1, "p", 2}


async def test_a_batch_that_says_something_on_its_way_is_answered_on_a_stream(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    body = [legacy_call("report", id=1, _meta={"progressToken": "t"}), PING]
    reply = peer.start(body, headers)
    await reply.until("notifications/progress")
    assert reply.headers["content-type"] == "text/event-stream"
    stage.go_on.set()
    await reply.end()
    progress, array = reply.events
    assert progress["params"]["progressToken"] == "t"
    assert {answer["id"] for answer in array} == {1, "p"}


@pytest.mark.parametrize("size", [1, 3])
async def test_a_batch_without_requests_is_accepted_with_202(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str], size: int
) -> None:
    reply = await peer.post([ROOTS_CHANGED] * size, headers)
    assert (reply.status, reply.body) == (202, b"")


async def test_answers_to_questions_may_come_in_a_batch(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    asking = peer.start([legacy_call("count_roots", id=1), legacy_call("count_roots", id=2)], headers)
    await wait_all_tasks_blocked()
    roots = {"roots": [{"uri": "file:///a"}]}
    answers = [{"jsonrpc": "2.0", "id": question["id"], "result": roots} for question in asking.events]
    assert (await peer.post(answers, headers)).status == 202
    await asking.end()
    assert ids(asking) == {1, 2}


@pytest.mark.parametrize("body", [b"[]", b"[1]", b"[[]]", b'[{"jsonrpc":"1.0","id":1,"method":"ping"}]'])
async def test_an_array_that_holds_no_message_is_400(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str], body: bytes
) -> None:
    reply = await peer.post(body, headers)
    errors = reply.json if isinstance(reply.json, list) else [reply.json]
    assert (reply.status, [each["error"]["code"] for each in errors]) == (400, [INVALID_REQUEST])


@pytest.mark.parametrize("method", ["no/such", "tools/call"])
async def test_a_batch_of_requests_that_end_in_errors_is_200(
    autojump_clock: MockClock, peer: AsgiPeer, method: str
) -> None:
    """As each of them would be by itself: also one whose call failed with the code of an invalid request."""
    headers = await peer.open_session({"sampling": {}}, BATCHING)
    reply = await peer.post([{**legacy_call("count_roots", id=1), "method": method}], headers)
    assert (reply.status, ids(reply)) == (200, {1})
    assert "error" in reply.json[0]


async def test_a_batch_over_the_limit_is_400_and_executes_nothing(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    body = [legacy_call("echo", {"text": "a"}, id=number) for number in range(101)]
    reply = await peer.post(body, headers)
    assert reply.status == 400
    assert "limit is 100" in reply.json["error"]["message"]
    assert stage.runs == 0


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_in_a_session_of_another_revision_is_400_and_executes_nothing(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, version: str
) -> None:
    headers = await peer.open_session(version=version)
    reply = await peer.post([legacy_call("echo", {"text": "a"})], headers)
    assert (reply.status, reply.json["error"]["code"]) == (400, INVALID_REQUEST)
    assert "batches are not supported" in reply.json["error"]["message"]
    assert stage.runs == 0


@pytest.mark.parametrize("version", [MODERN, "2025-03-26", None])
async def test_a_batch_outside_a_session_is_400(autojump_clock: MockClock, peer: AsgiPeer, version: str | None) -> None:
    headers = JSON_HEADERS if version is None else {**JSON_HEADERS, "mcp-protocol-version": version}
    reply = await peer.post([PING], headers)
    assert (reply.status, reply.json["error"]["code"]) == (400, INVALID_REQUEST)
    assert "batches are not supported" in reply.json["error"]["message"]


async def test_a_batch_with_a_modern_header_is_400_even_in_a_session(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    reply = await peer.post([PING], {**headers, "mcp-protocol-version": MODERN})
    assert (reply.status, reply.json["error"]["code"]) == (400, INVALID_REQUEST)


async def test_a_batch_for_an_unknown_session_is_404(
    autojump_clock: MockClock, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    assert (await peer.post([PING], {**headers, "mcp-session-id": "nobody"})).status == 404


async def test_a_cancelled_call_is_missing_from_the_answer(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    reply = peer.start([legacy_call("wait", id=1), PING], headers)
    await stage.waiting.wait()
    assert (await peer.post([cancel(1)], headers)).status == 202
    await reply.end()
    assert (reply.status, ids(reply)) == (200, {"p"})


async def test_a_batch_whose_calls_were_all_cancelled_ends_without_an_answer(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    reply = peer.start([legacy_call("wait", id=1)], headers)
    await stage.waiting.wait()
    await peer.post(cancel(1), headers)
    await reply.end()
    assert (reply.status, reply.body) == (202, b"")


async def test_a_batch_goes_on_for_the_grace_period_when_its_client_has_gone(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    reply = peer.start([legacy_call("wait", id=1), PING], headers)
    await stage.waiting.wait()
    reply.gone.set()
    await trio.sleep(GRACE - 1)
    assert stage.reason is None
    await trio.sleep(2)
    assert stage.reason is CancelReason.DISCONNECT


async def test_a_deleted_session_ends_its_batches(
    autojump_clock: MockClock, stage: Stage, peer: AsgiPeer, headers: dict[str, str]
) -> None:
    reply = peer.start([legacy_call("wait", id=1), PING], headers)
    await stage.waiting.wait()
    assert (await peer.post(b"", headers, method="DELETE")).status == 204
    await reply.end()
    assert stage.reason is CancelReason.DISCONNECT
    assert ids(reply) == {"p"}
