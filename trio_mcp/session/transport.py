"""What a transport offers: to serve a server to its peers, and to connect to one. Both speak channels of envelopes.

A transport is found by name through the entry-point group `trio_mcp.transports`; the core imports none of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Protocol, cast

import trio

from .envelope import Envelope

GROUP = "trio_mcp.transports"


class ChannelServer(Protocol):
    """What a transport needs of a server."""

    async def serve_channel(self, channel: trio.abc.Channel[Envelope], /) -> None:
        """Serve one connection. Returns when the channel has ended and everything that ran for it is cleaned up."""
        ...


class Transport(Protocol):
    """One way to carry messages. The options differ from transport to transport, so each documents its own."""

    @property
    def serve(self) -> Callable[..., Awaitable[None]]:
        """`await serve(server, **options)` serves a `ChannelServer` until its peers are gone or it is told to stop."""
        ...

    @property
    def connect(self) -> Callable[..., AbstractAsyncContextManager[trio.abc.Channel[Envelope]]]:
        """`async with connect(target, **options) as channel` opens a connection, and closes it on every way out."""
        ...


def find_transport(name: str) -> Transport:
    """The transport of that name, from the entry-point group `trio_mcp.transports`.

    Raises:
        LookupError: none is installed under that name; the message lists those that are.
    """
    entry = built_in(name)
    if entry is None:
        found = entry_points(group=GROUP)
        if name not in found.names:
            raise LookupError(
                f"no transport {name!r} is installed; there are: {', '.join(sorted(found.names)) or 'none'}"
            )
        entry = found[name]
    return cast("Transport", entry.load())


def built_in(name: str) -> EntryPoint | None:
    """One of this distribution's own, which are looked for first: reading what every distribution offers takes longer."""
    try:
        own = distribution("trio-mcp").entry_points
    except PackageNotFoundError:
        return None
    return next((entry for entry in own if entry.group == GROUP and entry.name == name), None)
