"""A call that lasts as long as a block that uses its context."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from ...base.checks import check_instance
from ...server import AnyElicit, Context, Server
from ...server.tools.builder import NO_THREADS
from ...server.tools.tool import make_tool


@asynccontextmanager
async def lifespan_of(state: object, _server: Server) -> AsyncGenerator[object]:
    """The lifespan of a server whose state is made by the test."""
    yield state


class HeldCall:
    """A server with one more tool, whose call gives its context away and waits.

    Args:
        declares: the questions of the tool.
        server: has the lifespan, resources and prompts; None for an empty one.
        state: takes the place of what the lifespan yields, unless it is None.

    Attributes:
        left: set when the block is over, which ends the call.
        block: cancelled when the call is over, which ends the block.
    """

    name = "make_context"

    def __init__(self, declares: Sequence[AnyElicit], server: Server | None, state: object) -> None:
        if server is None:
            server = Server("context")
        check_instance("server", server, Server, "a Server")
        self.left = trio.Event()
        self.block = trio.CancelScope()
        self._ready = trio.Event()
        self._context: Context | None = None
        # Never replayed: a second run would have no block.
        waiting = make_tool(self._wait, {"name": self.name, "elicits": declares, "resume": "parked"}, NO_THREADS)
        self.server = server.copy(tools=[waiting])
        if state is not None:
            self.server = self.server.copy(lifespan=partial(lifespan_of, state))

    async def context(self) -> Context:
        """Wait until the call has begun, and return its context."""
        await self._ready.wait()
        assert self._context is not None, "set before the event"
        return self._context

    def end(self) -> None:
        """The call is over."""
        self.block.cancel()

    async def _wait(self, ctx: Context) -> None:
        self._context = ctx
        self._ready.set()
        await self.left.wait()
