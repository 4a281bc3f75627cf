"""A nursery whose tasks serve the body: they end with it, and the body's own exception leaves it unwrapped."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from trio_mcp.base.groups import UnwrappedErrors


@asynccontextmanager
async def open_background() -> AsyncGenerator[trio.Nursery]:
    """A nursery for tasks that only exist to serve the body; they are cancelled when the body is left.

    Someone who writes `async with connect(...)` sees no nursery there, and must not have to catch an `ExceptionGroup`
    because there is one: a single exception leaves as itself. Only when two things fail does a group leave.
    """
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel("the body it served has ended")
