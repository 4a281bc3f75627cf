"""What cannot be served is refused where it is written, in words that say what to write instead."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio

from trio_mcp import Server
from trio_mcp_transports.entry_points import websocket
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.http.server.serve import serve_http

BOUND = 20

ACCESS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"allowed_hosts": "mcp.example.com"},
        TypeError,
        "allowed_hosts must be a list, such as ['mcp.example.com'], not 'mcp.example.com'",
    ),
    ({"allowed_hosts": 3}, TypeError, "allowed_hosts must be a list, such as ['mcp.example.com'], not 3"),
    ({"allowed_hosts": [3]}, TypeError, "each item of allowed_hosts must be a string, not 3"),
    ({"allowed_hosts": ["https://mcp.example.com"]}, ValueError, "is no host name: write it as 'mcp.example.com'"),
    ({"allowed_hosts": ["mcp.example.com:443"]}, ValueError, "without scheme, port and path"),
    ({"allowed_hosts": ["*"]}, ValueError, "allowed_hosts: '*' is no host name"),
    ({"allowed_hosts": ["::1"]}, ValueError, "write it as '[::1]'"),
    ({"allowed_hosts": [""]}, ValueError, "allowed_hosts: '' is no host name"),
    (
        {"allowed_origins": "https://app.example.com"},
        TypeError,
        "allowed_origins must be a list, such as ['https://app.example.com']",
    ),
    ({"allowed_origins": ["app.example.com"]}, ValueError, "'app.example.com' is no origin: write it as 'https://app."),
    ({"allowed_origins": ["https://app.example.com/"]}, ValueError, "with a scheme and without a path"),
    ({"allowed_origins": ["*"]}, ValueError, "allowed_origins: '*' is no origin"),
    ({"allowed_origins": ["null"]}, ValueError, "allowed_origins: 'null' is no origin"),
    ({"limits": 3}, TypeError, "limits must be HttpLimits(...), not 3"),
]


@pytest.mark.parametrize(("options", "kind", "text"), ACCESS, ids=str)
def test_a_name_that_no_request_could_have_is_refused(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        asgi_app(Server("x"), **options)


def test_names_and_origins_as_requests_have_them_are_taken() -> None:
    hosts = ["mcp.example.com", "MCP.example.com.", "localhost", "[::1]", "10.0.0.1"]
    asgi_app(
        Server("x"),
        allowed_hosts=hosts,
        allowed_origins=["https://a.example:8443", "vscode-webview://abc", "http://[::1]:3"],
    )


SERVED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"port": "8000"}, TypeError, "port must be a whole number from 0 to 65535, not '8000'"),
    ({"port": 99999}, ValueError, "port must be a whole number from 0 to 65535, not 99999"),
    ({"port": -1}, ValueError, "port must be a whole number from 0 to 65535, not -1"),
    ({"drain": -1}, ValueError, "drain must be a finite number of seconds, 0 or more, not -1"),
    ({"drain": float("nan")}, ValueError, "drain must be a finite number of seconds, 0 or more, not nan"),
    ({"drain": float("inf")}, ValueError, "drain must be a finite number of seconds, 0 or more, not inf"),
    ({"drain": "10"}, TypeError, "drain must be a finite number of seconds, 0 or more, not '10'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), SERVED, ids=str)
async def test_what_cannot_be_served_is_refused_before_anything_listens(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)), trio.fail_after(BOUND):
        await serve_http(Server("x"), **{"port": 0, "announce": False, "signals": False, **options})


async def test_a_websocket_needs_the_path_it_is_served_under() -> None:
    with pytest.raises(ValueError, match="WebSocket is served under `path`"), trio.fail_after(BOUND):
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
