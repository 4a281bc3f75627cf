"""An application that cannot be started says so, instead of being served without ever having been started."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_mcp import Server
from trio_mcp_transports.http import asgi_app


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
