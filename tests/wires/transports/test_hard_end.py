"""A process ends in bounded time, whatever its tools do at the end or have left behind, and shows where its threads are."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from serving import MODULE, Child, child, http_client

from trio_mcp import Client

APP = Path(__file__).with_name("ending_app.py")
LARGER_PROGRAM = Path(__file__).with_name("larger_program.py")
STDIO, HTTP, WEBSOCKET = "stdio", "http", "websocket"
WIRES = [STDIO, HTTP, WEBSOCKET]
STATUS = {STDIO: 1, HTTP: 70, WEBSOCKET: 70}
QUICK = {
    STDIO: {"shutdown_grace": 0.5, "clean_up": 0.2},
    HTTP: {"port": 0, "drain": 0.2, "hard_end_after": 0.5},
    WEBSOCKET: {"port": 0, "drain": 0.2, "hard_end_after": 0.5},
}
TIME_TO_ANSWER = {STDIO: {"shutdown_grace": 1.0, "clean_up": 0.3}}
LONG_ENOUGH = {STDIO: {}, HTTP: {"port": 0, "drain": 3.0}}
NOTICE = "trio_mcp: the process did not end in time"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


@asynccontextmanager
async def running(wire: str, tool: str, options: Mapping[str, Mapping[str, float]] = QUICK) -> AsyncIterator[Child]:
    """A server in whose process a tool was called, and has begun."""
    async with child(APP, json.dumps(options[wire]), wire) as server:
        if wire == STDIO:
            await server.send(line({"id": 1, "method": "initialize", "params": HELLO}))
            await server.line()
            await server.send(line({"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {}}}))
            await said(server, "running")
            yield server
            return
        async with calling(await server.announced(), tool):
            await said(server, "running")
            yield server


@asynccontextmanager
async def calling(url: str, tool: str) -> AsyncIterator[None]:
    """Calls the tool, whatever comes of it, for the length of the block."""

    async def call() -> None:
        if url.startswith("ws:"):
            async with Client.connect(url) as client:
                await client.call_tool(tool)
                await trio.sleep_forever()
        async with http_client() as http:
            await http.call(url, tool)

    async def whatever_comes_of_it() -> None:
        # The process ends before it answers.
        with contextlib.suppress(Exception):
            await call()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(whatever_comes_of_it)
        yield
        nursery.cancel_scope.cancel()


async def said(server: Child, expected: str) -> None:
    """Wait until the server says this on stderr, after other things or not."""
    seen = [await server.error_line()]
    while seen[-1] != expected.encode():
        assert len(seen) < 100, seen
        seen.append(await server.error_line())


def line(message: dict[str, object]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}}


async def stop(server: Child, how: signal.Signals | None) -> None:
    """Send a signal; None: close its stdin."""
    if how is None:
        await server.stdin.aclose()
    else:
        server.process.send_signal(how)


async def ended(server: Child) -> tuple[int, str]:
    """Return the status with which it ends, and what it said since."""
    texts: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: errors_into(server, texts))
        status = await server.end()
    return status, "".join(texts)


async def errors_into(server: Child, texts: list[str]) -> None:
    texts.append((await server.errors()).decode())


async def ends(
    wire: str, tool: str, how: signal.Signals | None, options: Mapping[str, Mapping[str, float]] = QUICK
) -> tuple[int, str]:
    """Stop a server in whose process a tool was called; returns its status and what it said since."""
    async with running(wire, tool, options) as server:
        await stop(server, how)
        return await ended(server)


ENDS = [(STDIO, None), *((wire, signal.SIGTERM) for wire in WIRES), (HTTP, signal.SIGHUP)]


def each_end_of(first: Sequence[object], *others: Sequence[object]) -> list[tuple[object, ...]]:
    """The first of several kinds at every end, and the others at one of each kind of wire."""
    return [*((*end, *first) for end in ENDS), *((*end, *other) for end in ENDS[1:3] for other in others)]


# What a tool left behind


@pytest.mark.parametrize(("wire", "how", "tool"), each_end_of(["leaves_an_executor"], ["leaves_a_thread"]))
async def test_a_thread_that_a_tool_left_behind_does_not_keep_the_process(
    wire: str, how: signal.Signals | None, tool: str
) -> None:
    status, said = await ends(wire, tool, how)
    # It was served and returned as it should.
    assert "after run" in said
    assert NOTICE in said
    assert "in hang_for_ever" in said
    assert status == STATUS[wire]


@pytest.mark.parametrize(("wire", "how"), ENDS[:3])
async def test_what_ends_by_itself_ends_with_status_0(wire: str, how: signal.Signals | None) -> None:
    status, said = await ends(wire, "leaves_an_idle_executor", how)
    assert NOTICE not in said
    assert status == 0


@pytest.mark.parametrize("wire", [STDIO, HTTP])
async def test_a_function_that_hangs_in_a_thread_of_ours_does_not_keep_the_process(wire: str) -> None:
    status, said = await ends(wire, "hangs", signal.SIGTERM)
    assert NOTICE not in said
    assert status == 0


async def test_the_command_ends_although_a_tool_left_a_thread_behind() -> None:
    """With the times that the pages promise: the drain, and 5 seconds."""
    command = ("trio_mcp", "serve", str(APP), "--port", "0", "--drain", "0.2")
    async with child(MODULE, *command, strict=False) as server:
        async with calling(await server.announced(), "leaves_an_executor"):
            await said(server, "running")
            server.process.send_signal(signal.SIGTERM)
            status, text = await ended(server)
    assert NOTICE in text
    assert "in hang_for_ever" in text
    assert status == STATUS[HTTP]


# What a tool does at the end


@pytest.mark.parametrize(
    ("wire", "how", "tool", "where"),
    each_end_of(["deaf", "Thread MainThread"], ["blocks", "in blocks"], ["queries", "in queries"]),
)
async def test_a_tool_that_ends_by_no_cancel_does_not_keep_the_process(
    wire: str, how: signal.Signals | None, tool: str, where: str
) -> None:
    status, said = await ends(wire, tool, how)
    assert NOTICE in said
    assert where in said
    assert status == STATUS[wire]


async def test_a_signal_ends_the_process_although_a_tool_is_stuck_and_its_caller_gets_an_error() -> None:
    async with running(STDIO, "deaf", TIME_TO_ANSWER) as server:
        server.process.send_signal(signal.SIGTERM)
        assert "shutting down" in json.loads(await server.line())["error"]["message"]
        status, text = await ended(server)
    assert "deaf-1 is stuck: it was cancelled (shutdown)" in text
    assert NOTICE in text
    assert status == 1


async def test_a_closed_stdout_ends_the_process_although_a_tool_is_stuck_and_stdin_is_open() -> None:
    async with running(STDIO, "deaf") as server:
        await server.stdout.aclose()
        await server.send(line({"id": 3, "method": "ping"}))
        assert await server.end() == 1


async def test_a_signal_after_the_end_of_stdin_is_not_a_second_signal() -> None:
    """Hosts close stdin and may send SIGTERM right behind it: what runs still cleans up."""
    async with running(STDIO, "cleans_up", LONG_ENOUGH) as server:
        await server.stdin.aclose()
        await said(server, "cleaning up")
        server.process.send_signal(signal.SIGTERM)
        await said(server, "cleaned up")
        assert await server.end() == 0


@pytest.mark.parametrize("wire", [STDIO, HTTP])
async def test_a_signal_that_is_ignored_stays_so(wire: str) -> None:
    """As `nohup` starts a program; SIGTERM still ends it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with running(wire, "cleans_up", LONG_ENOUGH) as server:
            server.process.send_signal(signal.SIGHUP)
            await assert_serves(server)
            server.process.send_signal(signal.SIGTERM)
            await said(server, "cleaned up")
            assert await server.end() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


async def assert_serves(server: Child) -> None:
    if server.url:
        async with httpx2.AsyncClient() as http:
            assert (await http.get(server.url.replace("/mcp", "/ready"))).text == "ready"
    else:
        await server.send(line({"id": 3, "method": "ping"}))
        assert json.loads(await server.line())["id"] == 3


@pytest.mark.parametrize("tool", ["matches", "locks"])
@pytest.mark.parametrize("wire", [STDIO, HTTP])
async def test_a_tool_that_keeps_the_lock_of_the_interpreter_does_not_keep_the_process(wire: str, tool: str) -> None:
    options = {wire: {**QUICK[wire], "gil_grace": 1.0}}
    status, said = await ends(wire, tool, signal.SIGTERM, options)
    # No Python code could show where it is, so Python's own watchdog did, which has one status only.
    assert NOTICE not in said
    assert "Timeout (" in said
    assert f"in {tool}" in said
    assert status == 1


@pytest.mark.parametrize("round", range(3))
async def test_the_stacks_of_threads_that_run_are_shown_without_a_crash(round: int) -> None:
    status, said = await ends(STDIO, "leaves_busy_threads", signal.SIGTERM)
    assert "in spin_for_ever" in said
    assert status == 1


async def test_a_stderr_that_is_not_read_does_not_keep_the_process() -> None:
    reader, stderr = os.pipe()
    try:
        fill(stderr)
        async with child(APP, json.dumps(QUICK[STDIO]), stderr=stderr) as server:
            await server.send(line({"id": 1, "method": "initialize", "params": HELLO}))
            await server.line()
            # It hangs at its first word.
            await server.send(line({"id": 2, "method": "tools/call", "params": {"name": "blocks", "arguments": {}}}))
            server.process.send_signal(signal.SIGTERM)
            assert await server.end() == 1
    finally:
        os.close(reader)
        os.close(stderr)


def fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, bytes(4096))
    os.set_blocking(pipe, True)


# Programs that do more than to serve


@pytest.mark.parametrize("how", ["serve", "run"])
async def test_a_program_that_serves_among_other_things_keeps_its_threads(how: str) -> None:
    """It ends when its work is done, which takes longer than the shutdown may; also if that comes after `run`."""
    async with child(LARGER_PROGRAM, how) as program:
        await said(program, "serving")
        program.process.send_signal(signal.SIGTERM)
        status, text = await ended(program)
    assert text.splitlines()[-1] == "the work is done"
    assert status == 0
