"""The routes of an `OAuthProxy`, wherever its server is served."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from asgi_peer import AsgiPeer, Reply, served

from trio_mcp import HttpOptions, Server
from trio_mcp.auth import GITHUB, OAuthProxy, ProtectedResource
from trio_mcp.session import KeyRing
from trio_mcp_transports.asgi.access import read_headers
from trio_mcp_transports.http import asgi_app

ORIGIN = "http://127.0.0.1:8000"
REDIRECT = "http://127.0.0.1:8765/callback"
PUBLIC = {"host": "anything.example"}
"""A browser and a provider name the public host, which only the proxy in front of the server may know."""
PLACES = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


def protected(path: str, name: str = "notes", **options: Any) -> Server:
    proxy = OAuthProxy(GITHUB, client_id="proxy", client_secret="secret", keys=KeyRing([b"k" * 32]))
    hook = ProtectedResource(ORIGIN + path, proxy, **{"required": ["read"], **options})
    return Server(name, http=HttpOptions(authenticate=hook))


async def send(peer: AsgiPeer, method: str, path: str, body: bytes = b"", **options: Any) -> Reply:
    headers = {**PUBLIC, **options.pop("headers", {})}
    return await peer.start(body, headers, method=method, path=path, **options).end()


async def login_page(peer: AsgiPeer, base: str, **options: Any) -> Reply:
    """Register a client, and return the page on which its user agrees."""
    document = json.dumps({"redirect_uris": [REDIRECT]}).encode()
    registered = await send(peer, "POST", f"{base}/oauth/register", document, **options)
    assert registered.status == 201
    query = {
        "response_type": "code",
        "client_id": registered.json["client_id"],
        "redirect_uri": REDIRECT,
        "code_challenge": "a" * 43,
        "code_challenge_method": "S256",
    }
    return await send(peer, "GET", f"{base}/oauth/authorize", query=urlencode(query), **options)


async def issuer_at(peer: AsgiPeer, path: str, **options: Any) -> str | None:
    reply = await send(peer, "GET", path, **options)
    return str(reply.json["issuer"]) if reply.status == 200 else None


async def test_no_request_to_the_routes_needs_a_token_and_all_others_do() -> None:
    async with served(asgi_app(protected("/mcp"))) as peer:
        page = await login_page(peer, "/mcp")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for method, path in (
            ("GET", "/mcp/oauth/consent"),
            ("GET", "/mcp/oauth/other"),
            ("DELETE", "/mcp/oauth/token"),
        ):
            reply = await send(peer, method, path, headers={"host": "127.0.0.1:8000"})
            assert reply.status == 401


async def test_the_metadata_is_at_each_place_where_clients_look() -> None:
    async with served(asgi_app(protected("/mcp"))) as peer:
        for path in (f"{PLACES[0]}/mcp", f"{PLACES[1]}/mcp", f"/mcp{PLACES[1]}"):
            assert await issuer_at(peer, path) == f"{ORIGIN}/mcp"
        assert (await send(peer, "GET", f"/mcp{PLACES[1]}")).headers["access-control-allow-origin"] == "*"


async def test_servers_by_path_are_issuers_of_their_own() -> None:
    servers = {f"/{name}": protected(f"/{name}/mcp", name) for name in ("shop", "notes")}
    async with served(asgi_app(servers)) as peer:
        for name in ("shop", "notes"):
            assert (await login_page(peer, f"/{name}/mcp")).status == 200
            for path in (f"{PLACES[0]}/{name}/mcp", f"{PLACES[1]}/{name}/mcp", f"/{name}/mcp{PLACES[1]}"):
                assert await issuer_at(peer, path) == f"{ORIGIN}/{name}/mcp"


@pytest.mark.parametrize("strips", [True, False])
async def test_behind_a_prefix_the_metadata_and_the_routes_are_below_it(strips: bool) -> None:
    base = "" if strips else "/tools"
    for app, options in (
        (asgi_app(protected("/tools/mcp"), root_path="/tools"), {}),
        (asgi_app(protected("/tools/mcp")), {"root": "/tools"}),
    ):
        async with served(app) as peer:
            assert await issuer_at(peer, f"{base}/mcp{PLACES[1]}", **options) == f"{ORIGIN}/tools/mcp"
            assert (await login_page(peer, f"{base}/mcp", **options)).status == 200


async def test_the_body_of_a_request_is_limited() -> None:
    async with served(asgi_app(protected("/mcp"))) as peer:
        uris = json.dumps({"redirect_uris": [f"{REDIRECT}/{number}" for number in range(10_000)]}).encode()
        assert (await send(peer, "POST", "/mcp/oauth/register", uris)).status == 413


async def test_a_page_of_another_origin_may_not_read_the_consent_page() -> None:
    async with served(asgi_app(protected("/mcp"))) as peer:
        page = await login_page(peer, "/mcp", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in page.headers


async def test_a_client_in_a_page_of_an_allowed_origin_registers_and_gets_tokens() -> None:
    page = {"host": "127.0.0.1:8000", "origin": "https://app.example"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    async with served(asgi_app(protected("/mcp"), allowed_origins=["https://app.example"])) as peer:
        for path in ("/mcp/oauth/register", "/mcp/oauth/token"):
            preflight = await send(peer, "OPTIONS", path, headers={**page, **asks})
            assert preflight.status == 204
            assert preflight.headers["access-control-allow-origin"] == "https://app.example"
            assert "POST" in preflight.headers["access-control-allow-methods"]
            reply = await send(peer, "POST", path, headers=page)
            assert reply.headers["access-control-allow-origin"] == "https://app.example"
            assert "access-control-allow-credentials" not in reply.headers


def test_cookies_in_several_lines_are_one_header_as_over_http_2() -> None:
    lines = [(b"cookie", b"a=1"), (b"host", b"h"), (b"cookie", b"b=2")]
    assert read_headers(lines) == {"cookie": "a=1; b=2", "host": "h"}


async def test_the_endpoints_of_the_metadata_are_served() -> None:
    async with served(asgi_app(protected("/mcp"))) as peer:
        metadata = (await send(peer, "GET", f"/mcp{PLACES[1]}")).json
        for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
            path = urlsplit(metadata[name]).path
            method = "GET" if name == "authorization_endpoint" else "POST"
            assert (await send(peer, method, path)).status in (400, 401)
