"""A server of many clients loads what calls may need in a thread, and not in the event loop when a call needs it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Server
from trio_mcp.server import preloading

ROOT = Path(__file__).parents[2]
SOON = 10.0

EVERY_QUESTION = """
import sys
sys.path[:0] = {sources!r}
import trio
from trio_mcp import Client, Context, Server, accept
from trio_mcp.server import preloading

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
    await preloading.load_for_calls()
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


async def loads_ahead(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads in which something had been loaded when a service was open."""
    threads: list[threading.Thread] = []

    def import_module(_name: str) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(preloading, "MODULES", ("module_to_load_ahead",))
    monkeypatch.setattr(preloading, "import_module", import_module)
    async with Server("x").open_service():
        return list(threads)


async def test_a_service_of_many_connections_loads_it_in_a_thread_before_it_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (thread,) = await loads_ahead(monkeypatch)
    assert thread is not threading.main_thread()


async def test_under_virtual_time_nothing_is_loaded_ahead(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    assert autojump_clock.autojump_threshold == 0
    assert await loads_ahead(monkeypatch) == []


async def test_a_service_that_ends_waits_for_one_module_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    began = trio.Event()
    goes_on = threading.Event()

    def import_module(name: str) -> None:
        loaded.append(name)
        trio.from_thread.run_sync(began.set)
        assert goes_on.wait(SOON)

    monkeypatch.setattr(preloading, "MODULES", ("module_to_load_first", "module_to_load_second"))
    monkeypatch.setattr(preloading, "import_module", import_module)
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(preloading.load_for_calls)
            await began.wait()
            nursery.cancel_scope.cancel()
            goes_on.set()
    assert loaded == ["module_to_load_first"]
