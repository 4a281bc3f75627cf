"""A network that a rule can break: it forwards TCP connections to a server until it cuts or stalls them."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
CHUNK = 16 * 1024


class Proxy:
    """Forwards TCP connections from clients to one server on this machine.

    Attributes:
        port: the port to which clients connect.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._open: set[trio.CancelScope] = set()
        self._stalled = False

    async def cut(self) -> None:
        """Reset every open connection in both directions. Connections that are made afterwards work."""
        for scope in list(self._open):
            scope.cancel()
        await trio.lowlevel.checkpoint()

    def stall(self) -> None:
        """Stop reading from the server, as if its client had stopped reading."""
        self._stalled = True

    async def forward(self, client: trio.SocketStream) -> None:
        """Forward one connection until it ends."""
        server = await trio.open_tcp_stream("127.0.0.1", self._target)
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry, client, server, False)
                    nursery.start_soon(self._carry, server, client, True)
            finally:
                self._open.discard(scope)
                for stream in (client, server):
                    if scope.cancel_called:
                        reset(stream)
                    stream.socket.close()  # not `aclose`, so that it is closed although this task is cancelled

    async def _carry(self, source: trio.SocketStream, sink: trio.SocketStream, stalls: bool) -> None:
        with suppress(*GONE):
            while data := await source.receive_some(CHUNK):
                if stalls and self._stalled:
                    await trio.sleep_forever()
                await sink.send_all(data)
        with suppress(*GONE):
            await sink.send_eof()


def reset(stream: trio.SocketStream) -> None:
    """Make the close of a connection a reset."""
    with suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@asynccontextmanager
async def open_proxy(target: int) -> AsyncIterator[Proxy]:
    """Run a proxy to the server at this local port during the block."""
    proxy = Proxy(target)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    proxy.port = int(listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, proxy.forward, listeners)  # noqa: ASYNC113  they listen already
        yield proxy
        nursery.cancel_scope.cancel()
