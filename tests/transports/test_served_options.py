"""What a server says of HTTP counts in its application, the call may replace it, and what cannot be served is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pytest
import trio
from asgi_peer import ALICE, JSON_HEADERS, by_token, modern_call, served
from naming import naming

from trio_mcp import Context, HttpOptions, Server, ServiceOptions
from trio_mcp.http import HttpLimits, Tls
from trio_mcp_transports.entry_points import websocket
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


# what cannot be served

ACCESS: list[tuple[str, Any, type[Exception], list[object]]] = [
    ("allowed_hosts", "mcp.example.com", TypeError, ["a list", "['mcp.example.com']"]),
    ("allowed_hosts", 3, TypeError, ["a list", 3]),
    ("allowed_hosts", [3], TypeError, ["a string", 3]),
    ("allowed_hosts", ["https://mcp.example.com"], ValueError, ["host name", "as 'mcp.example.com'"]),
    ("allowed_hosts", ["mcp.example.com:443"], ValueError, ["without scheme, port and path"]),
    ("allowed_hosts", ["*"], ValueError, ["'*'", "host name"]),
    ("allowed_hosts", ["::1"], ValueError, ["as '[::1]'"]),
    ("allowed_hosts", [""], ValueError, ["''", "host name"]),
    ("allowed_origins", "https://app.example.com", TypeError, ["a list", "['https://app.example.com']"]),
    ("allowed_origins", ["app.example.com"], ValueError, ["'app.example.com'", "as 'https://app."]),
    ("allowed_origins", ["https://app.example.com/"], ValueError, ["with a scheme and without a path"]),
    ("allowed_origins", ["*"], ValueError, ["'*'", "origin"]),
    ("allowed_origins", ["null"], ValueError, ["'null'", "origin"]),
    ("limits", 3, TypeError, ["HttpLimits(...)", 3]),
]


@pytest.mark.parametrize(("option", "value", "kind", "names"), ACCESS, ids=str)
def test_a_name_that_no_request_could_have_is_refused(
    option: str, value: Any, kind: type[Exception], names: list[object]
) -> None:
    with pytest.raises(kind, match=naming(option, *names)):
        asgi_app(Server("x"), **{option: value})


def test_names_and_origins_as_requests_have_them_are_taken() -> None:
    hosts = ["mcp.example.com", "MCP.example.com.", "localhost", "[::1]", "10.0.0.1"]
    asgi_app(
        Server("x"),
        allowed_hosts=hosts,
        allowed_origins=["https://a.example:8443", "vscode-webview://abc", "http://[::1]:3"],
    )


SERVED: list[tuple[str, Any, type[Exception]]] = [
    ("port", "8000", TypeError),
    ("port", 99999, ValueError),
    ("port", -1, ValueError),
    ("drain", -1, ValueError),
    ("drain", float("nan"), ValueError),
    ("drain", float("inf"), ValueError),
    ("drain", "10", TypeError),
]


@pytest.mark.parametrize(("option", "value", "kind"), SERVED, ids=str)
async def test_what_cannot_be_served_is_refused_before_anything_listens(
    option: str, value: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=naming(option, repr(value))), trio.fail_after(20):
        await serve_http(Server("x"), **{"port": 0, "announce": False, "signals": False, option: value})


async def test_a_websocket_needs_the_path_it_is_served_under() -> None:
    with pytest.raises(ValueError, match="WebSocket is served under `path`"), trio.fail_after(20):
        await websocket.serve(Server("x"), port=0, path=None, sse_path="/sse", announce=False, signals=False)


async def test_wrong_keys_fail_the_startup_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", "secret")
    to_app, from_test = trio.open_memory_channel[dict[str, Any]](1)
    said: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    await to_app.send({"type": "lifespan.startup"})
    with trio.fail_after(5):
        await asgi_app(Server("shop"))({"type": "lifespan"}, from_test.receive, send)
    assert [message["type"] for message in said] == ["lifespan.startup.failed"]
    assert "shop could not be started: TRIO_MCP_KEYS is neither" in said[0]["message"]


async def test_a_request_to_the_server_itself_names_asgi_app() -> None:
    async def unused(*_: object) -> None:
        raise AssertionError("nothing is received or sent")

    with pytest.raises(TypeError, match=r"asgi_app\(server\)"):
        await Server("shop")({"type": "http"}, unused, unused)
