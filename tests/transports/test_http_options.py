"""What cannot be served is refused where it is written, in words that say what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from naming import naming

from trio_mcp import Server
from trio_mcp_transports.entry_points import websocket
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.http.server.serve import serve_http

BOUND = 20

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
    with pytest.raises(kind, match=naming(option, repr(value))), trio.fail_after(BOUND):
        await serve_http(Server("x"), **{"port": 0, "announce": False, "signals": False, option: value})


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
