"""The ends of connections without a process or a socket, for tests that are not about transports."""

from __future__ import annotations

from typing import Any

import trio

from trio_mcp.protocol.jsonrpc import Malformed, Unanswered
from trio_mcp.session import Envelope, MessageChannel, Received
from trio_mcp_transports.memory import MemoryChannel, memory_pair
from trio_mcp_transports.stdio import LineChannel


def memory_ends(buffer: int = 64) -> tuple[MemoryChannel, MemoryChannel]:
    """Return the ends of a client and of a server."""
    return memory_pair(buffer)


def memory_end(sends: trio.MemorySendChannel[bytes], receives: trio.MemoryReceiveChannel[bytes]) -> MessageChannel:
    """Return an end whose peer reads and writes bytes."""
    return MemoryChannel(sends, receives)


class LineEnd(LineChannel):
    """An end that reads and writes lines, as on stdio.

    The line `LOST` says what a channel over HTTP learns: the server no longer knows the session, and did nothing for a request,
    whose id it has if it had one.
    """

    def __init__(self, stream: trio.StapledStream[Any, Any], **limits: int) -> None:
        super().__init__(stream.receive_stream, stream.send_stream, **limits)

    def _parse(self, line: bytes | Malformed) -> Envelope[Received]:
        if isinstance(line, bytes) and line.startswith(b"LOST"):
            named = line.partition(b" ")[2]
            return Envelope(Unanswered(int(named) if named else None, "lost", session_lost=True))
        return super()._parse(line)
