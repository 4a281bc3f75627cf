"""How a server over HTTP starts: where it listens, what it tells of its addresses, and what keeps it from starting."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import served

from trio_mcp import Client, Disconnected, Server, ServiceOptions
from trio_mcp.errors import ConfigurationError
from trio_mcp.session import KeyRing
from trio_mcp_transports.http import serve_http

BOUND = 20


async def test_it_is_served_on_this_machine_only_by_default() -> None:
    async with served(Server("x")) as url:
        assert url.startswith("http://127.0.0.1:")
    with pytest.raises(ValueError, match="allowed_hosts"):
        await serve_http(Server("x"), host="0.0.0.0", announce=False)


async def test_keys_that_were_given_make_those_of_the_environment_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", "secret")
    async with served(Server("shop", options=ServiceOptions(keys=KeyRing.random()))) as url:
        assert url.startswith("http://")


async def test_a_store_without_keys_is_reported_once_and_no_server_is_announced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    server = Server("shop", options=ServiceOptions(store=str(tmp_path / "state.db")))
    with pytest.raises(ConfigurationError, match="TRIO_MCP_KEYS"), trio.fail_after(BOUND):
        await server.serve("http", port=0)
    assert caplog.messages == []
    assert "serves MCP" not in capsys.readouterr().err


async def test_the_urls_have_the_scheme_of_their_transport() -> None:
    serve = partial(Server("x").serve, "websocket", port=0, sse_path="/sse", announce=False, signals=False)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(BOUND):
            urls = await nursery.start(serve)
        nursery.cancel_scope.cancel()
    assert [re.sub(r"\d{4,}", "PORT", url) for url in urls] == ["ws://127.0.0.1:PORT/mcp", "http://127.0.0.1:PORT/sse"]


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        ({"sse_path": "/sse"}, "/sse", "There is no WebSocket here; it is at /mcp."),
        ({"sse_path": "/sse"}, "/", "There is no WebSocket here; it is at /mcp."),
        ({"sse_path": "/sse", "path": None}, "/sse", "This server speaks no WebSocket; the MCP endpoint is /sse."),
    ],
)
async def test_a_client_that_asks_for_a_websocket_at_a_wrong_path_learns_the_right_one(
    options: dict[str, Any], path: str, said: str
) -> None:
    async with served(Server("x"), **options) as url:
        origin = url.replace("http:", "ws:").rpartition("/")[0]
        with trio.fail_after(BOUND), pytest.raises(Disconnected, match=re.escape(f"HTTP 404: {said}")):
            await Client.connect(origin + path).open()


async def test_a_client_that_expects_tls_where_there_is_none_gets_an_error() -> None:
    async with served(Server("x")) as url:
        said = re.escape("no TLS is spoken there; is it ws:// instead of wss://?")
        with trio.fail_after(BOUND), pytest.raises(Disconnected, match=said):
            await Client.connect(url.replace("http:", "wss:")).open()
