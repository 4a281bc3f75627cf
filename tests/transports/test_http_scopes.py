"""A caller with scopes over HTTP: what its tools see, and the 403 for a call that its scopes do not allow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, initialize, legacy_call, modern_call, modern_request, served
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Caller, Context, Server
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app

READER = {"authorization": "Bearer reader"}
WRITER = {"authorization": "Bearer writer"}
CHALLENGE = 'Bearer error="insufficient_scope", scope="read write"'
ERAS = ("legacy", "modern")


async def by_token(headers: Mapping[str, str]) -> Caller | None:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    scopes = {"reader": ["read"], "writer": ["read", "write"]}.get(token)
    return None if scopes is None else Caller("alice", scopes, {"token": token})


def library() -> Server:
    server = Server("library", version="1")
    runs = list[str]()

    @server.tool(scopes=["write", "read"])
    async def donate() -> str:
        runs.append("donate")
        return f"thank you, {len(runs)}"

    @server.tool(scopes=["write"], visible=lambda caller: caller is not None and "write" in caller.scopes)
    async def clear() -> str:
        return "cleared"

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.caller is not None
        return f"{ctx.caller.principal} {sorted(ctx.caller.scopes)} {ctx.caller.claims['token']}"

    @server.tool(scopes=["write"])
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    return server


@asynccontextmanager
async def guarded(**limits: int) -> AsyncIterator[AsgiPeer]:
    app = asgi_app(library(), authenticate=by_token, sse_path="/sse", limits=HttpLimits(**limits))
    async with served(app) as peer:
        yield peer


async def call(peer: AsgiPeer, era: str, tool: str, who: Mapping[str, str], **more: Any) -> Reply:
    if era == "modern":
        return await peer.post(*modern_call(tool, **more, headers=dict(who)))
    session = await peer.open_session(who=who)
    return await peer.post(legacy_call(tool, id=2, **more), session)


def text(reply: Reply) -> str:
    return str(reply.json["result"]["content"][0]["text"])


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_reads_the_scopes_and_claims_of_its_caller(era: str) -> None:
    async with guarded() as peer:
        assert text(await call(peer, era, "whoami", WRITER)) == "alice ['read', 'write'] writer"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_without_the_scopes_is_403_and_runs_nothing(era: str) -> None:
    async with guarded() as peer:
        reply = await call(peer, era, "donate", READER)
        assert (reply.status, reply.headers["www-authenticate"]) == (403, CHALLENGE)
        assert reply.json["id"] == 2
        assert "error" in reply.json
        assert text(await call(peer, era, "donate", WRITER)) == "thank you, 1"


@pytest.mark.parametrize("era", ERAS)
async def test_a_hidden_tool_is_unknown_and_not_403(era: str) -> None:
    async with guarded() as peer:
        hidden, unknown = [await call(peer, era, tool, READER) for tool in ("clear", "unheard")]
        assert (hidden.status, hidden.json["error"]["code"]) == (unknown.status, unknown.json["error"]["code"])
        assert hidden.json["error"]["message"].replace("clear", "unheard") == unknown.json["error"]["message"]


async def test_scopes_are_those_of_each_request_of_a_session() -> None:
    async with guarded() as peer:
        session = await peer.open_session(who=WRITER)
        assert text(await peer.post(legacy_call("donate"), session)) == "thank you, 1"
        assert (await peer.post(legacy_call("donate"), session | READER)).status == 403


async def test_a_modern_call_is_carried_on_with_the_scopes_only() -> None:
    async with guarded() as peer:
        first = (await call(peer, "modern", "ask", WRITER)).json["result"]
        answers = {key: {"action": "accept", "content": {"value": True}} for key in first["inputRequests"]}
        retry = {"requestState": first["requestState"], "inputResponses": answers}
        assert (await call(peer, "modern", "ask", READER, **retry)).status == 403
        assert text(await call(peer, "modern", "ask", WRITER, **retry)) == "accept"


async def test_a_call_in_a_batch_without_the_scopes_is_an_error_result() -> None:
    async with guarded() as peer:
        session = await peer.open_session(version="2025-03-26", who=READER)
        reply = await peer.post([legacy_call("whoami", id=2), legacy_call("donate", id=3)], session)
        assert reply.status == 200
        results = {answer["id"]: answer["result"] for answer in reply.json}
        assert not results[2].get("isError")
        assert results[3]["_meta"]["trio-mcp/requiredScopes"] == ["read", "write"]


async def test_over_http_and_sse_the_post_is_403() -> None:
    async with guarded() as peer:
        _, where = await peer.open_stream(READER)
        assert (await peer.post(initialize({}), JSON_HEADERS | READER, **where)).status == 202
        reply = await peer.post(legacy_call("donate"), JSON_HEADERS | READER, **where)
        assert (reply.status, reply.headers["www-authenticate"]) == (403, CHALLENGE)


class Rights:
    """A hook whose scopes and claims may change while streams are open."""

    def __init__(self) -> None:
        self.scopes, self.asked = ["read"], 0

    async def __call__(self, _headers: Mapping[str, str]) -> Caller:
        self.asked += 1
        return Caller("alice", self.scopes, {"asked": self.asked})


async def test_an_open_stream_ends_when_its_scopes_change_and_not_when_its_claims_do() -> None:
    rights = Rights()
    async with served(asgi_app(library(), authenticate=rights, limits=HttpLimits(recheck_seconds=60))) as peer:
        reply = peer.start(*modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        await wait_all_tasks_blocked()
        await trio.sleep(1000)
        assert not reply.ended.is_set()
        rights.scopes = []
        await trio.sleep(61)
        assert reply.ended.is_set()


async def test_the_application_says_whose_headers_these_are() -> None:
    app: McpApp = asgi_app(library(), authenticate=by_token)
    assert await app.caller_of(WRITER) == Caller("alice", ["read", "write"], {"token": "writer"})
    assert await app.principal_of(READER) == "alice"
    assert await asgi_app(library()).caller_of(READER) is None


async def test_an_invalid_caller_is_not_authenticated(caplog: pytest.LogCaptureFixture) -> None:
    async def hook(_headers: Mapping[str, str]) -> Caller:
        return Caller("alice", "read")

    async with served(asgi_app(library(), authenticate=hook)) as peer:
        assert (await peer.post(initialize({}), JSON_HEADERS)).status == 500
    assert "scopes" in caplog.text
