"""What a server says of HTTP counts in its application; the call that serves it may replace it, and drop no authentication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
from asgi_peer import ALICE, JSON_HEADERS, by_token, modern_call, served

from trio_mcp import Context, HttpOptions, Server, ServiceOptions
from trio_mcp.http import HttpLimits, Tls
from trio_mcp_transports.http import McpApp, asgi_app, serve_http
from trio_mcp_transports.http.server.by_path import HttpKeywords


async def by_other_token(headers: Mapping[str, str]) -> str | None:
    return {"Bearer b": "bob"}.get(headers.get("authorization", ""))


def shop(**options: Any) -> Server:
    server = Server("shop", http=HttpOptions(**options))

    @server.tool
    async def whoami(ctx: Context) -> str:
        return ctx.request.principal or "nobody"

    return server


async def status_of(app: McpApp, path: str = "/mcp", **headers: str) -> int:
    message, named = modern_call("whoami")
    async with served(app) as peer:
        return (await peer.post(message, {**named, **headers}, path=path)).status


@pytest.mark.parametrize("make", [asgi_app, lambda server: asgi_app(server, authenticate=None)])
async def test_the_authentication_of_a_server_is_never_dropped(make: Callable[[Server], McpApp]) -> None:
    assert await status_of(make(shop(authenticate=by_token))) == 401
    assert await status_of(make(shop(authenticate=by_token)), **ALICE) == 200


async def test_the_serving_call_replaces_the_authentication() -> None:
    server = shop(authenticate=by_token)
    assert await status_of(asgi_app(server, authenticate=by_other_token), **ALICE) == 401
    assert await status_of(asgi_app(server, authenticate=by_other_token), authorization="Bearer b") == 200


@pytest.mark.parametrize("copied", [lambda s: s.copy(options=s.options), lambda s: s.copy(tools=[print_nothing])])
async def test_copies_of_a_server_ask_for_authentication_too(copied: Callable[[Server], Server]) -> None:
    assert await status_of(asgi_app(copied(shop(authenticate=by_token)))) == 401


def print_nothing() -> None:
    """Do nothing."""


async def test_the_path_of_the_server_counts_unless_the_call_has_another() -> None:
    assert await status_of(asgi_app(shop(path="/shop")), "/shop") == 200
    assert await status_of(asgi_app(shop(path="/shop")), "/mcp") == 404
    assert await status_of(asgi_app(shop(path="/shop"), path="/mcp"), "/mcp") == 200
    assert await status_of(asgi_app(shop(path="/shop", sse_path="/sse"), path=None), "/shop") == 404


async def test_the_hosts_and_origins_of_the_server_count() -> None:
    server = shop(allowed_hosts=["mcp.example.com"], allowed_origins=["https://app.example.com"])
    assert await status_of(asgi_app(server)) == 421
    assert await status_of(asgi_app(server), host="mcp.example.com", origin="https://app.example.com") == 200
    assert await status_of(asgi_app(server), host="mcp.example.com", origin="https://other.example.com") == 403
    assert await status_of(asgi_app(server, allowed_hosts=["other.example.com"]), host="mcp.example.com") == 421


async def test_the_limits_of_the_server_count() -> None:
    server = shop(limits=HttpLimits(body=10))
    assert await status_of(asgi_app(server)) == 413
    assert await status_of(asgi_app(server, limits=HttpLimits())) == 200


async def test_http_sse_is_served_where_the_server_says() -> None:
    async with served(asgi_app(shop(sse_path="/events", message_path="/posts"))) as peer:
        stream = peer.start(b"", JSON_HEADERS, method="GET", path="/events", sends_body=False)
        await stream.until("/posts?session_id=")


def test_a_path_of_the_serving_call_must_not_collide_with_a_route() -> None:
    server = shop()
    server.route("/hook")(by_route)
    with pytest.raises(ValueError, match="/hook is the path of MCP"):
        asgi_app(server, path="/hook")


async def by_route(request: object) -> Any:
    raise NotImplementedError


def test_tls_that_an_application_cannot_use_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asgi_app(shop(tls=Tls("cert.pem", "key.pem")))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_an_option_that_does_not_exist_is_answered_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"asgi_app\(\) has no option 'allowed_host'.*allowed_hosts"):
        asgi_app(shop(), allowed_host=["a"])  # type: ignore[call-overload]


async def test_a_serving_call_names_its_own_options_and_those_of_every_application() -> None:
    with pytest.raises(TypeError, match=r"serve_http\(\) has no option 'prot'.*port"):
        await serve_http(shop(), prot=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"no transport has the option prot=.*'port'.* http has .*root_path"):
        await shop().serve("http", prot=1)


def test_each_option_of_a_serving_call_is_one_of_the_server() -> None:
    own = {field.name for field in fields(HttpOptions)}
    assert set(HttpKeywords.__annotations__) - {"event_store"} <= own


@pytest.mark.parametrize(
    ("options", "written", "meant"),
    [
        (HttpOptions, {"allowed_host": ["a.example"]}, "allowed_hosts"),
        (HttpLimits, {"bodi": 1}, "body"),
        (ServiceOptions, {"tell_error": True}, "tell_errors"),
        (Tls, {"certfile": "a.pem", "keyfil": "b.pem"}, "keyfile"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(
    options: Callable[..., object], written: Mapping[str, object], meant: str
) -> None:
    with pytest.raises(TypeError, match=f"has no option .* '?{meant}"):
        options(**written)
