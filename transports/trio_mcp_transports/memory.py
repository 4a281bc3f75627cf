"""Two connected channels in one process. Messages cross as bytes, so strictness and limits are those of a real wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import trio

from trio_mcp.protocol.json_limits import CLIENT_LIMITS, DEFAULT_LIMITS, JsonLimits
from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.session.channel import AnyChannel, MessageChannel
from trio_mcp.session.envelope import Envelope, Received, received
from trio_mcp.session.event_loop import HOME
from trio_mcp.session.raised import RaisedErrors
from trio_mcp.session.transport import ChannelServer

from .background import open_background

BUFFER: Final = 64
SHUTDOWN_GRACE: Final = 2.0


def memory_pair(
    buffer: int = BUFFER, *, to_client: JsonLimits = CLIENT_LIMITS, to_server: JsonLimits = DEFAULT_LIMITS
) -> tuple[MemoryChannel, MemoryChannel]:
    """Return the ends of a client and of a server; what one sends the other receives.

    Args:
        buffer: messages that a sender may be ahead.
        to_client, to_server: the limits of one message.
    """
    a_sends, b_receives = trio.open_memory_channel[bytes](buffer)
    b_sends, a_receives = trio.open_memory_channel[bytes](buffer)
    return MemoryChannel(a_sends, a_receives, to_client), MemoryChannel(b_sends, b_receives, to_server)


class MemoryChannel(MessageChannel):
    """One end of a `memory_pair`.

    Args:
        limits: of one message that it receives.
    """

    in_process = True

    def __init__(
        self,
        sends: trio.MemorySendChannel[bytes],
        receives: trio.MemoryReceiveChannel[bytes],
        limits: JsonLimits = DEFAULT_LIMITS,
    ) -> None:
        self._sends = sends
        self._receives = receives
        self._limits = limits

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
        return received(data, self._limits)

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
    max_message: int = CLIENT_LIMITS.max_bytes,
    raise_exceptions: bool = False,
) -> AsyncGenerator[MemoryChannel]:
    """Serve `target` in a separate task and yield the client's end.

    Leaving the block closes the client's end; the server has `shutdown_grace` seconds to return before it is cancelled.

    Args:
        buffer: messages that either end may be ahead of the other.
        max_message: the maximum size of one message of the server, in bytes. Messages to it have the limits that it sets over
            HTTP (`HttpLimits`).
        raise_exceptions: whether the client raises the exceptions of the server's functions.
    """
    to_client = replace(CLIENT_LIMITS, max_bytes=max_message)
    ours, theirs = memory_pair(buffer, to_client=to_client, to_server=server_limits(target))
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


def server_limits(server: ChannelServer) -> JsonLimits:
    """Return the limits of one message to a server: those that it sets over HTTP, so that a test meets them."""
    limits = getattr(getattr(server, "http", None), "limits", None)
    return DEFAULT_LIMITS if limits is None else JsonLimits(max_bytes=limits.body, max_values=limits.values)


async def _serve(server: ChannelServer, channel: MemoryChannel, stopped: trio.Event) -> None:
    # The functions of a server are not those of the client that has been opened.
    HOME.set(None)
    try:
        await server.serve_channel(channel)
    finally:
        stopped.set()
        # Also after an error: a client in `receive` would never return otherwise.
        channel.close()
