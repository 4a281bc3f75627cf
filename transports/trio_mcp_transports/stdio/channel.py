"""One JSON-RPC message per line, over a pair of byte streams.

The two halves fail apart from each other: a peer that stopped reading breaks `send`, and what it had already written is
still received. Writing is all or nothing: half a line on the wire would swallow the message after it, so a write that
was cancelled or timed out in the middle breaks the sending half for good. Lines wait as bytes and are parsed when they
are received, so a flood costs its bytes and no more.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import trio

from trio_mcp.protocol.framing import LineDecoder, LineTooLong
from trio_mcp.protocol.jsonrpc import Malformed, dump, parse
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session.channel import MessageChannel
from trio_mcp.session.envelope import Envelope, Received

from .pipe import Pipe

MAX_LINE: Final = 4 * 1024 * 1024
WRITE_DEADLINE: Final = 30.0
PEER_CLOSED_MESSAGE: Final = "the peer closed its end of the connection"


class LineChannel(MessageChannel):
    """Envelopes over two byte streams (pipes, sockets, terminals, files): MCP's stdio framing.

    Args:
        receive_stream: where the peer's lines come from. The channel owns it and closes it.
        send_stream: where our lines go. The channel owns it and closes it.
        max_line: the longest line accepted, in bytes. A longer one is received as `Malformed`, and the next is served.
        write_deadline: the seconds one write may take before the peer counts as not reading.
    """

    def __init__(
        self,
        receive_stream: trio.abc.ReceiveStream,
        send_stream: trio.abc.SendStream,
        *,
        max_line: int = MAX_LINE,
        write_deadline: float = WRITE_DEADLINE,
    ) -> None:
        self._receive_stream = receive_stream
        self._send_stream = send_stream
        self._limits = JsonLimits(max_bytes=max_line)
        self._write_deadline = write_deadline
        self._decoder = LineDecoder(max_line)
        self._lines: deque[bytes | LineTooLong] = deque()
        self._write_scope: trio.CancelScope | None = None
        self._broken: str | None = None
        self._ended = False
        self.on_end: Callable[[], None] | None = None
        """Called when the peer has closed its end, or what is sent does not reach it any more; perhaps for both."""
        self._closed = False

    async def receive(self) -> Envelope[Received]:
        """Return the next message, or `Envelope(Malformed(...))` for a line that is none.

        An unterminated rest at the end of the stream is never delivered. A cancel loses nothing.

        Raises:
            trio.EndOfChannel: the peer closed its end; every line it had finished was received.
            trio.BrokenResourceError: the stream failed.
            trio.ClosedResourceError: this channel was closed.
            trio.BusyResourceError: another task is waiting here.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        while not self._lines:
            self._lines.extend(self._decoder.feed(await self._read()))
        return self._parse(self._lines.popleft())

    def receive_ready(self) -> Iterator[Envelope[Received]]:
        """The messages that came with the last one received, as far as they are whole lines already."""
        while self._lines and not self._closed:
            yield self._parse(self._lines.popleft())

    async def send(self, value: Envelope) -> None:
        """Write one message as one line; see `send_many`."""
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope]) -> None:
        """Write several messages in order, in one write. Peers see all of them, or the channel is broken.

        A cancel before the write starts leaves the channel as it was; one in the middle of it breaks the sending half.

        Raises:
            trio.BrokenResourceError: the peer closed its end, or did not read in time, or an earlier write was cut
                short; the text says which.
            trio.ClosedResourceError: this channel was closed.
            trio.BusyResourceError: another task is writing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        data = b"".join([_line(value) for value in values])
        self._check_sendable()
        await self._write(data)

    def send_nowait(self, value: Envelope) -> bool:
        """Write one small message at once, if nothing is in the way; False when it was not written.

        POSIX writes up to PIPE_BUF bytes to a pipe whole or not at all, so half a message never gets out this way.
        """
        if not isinstance(self._send_stream, Pipe) or not self._send_stream.atomic:
            return False
        if self._closed or self._broken is not None or self._write_scope is not None:
            return False
        data = _line(value)
        if len(data) > select.PIPE_BUF:
            return False
        try:
            return self._send_stream.send_nowait(data) > 0
        except trio.BrokenResourceError:
            self.break_sending(PEER_CLOSED_MESSAGE)
            return False

    def break_sending(self, reason: str) -> None:
        """Make this and every later `send` raise `BrokenResourceError(reason)`. The first reason stays."""
        if self._broken is None:
            self._broken = reason
            if self.on_end is not None:
                self.on_end()
        if self._write_scope is not None:
            self._write_scope.cancel(reason)

    async def aclose(self) -> None:
        """Close both streams, even if cancelled. A task blocked in `receive` or `send` gets `ClosedResourceError`."""
        self._closed = True
        try:
            await self._send_stream.aclose()
        finally:
            await self._receive_stream.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._state()}>"

    def _state(self) -> str:
        if self._closed:
            return "closed"
        if self._broken is not None:
            return f"broken: {self._broken}"
        return "ended" if self._ended else "open"

    async def _read(self) -> bytes:
        """The next bytes. The end is remembered, because a terminal would go on after it."""
        if not self._ended:
            data = bytes(await self._receive_stream.receive_some())
            if data:
                return data
            self._ended = True
            if self.on_end is not None:
                self.on_end()
        raise trio.EndOfChannel

    def _parse(self, line: bytes | LineTooLong) -> Envelope[Received]:
        if isinstance(line, LineTooLong):
            return Envelope(Malformed(line.error()))
        return Envelope(parse(line, self._limits), size=len(line))

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this channel was closed")

    def _check_sendable(self) -> None:
        self._check_open()
        if self._broken is not None:
            raise trio.BrokenResourceError(self._broken)
        if self._write_scope is not None:
            raise trio.BusyResourceError("another task is sending on this channel")

    async def _write(self, data: bytes) -> None:
        """Write all of `data`, or leave the sending half broken with a reason."""
        if isinstance(self._send_stream, Pipe):
            data = data[self._write_at_once(self._send_stream, data) :]
            if not data:
                return  # the pump that sends here waits for more before it sends again
        whole = False
        try:
            with trio.move_on_after(self._write_deadline) as self._write_scope:
                await self._send_stream.send_all(data)
                whole = True
            if not whole:
                self.break_sending(f"the peer did not read for {self._write_deadline:g} s")
        except trio.BrokenResourceError:
            self.break_sending(PEER_CLOSED_MESSAGE)
        finally:
            self._write_scope = None
            if not whole:
                self.break_sending("an earlier write was cut short")
        if not whole:
            raise trio.BrokenResourceError(self._broken)

    def _write_at_once(self, pipe: Pipe, data: bytes) -> int:
        try:
            return pipe.send_nowait(data)
        except trio.BrokenResourceError:
            self.break_sending(PEER_CLOSED_MESSAGE)
            raise trio.BrokenResourceError(self._broken) from None


def _line(envelope: Envelope) -> bytes:
    return dump(envelope.message) + b"\n"
