"""A tool that takes long: it reports its progress, and cleans up when it is cancelled.

    python examples/ports/long_running.py

FastMCP's `ctx.report_progress` is `ctx.progress` here. A value that does not rise is dropped with a warning; FastMCP sends it.
`heartbeat=` reports for a tool that is silent. A tool whose caller cancels or leaves is cancelled, and a `with` block cleans up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import trio

from trio_mcp import Context, Server

SECONDS = 2.0
"""What each file takes."""


@dataclass
class Jobs:
    """What all calls share."""

    running: set[str] = field(default_factory=set)
    cancelled: list[str] = field(default_factory=list)

    @contextmanager
    def run(self, name: str) -> Iterator[None]:
        """Keep the record of a job, however it ends."""
        self.running.add(name)
        try:
            yield
        except trio.Cancelled:
            self.cancelled.append(name)
            raise
        finally:
            self.running.discard(name)


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[Jobs]:
    yield Jobs()


server = Server("converter", lifespan=lifespan)


@server.tool(timeout=3600)
async def convert(files: list[str], ctx: Context[Jobs]) -> str:
    """Convert files one after the other."""
    with ctx.state.run("convert"):
        for done, file in enumerate(files):
            await ctx.progress(done, len(files), f"converting {file}")
            await trio.sleep(SECONDS)
        await ctx.progress(len(files), len(files), "done")
    return f"{len(files)} files were converted."


@server.tool(heartbeat=15)
async def index(ctx: Context[Jobs]) -> str:
    """Index everything. How long that takes is not known, so that the heartbeat reports."""
    with ctx.state.run("index"):
        await trio.sleep(50)
    return "Indexed."


@server.tool
async def status(ctx: Context[Jobs]) -> dict[str, list[str]]:
    """List the jobs that run, and those that were cancelled."""
    return {"running": sorted(ctx.state.running), "cancelled": list(ctx.state.cancelled)}


if __name__ == "__main__":
    server.run()
