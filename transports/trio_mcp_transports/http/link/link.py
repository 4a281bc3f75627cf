"""One end of a link: a Unix socket over which frames go in both directions."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import trio

from trio_mcp.base.groups import UnwrappedErrors
from trio_mcp.base.logs import peer_logger

from .frames import Frame, FrameReader, Kind, LinkBroken, encode

logger = peer_logger("trio_mcp.link")

READ_BYTES: Final = 64 * 1024
PEER: Final = struct.Struct("3i")
"""The process, the user and the group of SO_PEERCRED."""


class Link:
    """One end of a link. Frames are posted, and written in their order.

    What waits to be written is bounded by the windows and the requests that the two ends have open.

    Args:
        limits: of the frames that come; see `FrameReader`.
        receive: called with each. It raises `LinkBroken` for one that may not come now.
        on_end: called once when the link is over.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        limits: Mapping[int, int],
        receive: Callable[[Frame], None],
        on_end: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._reader = FrameReader(limits)
        self._receive = receive
        self._on_end = on_end
        self._waiting: list[bytes] = []
        self._wake = trio.Event()
        self._written = trio.Event()
        self._is_writing = False
        self.is_over = False

    def post(self, kind: Kind, number: int, data: bytes = b"") -> None:
        """Send a frame; one of a link that is over is dropped."""
        if not self.is_over:
            self._waiting.append(encode(kind, number, data))
            self._wake.set()

    async def flush(self) -> None:
        """Wait until what was posted is written, or the link is over."""
        while not self.is_over and (self._waiting or self._is_writing):
            await self._written.wait()

    async def run(self) -> None:
        """Carry frames until an end of the link goes.

        Raises:
            LinkBroken: the other end sent what it may not.
        """
        try:
            with UnwrappedErrors():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        while data := await self._stream.receive_some(READ_BYTES):
                            for frame in self._reader.feed(bytes(data)):
                                self._receive(frame)
                    nursery.cancel_scope.cancel()
        finally:
            self.is_over = True
            self._waiting.clear()
            self._note_written()
            self._on_end()
            await trio.aclose_forcefully(self._stream)  # noqa: ASYNC102  it only closes the socket

    async def _write(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                await self._wake.wait()
                # A quick call ends in this turn: then all that is said of it is one write.
                await trio.lowlevel.checkpoint()
                self._wake = trio.Event()
                waiting, self._waiting = self._waiting, []
                self._is_writing = True
                await self._stream.send_all(b"".join(waiting))
                self._is_writing = False
                self._note_written()

    def _note_written(self) -> None:
        self._written.set()
        self._written = trio.Event()


async def run_logged(link: Link) -> None:
    """Run a link to its end; what the other end did wrong is logged."""
    try:
        await link.run()
    except LinkBroken as error:
        logger.warning("a link was closed: %s", error)


def is_own_user(sock: trio.socket.SocketType) -> bool:
    """Return whether the process at the other end runs as the user of this one."""
    if sys.platform == "win32" or not hasattr(socket, "SO_PEERCRED"):
        # Elsewhere the mode of the folder alone keeps others out.
        return True
    _, user, _ = PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return bool(user == os.getuid())
