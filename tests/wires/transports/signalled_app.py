"""A server that gets SIGUSR1 while its lifespan opens, and while it closes."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_mcp import Server


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[None]:
    signal.raise_signal(signal.SIGUSR1)
    await trio.lowlevel.checkpoint()
    yield
    signal.raise_signal(signal.SIGUSR1)
    sys.stderr.write("closed\n")


if __name__ == "__main__":
    Server("signalled", lifespan=lifespan).run()
