"""`trio-mcp dev` as a process, for tests: its files, what it says, and clients of it. Every wait is bounded."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from command import COMMAND, ENVIRONMENT, SECONDS
from crew import gone
from waiting import until

from trio_mcp import Client
from trio_mcp.errors import McpError

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
        self.pid = 0
        self.said: list[str] = []
        self._folder = folder
        self._stderr = stderr
        self._lines: list[str] = []
        self._rest = b""

    async def all_said(self) -> None:
        """Read what it says until it, and all that it has started, have ended."""
        with trio.fail_after(SECONDS):
            async for data in self._stderr:
                self._rest += bytes(data)
        self.said += [each.decode() for each in self._rest.split(b"\n")]

    async def says(self, text: str) -> str:
        """Wait for a line with this text; lines before it are dropped."""
        with trio.fail_after(SECONDS):
            while True:
                while self._lines:
                    line = self._lines.pop(0)
                    if text in line:
                        return line
                data = await self._stderr.receive_some()
                assert data, f"it ended before it said {text!r}: {self.said}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self._lines += [each.decode() for each in lines]
                self.said += [each.decode() for each in lines]

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


def write_project(folder: Path) -> Path:
    (folder / "app.py").write_text(APP)
    (folder / "neighbour.py").write_text("TEXT = 'a'\n")
    return folder


def children(pid: int) -> set[int]:
    """The processes that a process has started, and that live."""
    found: set[int] = set()
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(each) for each in (thread / "children").read_text().split()}
    return found


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def over_http(
    folder: Path,
    *options: str,
    before: Callable[[Child], Awaitable[None]] | None = None,
    urls: list[str] | None = None,
    env: Mapping[str, str] = {},
) -> AsyncIterator[tuple[Child, Connect]]:
    command = [*COMMAND, "dev", str(folder / "app.py"), "--port", "0", "--drain", "1", *options]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE, env={**ENVIRONMENT, **env}, cwd=folder)
    assert process.stderr is not None
    async with process.stderr:
        child = Child(folder, process.stderr)
        child.pid = process.pid

        def connect(mode: str, **more: Any) -> AbstractAsyncContextManager[Client]:
            return Client.connect(url, mode=mode, **more)  # type: ignore[arg-type]

        try:
            if before is not None:
                await before(child)
            url = (await child.says("serves MCP at")).split()[-1]
            if urls is not None:
                urls.append(url)
            yield child, connect
            left = children(process.pid)
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(SECONDS):
                assert await process.wait() == 0
                await gone(left)
            await child.all_said()
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


@asynccontextmanager
async def on_stdio(folder: Path, *options: str, env: Mapping[str, str] = {}) -> AsyncIterator[tuple[Child, Connect]]:
    read, write = os.pipe()
    command = [*COMMAND, "dev", str(folder / "app.py"), "--stdio", *options]
    async with trio.lowlevel.FdStream(read) as stderr:
        child = Child(folder, stderr)

        @asynccontextmanager
        async def connect(mode: str, **more: Any) -> AsyncIterator[Client]:
            before = children(os.getpid())
            async with Client.connect(
                command, mode=mode, env={**ENVIRONMENT, **env}, stderr=write, cwd=folder, **more
            ) as client:  # type: ignore[arg-type]
                os.close(write)
                (child.pid,) = children(os.getpid()) - before
                yield client

        yield child, connect
        with trio.fail_after(SECONDS):
            await gone(children(child.pid))


async def shown(client: Client) -> str:
    with trio.fail_after(SECONDS):
        return (await client.call_tool("show")).text


CLIENTS = 4


async def save_under_load(folder: Path, saves: int) -> None:
    """Save a file again and again while clients of both eras call without a pause; no call fails, and nothing is left open."""
    errors: list[str] = []
    seen: list[set[str]] = [set() for _ in range(CLIENTS)]

    async def call(connect: Connect, number: int, ended: trio.Event) -> None:
        async with connect(MODES[number % 2]) as client:
            while not ended.is_set():
                try:
                    seen[number].add(await shown(client))
                except (McpError, OSError, trio.TooSlowError) as error:
                    errors.append(f"{type(error).__name__}: {error}")

    ended = trio.Event()
    async with over_http(folder) as (child, connect):
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(call, connect, number, ended)
            for save in range(saves):
                child.write("neighbour.py", f"TEXT = {save}\n")
                await child.says("reloaded neighbour.py")
            await until(lambda: all(f"one {saves - 1}" in each for each in seen), SECONDS)
            ended.set()
        # The one that serves, and the one that waits.
        await until(lambda: len(children(child.pid)) <= 2, 2 * SECONDS)
    said = "\n".join(child.said)
    assert not errors, errors
    assert said.count("opened one") == said.count("closed one") == saves + 1
