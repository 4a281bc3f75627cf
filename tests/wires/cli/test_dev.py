"""`trio-mcp dev` as a process: a file is saved, sessions stay, and new calls use the new code; over HTTP and on stdio."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from command import COMMAND, ENVIRONMENT, SECONDS, refused

from trio_mcp import Client, accept

APP = """\
from contextlib import asynccontextmanager
import sys
from trio_mcp import Context, Server
import neighbour

VERSION = "one"

@asynccontextmanager
async def lifespan(server):
    print(f"opened {VERSION}", file=sys.stderr)
    yield VERSION
    print(f"closed {VERSION}", file=sys.stderr)

server = Server("app", version="1", lifespan=lifespan)

@server.tool
async def show() -> str:
    return f"{VERSION} {neighbour.TEXT}"

@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Go on?", bool)
    return f"{VERSION} {ctx.state} {answer.action}"

@server.prompt
def greet() -> str:
    return "Hello."

if __name__ == "__main__":
    raise AssertionError("the guard was not honoured")
"""
MODES = ["legacy", "modern"]


class Child:
    """A running `trio-mcp dev`: what it says on stderr, and its files."""

    def __init__(self, folder: Path, stderr: trio.abc.ReceiveStream) -> None:
        self.app = folder / "app.py"
        self._folder = folder
        self._stderr = stderr
        self._lines: list[str] = []
        self._rest = b""

    async def says(self, text: str) -> str:
        """Wait for a line with this text; lines before it are dropped."""
        with trio.fail_after(SECONDS):
            while True:
                while self._lines:
                    line = self._lines.pop(0)
                    if text in line:
                        return line
                data = await self._stderr.receive_some()
                assert data, f"it ended before it said {text!r}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self._lines += [each.decode() for each in lines]

    def write(self, name: str, text: str) -> None:
        """Save a file as many editors do: a new file takes its place."""
        new = self._folder / f".{name}.new"
        new.write_text(text)
        new.replace(self._folder / name)

    def edit(self, old: str, new: str) -> None:
        """Save the file in place."""
        text = self.app.read_text()
        assert old in text
        self.app.write_text(text.replace(old, new))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "neighbour.py").write_text("TEXT = 'a'\n")
    return tmp_path


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def over_http(
    folder: Path, *options: str, before: Callable[[Child], Awaitable[None]] | None = None
) -> AsyncIterator[tuple[Child, Connect]]:
    command = [*COMMAND, "dev", str(folder / "app.py"), "--port", "0", "--drain", "1", *options]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=folder)
    assert process.stderr is not None
    async with process.stderr:
        child = Child(folder, process.stderr)

        def connect(mode: str, **more: Any) -> AbstractAsyncContextManager[Client]:
            return Client.connect(url, mode=mode, **more)  # type: ignore[arg-type]

        try:
            if before is not None:
                await before(child)
            url = (await child.says("serves MCP at")).split()[-1]
            yield child, connect
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(SECONDS):
                assert await process.wait() == 0
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


@asynccontextmanager
async def on_stdio(folder: Path, *options: str) -> AsyncIterator[tuple[Child, Connect]]:
    read, write = os.pipe()
    command = [*COMMAND, "dev", str(folder / "app.py"), "--stdio", *options]
    async with trio.lowlevel.FdStream(read) as stderr:
        child = Child(folder, stderr)

        @asynccontextmanager
        async def connect(mode: str, **more: Any) -> AsyncIterator[Client]:
            async with Client.connect(command, mode=mode, env=ENVIRONMENT, stderr=write, cwd=folder, **more) as client:  # type: ignore[arg-type]
                os.close(write)
                yield client

        yield child, connect


wires = pytest.mark.parametrize("serve", [over_http, on_stdio], ids=["http", "stdio"])
eras = pytest.mark.parametrize("mode", MODES)


async def shown(client: Client) -> str:
    with trio.fail_after(SECONDS):
        return (await client.call_tool("show")).text


@wires
@eras
async def test_a_client_stays_connected_while_the_code_changes_and_fails_and_recovers(
    serve: Any, mode: str, folder: Path
) -> None:
    async with serve(folder) as (child, connect), connect(mode) as client:
        assert await shown(client) == "one a"
        child.edit('"one"', '"two"')
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"
        child.write("neighbour.py", "TEXT = 'b'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "two b"
        child.write("neighbour.py", "TEXT = 'c\n")
        await child.says("the old code stays")
        assert "neighbour.py, line 1" in await child.says("line 1")
        await child.says("SyntaxError")
        assert await shown(client) == "two b"
        child.write("neighbour.py", "TEXT = 'd'\n")
        await child.says("reloaded neighbour.py")
        assert await shown(client) == "two d"
        child.edit('version="1"', 'version="2"')
        assert "version" in await child.says("restart to apply")
        assert client.server_info.version == "1"


@wires
@eras
async def test_a_call_that_waits_for_its_user_ends_with_its_code_and_lifespan(
    serve: Any, mode: str, folder: Path
) -> None:
    asked, answer = trio.Event(), trio.Event()
    texts: list[str] = []

    async def on_elicit(_question: object) -> object:
        asked.set()
        await answer.wait()
        return accept(value=True)

    async def ask(client: Client) -> None:
        texts.append((await client.call_tool("ask")).text)

    async with serve(folder) as (child, connect), connect(mode, on_elicit=on_elicit) as client:
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, client)
                await asked.wait()
                child.edit('"one"', '"two"')
                await child.says("opened two")
                assert "1 call goes on with the old code" in await child.says("reloaded app.py")
                assert await shown(client) == "two a"
                answer.set()
        await child.says("closed one")
        assert texts == ["one one accept"]


@wires
@eras
async def test_a_client_is_notified_of_the_list_that_has_changed(serve: Any, mode: str, folder: Path) -> None:
    async with serve(folder) as (child, connect), connect(mode) as client:
        with trio.fail_after(SECONDS):
            async with client.listen(tools=True, prompts=True) as changes:
                child.edit("async def show", "async def reveal")
                await child.says("tools changed")
                assert (await anext(aiter(changes))).kind == "tools"
                assert [tool.name for tool in await client.list_tools()] == ["reveal", "ask"]


async def test_a_file_that_is_deleted_and_made_again_is_reloaded(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        child.app.unlink()
        await child.says("the old code stays")
        assert await shown(client) == "one a"
        child.write("app.py", APP.replace('"one"', '"two"'))
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"


async def test_many_saves_in_a_row_end_with_the_last_version(folder: Path) -> None:
    async with over_http(folder) as (child, connect), connect("modern") as client:
        for number in range(30):
            child.write("neighbour.py", f"TEXT = {number}\n")
            await trio.lowlevel.checkpoint()
        with trio.fail_after(SECONDS):
            while await shown(client) != "one 29":
                await child.says("reloaded neighbour.py")


@pytest.mark.parametrize(
    "broken",
    ["1 / 0\n", "def (:\n", "import not_there_yet\n", "x = 1\n"],
    ids=["raises", "syntax", "import", "no server"],
)
async def test_a_file_that_cannot_be_loaded_at_the_start_is_served_when_it_can(broken: str, folder: Path) -> None:
    (folder / "app.py").write_text(broken)

    async def mend(child: Child) -> None:
        await child.says("cannot be loaded")
        child.write("app.py", APP)

    async with over_http(folder, before=mend) as (child, connect), connect("modern") as client:
        assert await shown(client) == "one a"
        child.edit('"one"', '"two"')
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"


async def test_a_neighbour_that_is_missing_at_the_start_is_found_when_it_is_there(folder: Path) -> None:
    (folder / "neighbour.py").unlink()

    async def mend(child: Child) -> None:
        await child.says("No module named 'neighbour'")
        child.write("neighbour.py", "TEXT = 'new'\n")

    async with over_http(folder, before=mend) as (_, connect), connect("legacy") as client:
        assert await shown(client) == "one new"


async def test_a_host_is_answered_as_soon_as_the_file_can_be_loaded(folder: Path) -> None:
    (folder / "app.py").write_text("def (:\n")
    async with on_stdio(folder) as (child, connect), trio.open_nursery() as nursery:

        async def mend() -> None:
            await child.says("SyntaxError")
            child.write("app.py", APP)

        nursery.start_soon(mend)
        async with connect("legacy") as client:
            assert await shown(client) == "one a"


@pytest.mark.parametrize(
    ("mode", "number", "status"),
    [
        ("http", signal.SIGINT, 0),
        ("http", signal.SIGTERM, 0),
        ("http", signal.SIGHUP, 0),
        ("stdio", signal.SIGINT, 130),
        ("stdio", signal.SIGTERM, 0),
        ("stdio", None, 0),
    ],
)
async def test_waiting_for_a_file_ends_by_a_signal_or_with_its_host(
    mode: str, number: signal.Signals | None, status: int, folder: Path
) -> None:
    (folder / "app.py").write_text("def (:\n")
    command = [*COMMAND, "dev", str(folder / "app.py"), *(["--stdio"] if mode == "stdio" else ["--port", "0"])]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=folder
    )
    assert process.stderr is not None
    assert process.stdin is not None
    async with process.stderr, process.stdin:
        try:
            await process.stdin.send_all(b"a request that came before it left\n")
            await Child(folder, process.stderr).says("waiting for a change")
            if number is None:
                await process.stdin.aclose()
            else:
                process.send_signal(number)
            with trio.fail_after(SECONDS):
                assert await process.wait() == status
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


def test_what_is_not_there_at_all_is_refused(folder: Path) -> None:
    refused(3, "dev", str(folder / "none.py"))
    refused(3, "dev", "no_such_package.server")
    # No host that could leave.
    (folder / "app.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in refused(3, "dev", str(folder / "app.py"), "--stdio")


async def test_what_a_module_prints_does_not_reach_the_host(folder: Path) -> None:
    (folder / "neighbour.py").write_text("print('not for the host')\nTEXT = 'a'\n")
    async with on_stdio(folder) as (child, connect), connect("legacy") as client:
        child.edit('"one"', '"two"')
        await child.says("not for the host")
        await child.says("reloaded app.py")
        assert await shown(client) == "two a"
