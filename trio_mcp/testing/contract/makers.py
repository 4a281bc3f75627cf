"""What a transport provides to be tested: a way to serve the contract's server, and a way to connect to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

from ...session import AnyChannel
from .stage import Stage


class Trait(Enum):
    """An ability that some transports lack. A rule names those that it needs."""

    SHARED = "shared"
    """One channel carries all messages: ids tell requests apart, and when the channel ends, all its calls end."""
    STREAMS = "streams"
    """Every request has a separate exchange, as over HTTP."""
    RESUMES = "resumes"
    """Messages of a lost stream can be requested again (legacy era only)."""
    VIRTUAL = "virtual"
    """Nothing waits for a socket or a process, so time can be virtual."""
    SOCKET = "socket"
    """A network between the two ends can be cut and stalled."""
    CHILD = "child"
    """The server is a child process that starts and ends with its one connection."""
    SERVES_MANY = "serves many"
    """Several connections reach the same server."""
    TEXT = "text"
    """Text that is not a message can be sent."""
    BYTES = "bytes"
    """Bytes that are not text can be sent."""


IMPOSSIBLE: Mapping[Trait, str] = {
    Trait.SHARED: "each request has a separate exchange, which identifies it",
    Trait.STREAMS: "there is one channel for all messages",
    Trait.RESUMES: "lost messages cannot be requested again",
    Trait.VIRTUAL: "real sockets and processes take real time",
    Trait.SOCKET: "there is no network between the two ends",
    Trait.CHILD: "the server runs in this process",
    Trait.SERVES_MANY: "each connection has a separate server",
    Trait.TEXT: "messages are passed in memory, without a wire",
    Trait.BYTES: "messages cannot contain bytes that are not text",
}
"""Why a rule that needs a trait does not apply to a transport without it."""


class Endpoint(Protocol):
    """The contract's server while it is served."""

    def connect(self) -> AbstractAsyncContextManager[AnyChannel]:
        """Return a context manager that opens a new connection, and closes it properly."""
        ...

    async def cut(self) -> None:
        """Break every open connection at once, without closing it properly. Connections that are opened afterwards work."""

    def stall(self) -> None:
        """Stop delivering what the server sends to its clients. Only with `Trait.SOCKET`."""

    async def stop(self, seconds: float) -> None:
        """Shut the server down, and return when it has ended: it rejects new calls, and running ones have `seconds` to end.

        The connections stay open as long as the transport allows.
        """

    async def send_bytes(self, channel: AnyChannel, data: bytes, /) -> bytes:
        """Send these bytes in place of a message. Only with `Trait.TEXT`.

        Return the response if the transport sends one immediately, as to a POST; no bytes if it arrives as a message.
        """
        ...


class Maker(Protocol):
    """One transport, as the contract sees it.

    Attributes:
        name: appears in the tables and the ids of cases.
        revisions: the revisions that it can carry, newest last.
        traits: its abilities.
    """

    name: str
    revisions: tuple[str, ...]
    traits: frozenset[Trait]

    def serve(self, stage: Stage, *, grace: float) -> AbstractAsyncContextManager[Endpoint]:
        """Return a context manager that serves the contract's server with this stage.

        Args:
            grace: seconds that a call continues after its client disconnected, if the transport has such a limit.
        """
        ...
