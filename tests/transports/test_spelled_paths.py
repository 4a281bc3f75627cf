"""An endpoint is served with and without the slash at its end, directly; origins and media types are compared without case."""

from __future__ import annotations

import pytest
from asgi_peer import JSON_HEADERS, AsgiPeer, initialize, served
from scripted import said
from scripted_http import in_session, modern_http

from trio_mcp import HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp_transports.http import asgi_app


async def status_of(peer: AsgiPeer, path: str, root: str = "", **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await peer.post(initialize({}), {**JSON_HEADERS, **named}, path=path, root=root)).status


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/deep/er", "/deep/er/", "/"])
async def test_an_endpoint_is_served_with_and_without_the_slash_at_its_end(path: str) -> None:
    bare = path.rstrip("/")
    async with served(asgi_app(Server("slash"), path=path)) as peer:
        for each in {bare or "/", f"{bare}/"}:
            assert await status_of(peer, each) == 200
        for other in (f"{bare}//", f"{bare}/other", f"{bare}/./"):
            assert await status_of(peer, other) == 404


async def test_it_is_so_below_a_prefix_and_for_several_servers() -> None:
    async with served(asgi_app({"/a": Server("a"), "/b": Server("b")})) as peer:
        assert [await status_of(peer, path) for path in ("/a/mcp", "/a/mcp/", "/b/mcp/", "/c/mcp/")] == [
            200,
            200,
            200,
            404,
        ]
    async with served(asgi_app(Server("slash"))) as peer:
        assert await status_of(peer, "/root/mcp/", root="/root") == 200


async def test_a_custom_route_at_the_other_spelling_stays() -> None:
    server = Server("slash")

    @server.route("/mcp/", methods=["POST"])
    async def own(request: HttpRequest) -> HttpResponse:
        return HttpResponse("own", status=299)

    async with served(asgi_app(server)) as peer:
        assert [await status_of(peer, path) for path in ("/mcp", "/mcp/")] == [200, 299]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://app.example.com", 200),
        ("https://App.Example.com:443", 200),
        ("https://app.example.com:444", 403),
        ("http://app.example.com", 403),
        ("https://app.example.com.evil.example", 403),
        ("null", 403),
    ],
)
async def test_an_origin_is_compared_in_its_normal_form(origin: str, status: int) -> None:
    options = HttpOptions(allowed_origins=["https://APP.example.com"], allowed_hosts=["mcp.example.com"])
    async with served(asgi_app(Server("page", http=options))) as peer:
        assert await status_of(peer, "/mcp", origin=origin, host="MCP.example.com.:443") == status


@pytest.mark.parametrize("kind", ["Application/JSON", "application/json;charset=UTF-8", "APPLICATION/JSON ; v=1"])
async def test_a_media_type_of_a_request_has_no_case(kind: str) -> None:
    async with served(asgi_app(Server("types"))) as peer:
        assert await status_of(peer, "/mcp", content_type=kind, accept="Application/Json, TEXT/Event-Stream") == 200


@pytest.mark.parametrize("kind", ["TEXT/EVENT-STREAM", "text/event-stream;charset=utf-8", "Text/Event-Stream ; a=b"])
async def test_a_media_type_of_a_response_has_no_case(kind: str) -> None:
    async with modern_http() as (client, wire, start):
        call = start(client.call_tool, "book")
        post = await wire.post()
        post.stream({"content-type": kind})
        post.say(
            b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":1}}}\n\n'
            % post.message["id"]
        )
        assert (await call.result()).data == {"a": 1}
    async with in_session() as (client, wire, start):
        call = start(client.call_tool, "book")
        post = await wire.post()
        post.answer(200, {"id": post.message["id"], "result": said("json")}, {"content-type": "Application/JSON"})
        assert (await call.result()).text == "json"
