"""Which errors are "busy, try later" (503), and which are the fault of the request, which no waiting cures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
import trio
from asgi_peer import legacy_call, modern_request, served

from trio_mcp import Context, Server
from trio_mcp.session import ServiceOptions
from trio_mcp_transports.http import asgi_app

Body: TypeAlias = Callable[[Context], Awaitable[str]]


def subscribe(uri: str, id: int = 2) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": "resources/subscribe", "params": {"uri": uri}}


async def test_a_subscription_over_the_limit_of_its_session_is_no_503() -> None:
    server = Server("watched", options=ServiceOptions(watched=1))
    server.add_resource("a:1", lambda: "")
    async with served(asgi_app(server)) as peer:
        session = await peer.open_session()
        assert (await peer.post(subscribe("a:1"), session)).json["result"] == {}
        refused = await peer.post(subscribe("a:2"), session)
        assert (refused.status, refused.json["error"]["code"]) == (200, -32602)
        assert "1 resources" in refused.json["error"]["message"]
        assert "retry-after" not in refused.headers


async def too_deep(ctx: Context) -> str:
    return await ctx.branch(too_deep)


async def too_many_questions(ctx: Context) -> str:
    async with trio.open_nursery() as nursery:
        for number in range(1025):
            nursery.start_soon(ctx.elicit, f"{number}?", str)
    return "answered"


@pytest.mark.parametrize(("body", "limit"), [(too_deep, "32 deep"), (too_many_questions, "1024 open questions")])
@pytest.mark.parametrize("is_modern", [False, True], ids=["legacy", "modern"])
async def test_a_prompt_that_exceeds_the_limits_of_one_call_is_no_503(body: Body, limit: str, is_modern: bool) -> None:
    server = Server("limited")
    server.prompt(body, name="it")
    async with served(asgi_app(server)) as peer:
        if is_modern:
            reply = await peer.post(*modern_request("prompts/get", {"name": "it"}))
        else:
            asked = {**legacy_call("it"), "method": "prompts/get"}
            reply = await peer.post(asked, await peer.open_session())
        error = reply.last["error"]
        assert (reply.status, error["code"]) == (200, -32603)
        assert limit in error["message"]
