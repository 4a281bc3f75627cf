"""A byte stream over a non-blocking descriptor that does not take a detour when there is none to take.

`trio.lowlevel.FdStream` yields to the scheduler before each read and each write, under a lock. On a pipe that carries one
small message at a time those turns of the scheduler cost more than the message. This stream waits for readiness first, which
is a checkpoint already, and can write at once what the pipe takes at once; for the rest it is an `FdStream`.
"""

from __future__ import annotations

import os
import stat

import trio

MAX_READ = 65536


class Pipe(trio.abc.SendStream, trio.abc.ReceiveStream):
    """A pipe, socket, terminal or file by its descriptor, which it owns. Errors and cancellation are those of `FdStream`."""

    def __init__(self, fd: int) -> None:
        self._stream = trio.lowlevel.FdStream(fd)
        mode = os.fstat(fd).st_mode
        # A file, and /dev/null, is always ready, and epoll refuses it.
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        self.atomic = stat.S_ISFIFO(mode)
        """A write of up to PIPE_BUF bytes happens whole or not at all."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Up to `max_bytes` as soon as there are any; empty at the end. A cancel loses nothing."""
        if not self._waits:
            return bytes(await self._stream.receive_some(max_bytes))
        while True:
            await trio.lowlevel.wait_readable(self._stream.fileno())
            try:
                return os.read(self._stream.fileno(), max_bytes or MAX_READ)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    def send_nowait(self, data: bytes) -> int:
        """Write what can be written without waiting; returns how many bytes that was.

        Raises:
            trio.BrokenResourceError: the other end was closed.
        """
        try:
            return os.write(self._stream.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

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
