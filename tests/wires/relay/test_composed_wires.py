"""Proxies and mounted servers over real wires: what is behind them is a process, or listens at a URL."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from far_server import server as far_server
from naming import unnamed
from serving import IMPORTS, child, http_process, served
from waiting import until

from trio_mcp import Client, McpError, PeerError, Server, accept, proxy
from trio_mcp.client import Change
from trio_mcp.relay import Proxy
from trio_mcp.types import TextContent, TextResourceContents

BOUND = 60.0
FAR = Path(__file__).parent / "far_server.py"
COMMAND = [sys.executable, str(FAR)]

HANDSHAKE = b"""\
{"jsonrpc": "2.0", "id": "open", "method": "initialize", "params":
 {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}}
""".replace(b"\n ", b" ")

eras = pytest.mark.parametrize("mode", ["legacy", "modern"])
ways = pytest.mark.parametrize("way", ["alone", "mounted"])


def by(way: str, target: Any, **options: Any) -> Server | Proxy:
    found = proxy(target, name="far", **options)
    if way == "alone":
        return found
    outer = Server("outer")
    outer.mount("f", found)
    return outer


@asynccontextmanager
async def composed(way: str, behind: str, front: str) -> AsyncIterator[object]:
    """What a client connects to: over HTTP or in memory, with a child process or a URL behind it."""
    server = by(way, COMMAND, env=IMPORTS) if behind == "command" else by(way, behind)
    if front == "http":
        async with served(server) as url:  # type: ignore[arg-type]
            yield url
    else:
        yield server


@pytest.mark.parametrize(("behind", "front"), [("command", "http"), ("url", "memory"), ("url", "http")])
@eras
@ways
async def test_a_conversation_over_real_wires(way: str, mode: Any, behind: str, front: str) -> None:
    prefix, place = ("", "") if way == "alone" else ("f_", "f/")
    progress: list[float] = []
    logs: list[object] = []
    handlers: dict[str, Any] = {
        "on_elicit": lambda _question: accept(value="Ann"),
        "on_sample": lambda _request: "hello",
        "on_log": lambda entry: logs.append(entry.data),
    }
    with trio.fail_after(BOUND):
        async with served(far_server) as url, composed(way, url if behind == "url" else behind, front) as target:
            async with Client.connect(target, mode=mode, **handlers) as client:
                assert f"{prefix}talk" in [tool.name for tool in await client.list_tools()]
                talked = await client.call_tool(
                    f"{prefix}talk", on_progress=lambda each: progress.append(each.progress)
                )
                assert talked.text == "Ann: hello"
                (contents,) = (await client.read_resource(f"note://{place}one")).contents
                assert isinstance(contents, TextResourceContents)
                assert contents.text == "one"
                (message,) = (await client.get_prompt(f"{prefix}greet", {"name": "Bob"})).messages
                assert message.content == TextContent(text="Greet Bob.")
                await cancelled(client, prefix)
                uri = f"note://{place}one"
                async with client.listen(tools=True, uris=[uri]) as changes:
                    await client.call_tool(f"{prefix}change")
                    assert {(await anext(changes)).uri for _ in range(2)} == {None, uri}
                assert f"{prefix}another" in [tool.name for tool in await client.list_tools()]
    if behind == "url":
        far_server.remove_tool("another")
    assert (progress, logs) == ([1], ["careful"])


async def cancelled(client: Client, prefix: str) -> None:
    """Cancel a call; it ends at the server."""
    began = trio.Event()
    async with trio.open_nursery() as nursery:
        hold = lambda: client.call_tool(f"{prefix}hold", on_progress=lambda _report: began.set())  # noqa: E731
        nursery.start_soon(hold)
        await began.wait()
        assert "hold" in str((await client.call_tool(f"{prefix}running")).data)
        nursery.cancel_scope.cancel()
    while "hold" in str((await client.call_tool(f"{prefix}running")).data):
        await trio.lowlevel.checkpoint()


@eras
async def test_a_mounted_command_that_ends_is_started_again(mode: Any) -> None:
    outer = by("mounted", COMMAND, env=IMPORTS)
    with trio.fail_after(BOUND):
        async with Client.connect(outer, mode=mode) as client:
            first = (await client.call_tool("f_process_id")).data
            with pytest.raises(PeerError) as caught:
                await client.call_tool("f_end")
            assert not unnamed(str(caught.value), "far")
            assert (await client.call_tool("f_process_id")).data != first


@eras
@pytest.mark.parametrize("far_era", ["legacy", "modern", "both"])
async def test_a_command_that_ends_is_started_again_in_the_session_of_its_host(mode: Any, far_era: str) -> None:
    served_by = by("alone", COMMAND, env={**IMPORTS, "FAR_ERA": far_era})
    with trio.fail_after(BOUND):
        async with Client.connect(served_by, mode=mode, reconnect=False) as client:
            first = (await client.call_tool("process_id")).data
            with pytest.raises(McpError) as caught:
                await client.call_tool("end")
            assert not unnamed(str(caught.value), "far")
            assert (await client.call_tool("process_id")).data != first


async def test_a_proxy_on_stdio_goes_on_when_its_server_over_http_is_started_again(tmp_path: Path) -> None:
    async with http_process(FAR) as far:
        file = tmp_path / "app.py"
        file.write_text(f"from trio_mcp import proxy\napp = proxy({far.url!r}, name='far')\n")
        command = [sys.executable, "-m", "trio_mcp", "run", str(file)]
        changes: list[Change] = []
        with trio.fail_after(BOUND):
            async with Client.connect(
                command, mode="legacy", env=IMPORTS, reconnect=False, on_change=changes.append
            ) as client:
                first = (await client.call_tool("process_id")).data
                await far.kill()
                with pytest.raises(PeerError):
                    await client.call_tool("process_id")
                await far.start()
                assert (await client.call_tool("process_id")).data != first
                assert (await client.call_tool("change")).text == "changed"
                await until(lambda: any(change.kind == "tools" for change in changes))
                assert "another" in [tool.name for tool in await client.list_tools()]


async def test_a_proxy_as_a_program_says_why_it_ends(tmp_path: Path) -> None:
    never = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit(7)"]
    file = tmp_path / "app.py"
    file.write_text(f"from trio_mcp import proxy\napp = proxy({never!r}, name='far', env={IMPORTS!r})\n")
    async with child(Path("-m"), "trio_mcp", "run", str(file), strict=False) as proxied:
        await proxied.send(HANDSHAKE)
        answer = json.loads(await proxied.line())
        assert (answer["id"], answer["error"]["code"]) == ("open", -32603)
        for text in (answer["error"]["message"], (await proxied.errors()).decode()):
            assert not unnamed(text, "far", "status 7")
        assert await proxied.end() == 3
