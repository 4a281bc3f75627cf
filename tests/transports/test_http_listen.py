"""`subscriptions/listen` over HTTP: a response that stays open, tells of changes, and ends with its result."""

from __future__ import annotations

from typing import Any

import pytest
from asgi_peer import JSON_HEADERS, MODERN, AsgiPeer, Reply, served

from trio_mcp import Server
from trio_mcp_transports.http import asgi_app

ID = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def server() -> Server:
    server = Server("news")
    server.add_tool(lambda: "", name="first")
    server.add_resource("news:today", lambda: "")
    return server


def listen(peer: AsgiPeer, request_id: object = "ear", **wanted: Any) -> Reply:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": wanted, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": request_id, "method": "subscriptions/listen", "params": params}
    return peer.start(body, {**JSON_HEADERS, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"})


async def test_the_stream_opens_with_the_acknowledgement_and_stays_open(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        reply = listen(peer, toolsListChanged=True)
        await reply.until("acknowledged")
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.headers["x-accel-buffering"] == "no"
        assert not reply.ended.is_set()
        server.remove_tool("first")
        await reply.until("tools/list_changed")
        assert [event["params"]["_meta"][ID] for event in reply.events] == ["ear", "ear"]
        reply.gone.set()


async def test_a_silent_stream_is_kept_alive(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        reply = listen(peer, toolsListChanged=True)
        await reply.until(": still here", seconds=60)
        reply.gone.set()


async def test_two_streams_that_share_an_id_hear_each_what_they_asked_for(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        one = listen(peer, toolsListChanged=True)
        two = listen(peer, resourceSubscriptions=["news:today"])
        await one.until("acknowledged")
        await two.until("acknowledged")
        server.remove_tool("first")
        server.resource_updated("news:today")
        await one.until("list_changed")
        await two.until("resources/updated")
        assert "resources/updated" not in one.body.decode()
        assert "list_changed" not in two.body.decode()
        one.gone.set()
        two.gone.set()


async def test_a_filter_that_is_refused_opens_no_stream(server: Server) -> None:
    async with served(asgi_app(server)) as peer:
        reply = await listen(peer, resourceSubscriptions=["nowhere"]).end()
        assert reply.headers["content-type"] == "application/json"
        assert reply.json["error"]["code"] == -32602
        assert reply.json["id"] == "ear"
