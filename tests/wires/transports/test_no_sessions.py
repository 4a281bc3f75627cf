"""`trio-mcp serve --no-sessions`: a legacy client needs no session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from serving import MODULE, child

from trio_mcp import Client
from trio_mcp.errors import PeerError

SERVER = """
import os
from trio_mcp import Context, Server

server = Server("alone")

@server.tool
def process() -> int:
    return os.getpid()

@server.tool
async def asks(ctx: Context) -> str:
    return str(await ctx.elicit("Sure?"))
"""


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    script = tmp_path / "alone.py"
    script.write_text(SERVER)
    async with child(MODULE, "trio_mcp", "serve", str(script), "--port", "0", "--no-sessions", strict=False) as server:
        yield await server.announced()


async def test_a_legacy_client_is_served_without_a_session_and_a_modern_one_as_ever(url: str) -> None:
    async with Client.connect(url, mode="legacy", on_elicit=lambda _: None) as client:  # type: ignore[arg-type,return-value]
        process = (await client.call_tool("process")).data
        assert isinstance(process, int)
        assert (await client.call_tool("asks")).is_error
        with pytest.raises(PeerError):
            await client.set_log_level("debug")
    async with Client.connect(url) as modern:
        assert modern.protocol_version == "2026-07-28"
        assert (await modern.call_tool("process")).data == process


async def test_a_session_of_another_process_is_served(url: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "process", "arguments": {}}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-session-id": "unknown",
        "mcp-protocol-version": "2025-06-18",
    }
    async with httpx2.AsyncClient() as http:
        reply = await http.post(url, json=call, headers=headers)
        assert (reply.status_code, "isError" in reply.json()["result"]) == (200, False)
        assert "mcp-session-id" not in reply.headers
        for method in ("GET", "DELETE"):
            refused = await http.request(method, url, headers={**headers, "accept": "text/event-stream"})
            assert refused.status_code == 405
