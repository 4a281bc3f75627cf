"""Under an ASGI server that runs on asyncio nothing can be served: each answer says so, and no probe says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from asgi_peer import JSON_HEADERS, modern_call

from trio_mcp import HttpOptions, Server
from trio_mcp_transports.http import McpApp, McpApps, asgi_app

WORD = b"hypercorn -k trio"


async def nobody(_: Mapping[str, str]) -> None:
    return None


def answer_of(app: McpApp | McpApps, scope: Mapping[str, object], *sent: Mapping[str, object]) -> list[dict[str, Any]]:
    """What an application that is called on asyncio sends for one request."""
    incoming, answered = [*sent], list[dict[str, Any]]()

    async def receive() -> Mapping[str, object]:
        return incoming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        answered.append(message)

    async def main() -> None:
        async with asyncio.timeout(10):
            await app(dict(scope), receive, send)

    asyncio.run(main())
    return answered


APPS = {
    "open": lambda: asgi_app(Server("shop")),
    "authenticated": lambda: asgi_app(Server("shop", http=HttpOptions(authenticate=nobody))),
    "several": lambda: asgi_app({"/shop": Server("shop")}),
}


@pytest.mark.parametrize("kind", APPS)
@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_a_probe_is_503_on_another_event_loop_and_says_what_to_write(kind: str, path: str) -> None:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    head, body = answer_of(APPS[kind](), scope)
    assert head["status"] == 503
    assert WORD in body["body"]


@pytest.mark.parametrize("kind", APPS)
def test_a_call_is_503_on_another_event_loop_and_says_what_to_write(kind: str) -> None:
    _, headers = modern_call("count")
    lines = [(name.encode(), value.encode()) for name, value in {**JSON_HEADERS, **headers}.items()]
    path = "/shop/mcp" if kind == "several" else "/mcp"
    scope = {"type": "http", "method": "POST", "path": path, "headers": lines, "query_string": b""}
    head, body = answer_of(APPS[kind](), scope, {"type": "http.request", "body": b"{}"})
    assert head["status"] == 503
    assert WORD in body["body"]
