"""A server of many clients loads what calls may need before it serves, and not when a call needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trio_mcp import Client, Server
from trio_mcp.server import running

ROOT = Path(__file__).parents[2]

EVERY_QUESTION = """
import sys
sys.path[:0] = {sources!r}
import trio
from trio_mcp import Client, Context, Server, accept
from trio_mcp.server import running

server = Server("asks")

@server.tool
async def idle(ctx: Context) -> str:
    return "done"

@server.tool
async def asks(ctx: Context) -> str:
    await ctx.step("look", dict)
    await ctx.elicit("How many?", int)
    await ctx.elicit.strict("Which?", str)
    await ctx.elicit_url("Connect", "https://example.com/connect", wait=False)
    await ctx.roots()
    await ctx.sample("Hello")
    await ctx.sample_schema("A number", int)
    await ctx.run_tool_loop("Hello", [look])
    await ctx.branch_all(child, child)
    return "done"

VALUES = {{"How many?": 3, "Which?": "b", "Sure?": True}}

def look(at: str) -> str:
    return at

async def child(child: Context) -> bool:
    return (await child.elicit("Sure?", bool)).action == "accept"

async def call(mode, name):
    answers = dict(
        on_elicit=lambda params: accept(value=VALUES[params.message]),
        on_elicit_url=lambda params: accept(),
        on_sample=lambda params: '{{"result": 3}}',
        on_roots=lambda: [],
        sample_tools=True,
    )
    async with Client.connect(server, mode=mode, **answers) as client:
        with trio.fail_after(20):
            result = await client.call_tool(name)
        assert result.text == "done", result.text
        return {{*sys.modules}}

async def main():
    for mode in ("legacy", "modern"):
        await call(mode, "idle")
    running.load_for_calls()
    before = {{*sys.modules}}
    for mode in ("legacy", "modern"):
        await call(mode, "asks")
    print(*sorted({{*sys.modules}} - before))

trio.run(main)
"""


def test_a_call_that_asks_loads_nothing_more_of_the_server() -> None:
    script = EVERY_QUESTION.format(sources=[str(ROOT), str(ROOT / "transports")])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    of_client = ("trio_mcp.client.", "trio_mcp.session.client", "trio_mcp.session.received_tasks")
    assert [name for name in done.stdout.split() if not name.startswith(of_client)] == []


async def test_a_service_of_many_connections_has_loaded_it_when_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(running, "modules_in_calls", lambda: ["module_of_a_table"])
    monkeypatch.setattr(running, "OTHERS", ("module_to_load_ahead",))
    monkeypatch.setattr(running, "import_module", loaded.append)
    async with Server("x").open_service():
        assert loaded == ["module_of_a_table", "module_to_load_ahead"]


async def test_a_service_of_one_channel_loads_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(running, "OTHERS", ("module_to_load_ahead",))
    monkeypatch.setattr(running, "import_module", loaded.append)
    async with Client.connect(Server("x")):
        assert loaded == []
