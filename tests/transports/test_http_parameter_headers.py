"""Arguments that headers repeat: a request whose headers say something else than its body is refused (M-HTTP-4s, -5b, -6)."""

from __future__ import annotations

import base64
from typing import Annotated

import pytest
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, legacy_call, modern_call, served

from trio_mcp import Context, Mirrored, Server
from trio_mcp_transports.http import asgi_app


@pytest.fixture
def server() -> Server:
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

    return server


async def query(peer: AsgiPeer, arguments: dict[str, object], **headers: str) -> Reply:
    body, named = modern_call("query", arguments)
    return await peer.post(body, {**named, **{f"mcp-param-{name}": value for name, value in headers.items()}})


async def test_headers_that_say_the_same_are_accepted(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        reply = await query(peer, {"region": "eu", "limit": 5}, region=" eu ", limit="5.0")
    assert reply.status == 200
    assert reply.json["result"]["content"][0]["text"] == "eu 5"


async def test_what_a_header_cannot_carry_comes_in_base64(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        encoded = base64.b64encode("Zürich".encode()).decode()
        reply = await query(peer, {"region": "Zürich"}, region=f"=?base64?{encoded}?=")
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
    server: Server, arguments: dict[str, object], headers: dict[str, str]
) -> None:
    async with served(asgi_app(server)) as peer:
        reply = await query(peer, arguments, **headers)
        assert peer.app.service.supervisor.statistics().started == 0
    assert reply.status == 400
    assert reply.json["error"]["code"] == -32020
    assert reply.json["id"] == 2


async def test_a_request_that_carries_a_call_forward_is_compared_too(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        body, named = modern_call("ask", {"region": "eu"})
        asked = (await peer.post(body, {**named, "mcp-param-region": "eu"})).json["result"]
        answers = {key: {"action": "accept", "content": {"value": True}} for key in asked["inputRequests"]}
        body, named = modern_call(
            "ask", {"region": "eu"}, id=3, requestState=asked["requestState"], inputResponses=answers
        )
        refused = await peer.post(body, {**named, "mcp-param-region": "us"})
        accepted = await peer.post(body, {**named, "mcp-param-region": "eu"})
    assert (refused.status, refused.json["error"]["code"]) == (400, -32020)
    assert accepted.json["result"]["content"][0]["text"] == "eu"


async def test_an_older_client_sends_none_and_is_served(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        headers = await peer.open_session()
        reply = await peer.post(legacy_call("query", {"region": "eu"}), {**headers, **JSON_HEADERS})
    assert reply.last["result"]["content"][0]["text"] == "eu 3"
