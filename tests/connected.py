"""A client of a server in this process, for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from peer import BOUND

from trio_mcp import Client


@asynccontextmanager
async def connected(target: Any, mode: str = "auto", *, bound: float = BOUND, **options: Any) -> AsyncIterator[Client]:
    """Connect to a server, and fail if the block takes longer than the bound."""
    with trio.fail_after(bound):
        async with Client.connect(target, mode=mode, **options) as client:
            yield client
