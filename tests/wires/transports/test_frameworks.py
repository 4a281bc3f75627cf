"""Mounted below a prefix in an application of Starlette, FastAPI or Quart-Trio, a server is served as it is alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from serving import IMPORTS, SOON, START

from trio_mcp import Client

HERE = Path(__file__).parent
APPS = ["in_starlette", "in_starlette_without_lifespan", "in_fastapi", "in_quart"]
LINE = b"Running on http://"


@asynccontextmanager
async def under_hypercorn(app: str) -> AsyncIterator[str]:
    """The URL of an application that `hypercorn -k trio` serves in another process."""
    command = [sys.executable, "-m", "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", f"frameworks_app:{app}"]
    process = await trio.lowlevel.open_process(
        command, cwd=HERE, env={**os.environ, **IMPORTS}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    said = b""
    try:
        with trio.fail_after(START):
            while LINE not in said or not said.partition(LINE)[2].count(b" "):
                data = await process.stderr.receive_some()
                assert data, said.decode()
                said += data
        yield "http://" + said.partition(LINE)[2].split()[0].decode()
        process.terminate()
        with trio.fail_after(SOON):
            assert await process.wait() == 0
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


async def until(lines: AsyncIterator[str], start: str) -> str:
    """The next line that begins so."""
    async for line in lines:
        if line.startswith(start):
            return line
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("app", APPS)
async def test_a_mounted_server_is_found_below_its_prefix_over_every_wire(app: str) -> None:
    async with under_hypercorn(app) as url, httpx2.AsyncClient() as http:
        with trio.fail_after(START):
            assert "home" in (await http.get(url)).text
            for mode in ("modern", "legacy"):
                async with Client.connect(f"{url}/tools/mcp", mode=mode, headers={"x-user": "ann"}) as client:
                    assert (await client.call_tool("whoami")).text == "ann, opened"
            # HTTP+SSE names the path to post to, which is below the prefix too.
            async with http.stream("GET", f"{url}/tools/sse") as stream, aclosing(stream.aiter_lines()) as lines:
                path = (await until(lines, "data: "))[6:]
                assert path.startswith("/tools/message?session_id=")
                assert (await http.post(url + path, json=PING)).status_code == 202
                assert json.loads((await until(lines, "data: "))[6:])["id"] == 7
            async with Client.connect(f"ws{url[4:]}/tools/mcp", headers={"x-user": "bob"}) as client:
                assert (await client.call_tool("whoami")).text == "bob, opened"
            assert (await http.get(f"{url}/tools/where")).text == "/tools /where"
            assert (await http.get(f"{url}/tools/health")).text == "ok"
            assert (await http.get(f"{url}/tools/ready")).text == "ready"
            missing = await http.get(f"{url}/tools/nothing")
            assert "/tools/mcp" in missing.text
            foreign = await http.post(f"{url}/tools/mcp", headers={"host": "evil.example"})
            assert foreign.status_code == 421
