"""A search in the folders of the client.

    python examples/ports/file_search.py

FastMCP's `ctx.list_roots()` is `ctx.roots()` here, and a root has a `path`, so that no URI has to be taken apart. A tool returns
a `File` in place of a content block. Files are read in threads. The roots are what the client offers; this server goes nowhere
else, also not by `..` or a symbolic link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import trio

from trio_mcp import Context, File, Server, ToolError
from trio_mcp.types import ToolAnnotations

MAX_MATCHES = 100
READ_ONLY = ToolAnnotations(read_only_hint=True)

server = Server("files")


@dataclass
class Match:
    path: str
    line: int
    text: str


async def folders(ctx: Context) -> list[Path]:
    return [root.path for root in await ctx.roots()]


@server.tool(annotations=READ_ONLY, requires={"roots"})
async def find_files(pattern: str, ctx: Context) -> list[str]:
    """Find files by a pattern such as *.py or docs/*.md."""
    among = await folders(ctx)
    return await trio.to_thread.run_sync(lambda: [str(path) for path in islice(files(among, pattern), MAX_MATCHES)])


@server.tool(annotations=READ_ONLY, requires={"roots"}, timeout=60)
async def search_text(text: str, ctx: Context, pattern: str = "*") -> list[Match]:
    """Find the lines that contain a text."""
    among = await folders(ctx)
    return await trio.to_thread.run_sync(lambda: list(islice(matches(among, pattern, text), MAX_MATCHES)))


@server.tool(annotations=READ_ONLY, requires={"roots"})
async def read_file(path: str, ctx: Context) -> File:
    """Read a file that was found."""
    among = await folders(ctx)
    if not await trio.to_thread.run_sync(lambda: any(is_file_of(folder, Path(path)) for folder in among)):
        raise ToolError(f"There is no file {path} in the client's folders.")
    return File(path)


def is_file_of(folder: Path, path: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def files(among: list[Path], pattern: str) -> Iterator[Path]:
    """Yield the files that match, until the call is cancelled. Runs in a thread."""
    for folder in among:
        for path in folder.rglob(pattern):
            trio.from_thread.check_cancelled()
            if is_file_of(folder, path):
                yield path


def matches(among: list[Path], pattern: str, text: str) -> Iterator[Match]:
    for path in files(among, pattern):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if text in line:
                    yield Match(str(path), number, line.strip()[:200])


if __name__ == "__main__":
    server.run()
