"""An application that cannot be started says so, instead of being served without ever having been started."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import Server, ServiceOptions
from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.sealing.request_state import KeyRing
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


async def test_wrong_keys_are_an_error_of_the_one_who_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", "secret")
    with pytest.raises(ConfigurationError, match="TRIO_MCP_KEYS"), trio.fail_after(5):
        await Server("shop").serve("http", port=0)


async def test_keys_that_were_given_make_those_of_the_environment_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", "secret")
    serve = partial(Server("shop", options=ServiceOptions(keys=KeyRing.random())).serve, "http", port=0, announce=False)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(20):
            (url,) = await nursery.start(partial(serve, signals=False))
        assert url.startswith("http://")
        nursery.cancel_scope.cancel()


SERVER_MODULE = """
from trio_mcp import Server

server = Server("shop")
"""


async def test_hypercorn_given_the_server_itself_fails_at_the_start_and_names_asgi_app(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SERVER_MODULE)
    command = [sys.executable, "-m", "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", "shop:server"]
    with trio.fail_after(60):
        process = await trio.run_process(command, cwd=tmp_path, capture_stderr=True, check=False)
    assert b"asgi_app(server)" in process.stderr  # and it has ended; its exit status is hypercorn's own


async def test_a_request_to_the_server_itself_names_asgi_app() -> None:
    async def unused(*_: object) -> None:
        raise AssertionError("nothing is received or sent")

    with pytest.raises(TypeError, match=r"asgi_app\(server\)"):
        await Server("shop")({"type": "http"}, unused, unused)
