"""What a transport gives to have the contract held against it: a way to serve the contract's server and to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol

from ...session import AnyChannel
from .stage import Stage


class Trait(Enum):
    """What not every transport can do. A rule names what it needs."""

    SHARED = "shared"
    """One channel carries everything, so that ids tell requests apart, and its end is the end of all that runs for it."""
    STREAMS = "streams"
    """Every request has a separate exchange, as over HTTP."""
    RESUMES = "resumes"
    """What was sent on a stream that was lost can be asked for again (handshake era only)."""
    VIRTUAL = "virtual"
    """Nothing waits for a socket or a process, so that time can be virtual."""
    SOCKET = "socket"
    """There is a network between the two ends that can be cut and stalled."""
    CHILD = "child"
    """The server is a child process, started for one connection and ended with it."""
    SERVES_MANY = "serves many"
    """Several connections reach the same server."""
    TEXT = "text"
    """Text that is no message can be put on the wire."""
    BYTES = "bytes"
    """So can bytes that are no text."""


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
"""Why a rule cannot be held against a transport that lacks a trait."""


class Endpoint(Protocol):
    """The contract's server, being served."""

    def connect(self) -> AbstractAsyncContextManager[AnyChannel]:
        """A new connection to it; closed in order on the way out."""
        ...

    async def cut(self) -> None:
        """Lose every connection at once, without a word of farewell. What is opened afterwards works."""
        ...

    def stall(self) -> None:
        """From now on nothing that the server sends arrives at its clients. Only with `Trait.SOCKET`."""
        ...

    async def stop(self, seconds: float) -> None:
        """Shut the server down in order, and return when it is: nothing new is taken on, and what runs has so long to end.

        The connections stay open as long as the transport lets them.
        """
        ...

    async def send_bytes(self, channel: AnyChannel, data: bytes, /) -> bytes:
        """Put these bytes on the wire of a connection, in the place of a message. Only with `Trait.TEXT`.

        Returns the answer where it comes at once, as that of a POST; nothing where it will come as a message.
        """
        ...


class Maker(Protocol):
    """One transport, as the contract sees it.

    Attributes:
        name: for the ids of the cases.
        revisions: those that it can carry, newest last.
        traits: what it can do.
    """

    name: str
    revisions: tuple[str, ...]
    traits: frozenset[Trait]

    def serve(self, stage: Stage, *, grace: float) -> AbstractAsyncContextManager[Endpoint]:
        """Serve the contract's server with this stage.

        Args:
            grace: seconds that a call goes on without its client, where the transport has such a time.
        """
        ...
