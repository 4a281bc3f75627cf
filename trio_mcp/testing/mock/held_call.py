"""A call that lasts as long as a block that uses its context."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ...server import AnyElicit, Context, Server


class HeldCall:
    """A server with one tool, whose call gives its context away and waits.

    Attributes:
        left: set when the block is over, which ends the call.
        block: cancelled when the call is over, which ends the block.
    """

    name = "context"

    def __init__(self, declares: Sequence[AnyElicit]) -> None:
        self.left = trio.Event()
        self.block = trio.CancelScope()
        self._ready = trio.Event()
        self._context: Context | None = None
        self.server = Server("context")
        # Never replayed: a second run would have no block.
        self.server.add_tool(self._wait, name=self.name, elicits=declares, resume="parked")

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
