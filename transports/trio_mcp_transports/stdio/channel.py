"""One JSON-RPC message per line, over a pair of byte streams.

The two halves fail apart from each other: a peer that stopped reading breaks `send`, and what it had already written is
still received. Writing is all or nothing: half a line on the wire would swallow the message after it, so a write that
was cancelled or timed out in the middle breaks the sending half for good. Lines wait as bytes and are parsed when they
are received, so a flood costs its bytes and no more.
"""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import trio

from trio_mcp.errors import LimitExceeded
from trio_mcp.protocol.framing import Line, LineDecoder, LineTooLong, LongLineEnded
from trio_mcp.protocol.json_limits import DEFAULT_LIMITS, JsonLimits
from trio_mcp.protocol.jsonrpc import Malformed, dump, unreadable
from trio_mcp.session.channel import OVER_PIPE, MessageChannel
from trio_mcp.session.envelope import Envelope, Received, received

MAX_READ: Final = 65536
BUFFER_STEP: Final = 64 * 1024
"""What is buffered of an unfinished line draws from the memory budget in steps of this many bytes; less draws nothing."""
MAX_LINE: Final = DEFAULT_LIMITS.max_bytes
MAX_VALUES: Final = DEFAULT_LIMITS.max_values
WRITE_DEADLINE: Final = 30.0
PIPE_BUF: Final[int] = getattr(select, "PIPE_BUF", 0)
"""POSIX promises no more: a larger write may be cut anywhere."""
PEER_CLOSED_MESSAGE: Final = "the peer closed its end of the connection"


class Pipe(trio.abc.SendStream, trio.abc.ReceiveStream):
    """A pipe, socket, terminal or file by its descriptor, or by the `FdStream` of that, which it owns.

    Errors and cancellation are those of `FdStream`.
    """

    # `FdStream` yields to the scheduler before each read and each write, under a lock. On a pipe that carries one small message
    # at a time those turns cost more than the message. Here a read waits for readiness first, which is a checkpoint already, and
    # `send_nowait` writes what the pipe takes at once. Everything else is left to the `FdStream`.

    # `serve` and `connect` are refused on Windows, which has no such streams.
    def __init__(self, fd: int | trio.lowlevel.FdStream) -> None:  # type: ignore[name-defined, unused-ignore]
        self._stream = trio.lowlevel.FdStream(fd) if isinstance(fd, int) else fd  # type: ignore[attr-defined, unused-ignore]
        fd = self._stream.fileno()
        mode = os.fstat(fd).st_mode
        # A file, and /dev/null, is always ready, and epoll refuses it.
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        self.atomic = stat.S_ISFIFO(mode)
        """A write of up to PIPE_BUF bytes happens whole or not at all."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Up to `max_bytes` as soon as there are any; empty at the end. A cancel loses nothing."""
        if not self._waits:
            return bytes(await self._stream.receive_some(max_bytes))
        # Readiness may be a false alarm, or another process that shares the pipe was faster: then it is waited for
        # again.
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, max_bytes or MAX_READ)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    def wake_reader(self) -> None:
        """Raise `ClosedResourceError` in the task that waits for data; nothing is closed, and it may read on."""
        trio.lowlevel.notify_closing(self._stream.fileno())

    def send_nowait(self, data: bytes) -> int:
        """Write what can be written without waiting; returns how many bytes that was.

        Raises:
            trio.BrokenResourceError: the other end was closed.
            trio.ClosedResourceError: this end was closed.
        """
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    @property
    def _fd(self) -> int:
        fd = self._stream.fileno()
        if fd < 0:
            raise trio.ClosedResourceError("this pipe was closed")
        return int(fd)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write everything, waiting as long as it takes. A cancel may leave part of it written."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a write may do something."""
        await self._stream.wait_send_all_might_not_block()

    def close(self) -> None:
        """Close the descriptor at once; a task blocked on it gets `ClosedResourceError`."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the descriptor, even if cancelled."""
        await self._stream.aclose()

    def __repr__(self) -> str:
        return f"<Pipe {self._stream.fileno()}>"


class LineChannel(MessageChannel):
    """Envelopes over two byte streams (pipes, sockets, terminals, files): MCP's stdio framing.

    Args:
        receive_stream: where the peer's lines come from. The channel owns it and closes it.
        send_stream: where our lines go. The channel owns it and closes it.
        max_line: the longest line accepted, in bytes. A longer one is received as `Malformed`, and the next is served.
        max_values: the values that one message may have (`JsonLimits`).
        write_deadline: the seconds one write may take before the peer counts as not reading.
    """

    network = OVER_PIPE

    def __init__(
        self,
        receive_stream: trio.abc.ReceiveStream,
        send_stream: trio.abc.SendStream,
        *,
        max_line: int = MAX_LINE,
        max_values: int = MAX_VALUES,
        write_deadline: float = WRITE_DEADLINE,
    ) -> None:
        self._receive_stream = receive_stream
        self._send_stream = send_stream
        self._limits = JsonLimits(max_bytes=max_line, max_values=max_values)
        self._write_deadline = write_deadline
        self._decoder = LineDecoder(max_line)
        self._lines: deque[bytes | Malformed] = deque()
        self._drawn = 0
        """Bytes that were drawn for the unfinished line."""
        self._write_scope: trio.CancelScope | None = None
        self._broken: str | None = None
        self._ended = False
        self.on_end: Callable[[], None] | None = None
        """Called when the peer has closed its end, or what is sent does not reach it any more; perhaps for both."""
        self._closed = False

    async def receive(self) -> Envelope[Received]:
        """Return the next message, or `Envelope(Malformed(...))` for a line that is not a message.

        An unterminated last line is discarded unless it is a whole object. A cancel loses nothing.

        Raises:
            trio.EndOfChannel: the peer closed its end; every complete line was received.
            trio.BrokenResourceError: the stream failed.
            trio.ClosedResourceError: this channel was closed.
            trio.BusyResourceError: another task is waiting here.
        """
        await self._wait_for_line()
        return self._parse(self._lines.popleft())

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        """Return every message whose line has arrived; each is parsed when the caller reaches it. See `receive`."""
        await self._wait_for_line()
        # Parsed one by one as the caller goes on: a flood of small lines costs its bytes, and not an object for each
        # field.
        lines, self._lines = self._lines, deque()
        return map(self._parse, lines)

    async def send(self, value: Envelope) -> None:
        """Write one message as one line; see `send_many`."""
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope]) -> None:
        """Write several messages in order, in one write. The peer receives all of them, or the channel is broken.

        A cancel before the write starts leaves the channel as it was; one in the middle of it breaks the sending half.

        Raises:
            trio.BrokenResourceError: the peer closed its end, or did not read in time, or an earlier write was cut
                short; the text says which.
            trio.ClosedResourceError: this channel was closed.
            trio.BusyResourceError: another task is writing.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        data = b"".join([line_of(value) for value in values])
        self._check_sendable()
        await self._write(data)

    def send_nowait(self, value: Envelope) -> bool:
        """Write one small message, if that is possible without waiting; return whether it was written.

        POSIX writes up to PIPE_BUF bytes to a pipe whole or not at all, so a message is never written in part.
        """
        if not isinstance(self._send_stream, Pipe) or not self._send_stream.atomic:
            return False
        if self._closed or self._broken is not None or self._write_scope is not None:
            return False
        data = line_of(value)
        if len(data) > PIPE_BUF:
            return False
        try:
            return self._send_stream.send_nowait(data) > 0
        except trio.BrokenResourceError:
            self.break_sending(PEER_CLOSED_MESSAGE)
            return False

    def break_sending(self, reason: str) -> None:
        """Make this and every later `send` raise `BrokenResourceError(reason)`. The first reason stays."""
        # The first reason stays: what breaks afterwards is a consequence of it.
        if self._broken is None:
            self._broken = reason
            if self.on_end is not None:
                self.on_end()
        if self._write_scope is not None:
            self._write_scope.cancel(reason)

    async def aclose(self) -> None:
        """Close both streams, even if cancelled. A task blocked in `receive` or `send` gets `ClosedResourceError`."""
        # Set before the streams are closed: a task that is woken by the closing must find out why.
        self._closed = True
        try:
            # Sending first: the peer then sees our end even if closing the other stream takes its time.
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

    async def _wait_for_line(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open()
        decoder = self._decoder
        while not self._lines:
            try:
                lines = decoder.feed(await self._read())
            except trio.EndOfChannel:
                if (last := decoder.finish()) is None:
                    raise
                # Some write no line end behind their last message. The next read finds the end again.
                lines = [last]
            self._lines.extend([line for each in lines if (line := each if type(each) is bytes else readable(each))])
            if self._drawn or decoder.buffered >= BUFFER_STEP:
                self._draw_buffered()

    def _draw_buffered(self) -> None:
        """Draw what is buffered of an unfinished line from the account of the session; drop the line if that has no room."""
        account, buffered = self.account, self._decoder.buffered
        if account is None:
            return
        more = buffered - buffered % BUFFER_STEP - self._drawn
        if not more:
            return
        try:
            if more > 0:
                account.check(more)
        except LimitExceeded as error:
            why, more = str(error), -self._drawn
            self._lines.extend(filter(None, (readable(self._decoder.discard(why)),)))
        self._drawn += more
        account.draw(more)

    async def _read(self) -> bytes:
        """Return the next bytes."""
        # The end is remembered, because a terminal would go on after it.
        if not self._ended:
            data = bytes(await self._receive_stream.receive_some())
            if data:
                return data
            self._ended = True
            if self.on_end is not None:
                self.on_end()
        raise trio.EndOfChannel

    def _parse(self, line: bytes | Malformed) -> Envelope[Received]:
        if isinstance(line, Malformed):
            return Envelope(line)
        return received(line, self._limits)

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
        try:
            if isinstance(self._send_stream, Pipe):
                # Most messages fit into the pipe. The rest of a large one waits below.
                data = data[self._send_stream.send_nowait(data) :]
            if data:
                with trio.move_on_after(self._write_deadline) as self._write_scope:
                    await self._send_stream.send_all(data)
                    # Reached only if the deadline did not cancel the write, whatever was written by then.
                    data = b""
                if data:
                    self.break_sending(f"the peer did not read for {self._write_deadline:g} s")
        except trio.BrokenResourceError:
            self.break_sending(PEER_CLOSED_MESSAGE)
        finally:
            self._write_scope = None
            # The peer may have half a line. It would take the next message for the rest of it, so nothing more is sent.
            if data:
                self.break_sending("an earlier write was cut short")
        if data:
            raise trio.BrokenResourceError(self._broken)


def readable(line: Line) -> bytes | Malformed | None:
    """Return a line to parse, or what stands for one over the limit; None for the end of one that needs no second report."""
    match line:
        case LineTooLong():
            return unreadable(line.error(), line.head, b"")
        case LongLineEnded(long, tail):
            # Which request it answers is known only now, if the id stands at the end.
            at_start = unreadable(long.error(), long.head, b"").answers
            at_end = unreadable(long.error(), long.head, tail)
            return at_end if at_start is None and at_end.answers is not None else None
        case _:
            return line


def line_of(envelope: Envelope) -> bytes:
    return dump(envelope.message) + b"\n"
