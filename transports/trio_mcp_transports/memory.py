"""Two connected channels in one process. Messages cross as bytes, so strictness and limits are those of a real wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session.channel import AnyChannel, MessageChannel
from trio_mcp.session.envelope import Envelope, Received, received
from trio_mcp.session.raised import RaisedErrors
from trio_mcp.session.transport import ChannelServer

from .background import open_background

BUFFER: Final = 64
LIMITS: Final = JsonLimits(max_values=1_000_000)
"""Those of a client: both ends are in this process, and one of them may read long lists."""
SHUTDOWN_GRACE: Final = 2.0


def memory_pair(buffer: int = BUFFER) -> tuple[MemoryChannel, MemoryChannel]:
    """Return two channels; what one sends the other receives; a sender may be `buffer` messages ahead."""
    a_sends, b_receives = trio.open_memory_channel[bytes](buffer)
    b_sends, a_receives = trio.open_memory_channel[bytes](buffer)
    return MemoryChannel(a_sends, a_receives), MemoryChannel(b_sends, b_receives)


class MemoryChannel(MessageChannel):
    """One end of a `memory_pair`."""

    in_process = True

    def __init__(self, sends: trio.MemorySendChannel[bytes], receives: trio.MemoryReceiveChannel[bytes]) -> None:
        self._sends = sends
        self._receives = receives

    async def send(self, value: Envelope) -> None:
        """Send one message, waiting while the buffer is full. A cancel means that it was not sent.

        Raises:
            trio.BrokenResourceError: the other end was closed.
            trio.ClosedResourceError: this end was closed.
        """
        await self._sends.send(dump(value.message))

    async def receive(self) -> Envelope[Received]:
        """Return the next message. A cancel loses nothing.

        Raises:
            trio.EndOfChannel: the other end was closed and everything it had sent was received.
            trio.ClosedResourceError: this end was closed.
        """
        data = await self._receives.receive()
        return received(data, LIMITS)

    def close(self) -> None:
        """Close this end; a task blocked on it gets `ClosedResourceError`."""
        self._sends.close()
        self._receives.close()

    async def aclose(self) -> None:
        """Close this end. It is closed even if cancelled."""
        self.close()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        statistics = self._receives.statistics()
        return f"<MemoryChannel: {statistics.current_buffer_used} waiting>"


async def serve(server: ChannelServer, *, channel: AnyChannel) -> None:
    """Serve one end of a `memory_pair` until the other is closed."""
    await server.serve_channel(channel)


@asynccontextmanager
async def connect(
    target: ChannelServer,
    *,
    buffer: int = BUFFER,
    shutdown_grace: float = SHUTDOWN_GRACE,
    raise_exceptions: bool = False,
) -> AsyncGenerator[MemoryChannel]:
    """Serve `target` in a separate task and yield the client's end.

    With `raise_exceptions`, the client raises the exceptions of the server's functions.
    Leaving the block closes the client's end; the server has `shutdown_grace` seconds to return before it is cancelled.
    """
    ours, theirs = memory_pair(buffer)
    if raise_exceptions:
        ours.raised = theirs.raised = RaisedErrors()
    async with open_background() as nursery:
        stopped = trio.Event()
        nursery.start_soon(_serve, target, theirs, stopped)
        try:
            yield ours
        finally:
            # The server sees the end of its channel and returns by itself. A cancel is for one that does not.
            ours.close()
            with trio.move_on_after(shutdown_grace, shield=True):
                await stopped.wait()


async def _serve(server: ChannelServer, channel: MemoryChannel, stopped: trio.Event) -> None:
    try:
        await server.serve_channel(channel)
    finally:
        stopped.set()
        # Also after an error: a client that waits in `receive` would wait for ever.
        channel.close()
