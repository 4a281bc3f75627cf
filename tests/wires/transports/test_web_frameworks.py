"""Mounted below a prefix in an application of Starlette, FastAPI or Quart-Trio, a server is served as it is alone."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from serving import MODULE, START, child

from trio_mcp import Client

APPS = ["in_starlette", "in_starlette_without_lifespan", "in_fastapi", "in_quart"]


@asynccontextmanager
async def under_hypercorn(app: str) -> AsyncIterator[str]:
    """The URL of an application that `hypercorn -k trio` serves in another process."""
    command = ("hypercorn", "-k", "trio", "-b", "127.0.0.1:0", f"frameworks_app:{app}")
    async with child(MODULE, *command, strict=False, cwd=Path(__file__).parent, start_new_session=True) as host:
        yield await host.announced()
        host.process.send_signal(signal.SIGTERM)
        assert await host.end() == 0


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


async def until(stream: trio.SocketStream, pattern: bytes) -> str:
    """What the pattern captures in what comes next."""
    data = b""
    while not (found := re.search(pattern, data)):
        more = bytes(await stream.receive_some())
        assert more, data
        data += more
    return found[1].decode()


@pytest.mark.parametrize("app", APPS)
async def test_a_mounted_server_is_found_below_its_prefix_over_every_wire(app: str) -> None:
    async with under_hypercorn(app) as url, httpx2.AsyncClient() as http:
        with trio.fail_after(START):
            assert "home" in (await http.get(url)).text
            for mode in ("modern", "legacy"):
                async with Client.connect(f"{url}/tools/mcp", mode=mode, headers={"x-user": "ann"}) as client:
                    assert (await client.call_tool("whoami")).text == "ann, opened"
            # HTTP+SSE names the path to post to, which is below the prefix too.
            async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
                await stream.send_all(b"GET /tools/sse HTTP/1.1\r\nhost: localhost\r\n\r\n")
                path = await until(stream, rb"data: (\S+)\s")
                assert path.startswith("/tools/message?session_id=")
                assert (await http.post(url + path, json=PING)).status_code == 202
                assert await until(stream, rb'"id":(\d+)') == "7"
            async with Client.connect(f"ws{url[4:]}/tools/mcp", headers={"x-user": "bob"}) as client:
                assert (await client.call_tool("whoami")).text == "bob, opened"
            assert (await http.get(f"{url}/tools/where")).text == "/tools /where"
            assert (await http.get(f"{url}/tools/health")).text == "ok"
            assert (await http.get(f"{url}/tools/ready")).text == "ready"
            missing = await http.get(f"{url}/tools/nothing")
            assert "/tools/mcp" in missing.text
            foreign = await http.post(f"{url}/tools/mcp", headers={"host": "evil.example"})
            assert foreign.status_code == 421
