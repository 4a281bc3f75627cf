"""What the stores on a network have in common: processes with leases, their burial, and the notices between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Generic, Protocol, TypeVar, cast

import trio

from ..base.groups import UnwrappedErrors
from ..base.logs import peer_logger
from ..errors import ConfigurationError
from ..storage import Fenced, Missed, Notice, StoreError
from .batches import Batches, Outcomes
from .leases import LEASE_SECONDS, Leases, Renewal, running
from .listening import Listening, Subscription

MOST_AT_ONCE: Final = 64
MOST_BYTES: Final = 1024 * 1024
"""What one batch has at most, or one write if that is larger."""

logger = peer_logger("trio_mcp.stores")

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class NotAdmitted(StoreError):
    """The server of a store was reached, and does not admit this user, or to this database."""


class Connection(Protocol[R_contra]):
    """A connection that one thread uses, and that is replaced when it fails."""

    def carried_out(self, requests: Sequence[R_contra], /) -> Outcomes: ...

    def close(self) -> None: ...


class LeasedStore(ABC, Generic[R]):
    """A store at a server, with one thread for writes, one for look-ups, and one that renews the leases of this process.

    Args:
        name: of the store, for errors.
        connect: returns a connection that is not connected yet.
        clock: the time of this machine in Unix seconds.
    """

    durable = True
    lease_seconds = LEASE_SECONDS

    def __init__(self, name: str, connect: Callable[[], Connection[R]], clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        writer, reader, self._lease_connection = connect(), connect(), connect()
        self.writes = Batches(name, writer.carried_out, writer.close, most=MOST_AT_ONCE, most_bytes=MOST_BYTES)
        self.reads = Batches(name, reader.carried_out, reader.close, most=MOST_AT_ONCE)
        self.leases = Leases(name, self._renew, self._leave, clock)

    @property
    def lapses(self) -> int:
        """How often this process was buried, like `Store.lapses`."""
        return self.leases.lapses

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, like `SharedStore.join`."""
        # In its turn behind the writes under the names before.
        renewal = await self.writes.add(self._renewal({**self.leases.nodes, node: about}))
        buried = cast("Renewal", renewal).buried
        self.leases.note_buried(name for name in buried if name != node)
        if node in buried:
            raise Fenced(f"a process of the name {node!r:.80} was taken for dead: use another name")
        self.leases.joined(node, about)

    async def is_alive(self, node: str) -> bool:
        """Return whether a process may still write, like `Store.is_alive`."""
        return not await self.bury(node)

    async def bury(self, node: str) -> bool:
        """Take a process for dead whose lease has lapsed, like `SharedStore.bury`."""
        return cast("bool", await self.reads.add(self._burial(node, self.leases.bury_until())))

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[AsyncIterator[Notice | Missed]]:
        """Return the notices from now on, like `SharedStore.listen`."""
        listening = Listening(self._subscribe)
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                await nursery.start(listening.run)
                try:
                    yield listening
                finally:
                    listening.stop()

    def begin(self) -> None:
        """Begin to count the time of the store. Raises `ConfigurationError` if it does not answer."""
        try:
            self.leases.renew()
        except StoreError as error:
            raise unusable(error) from None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Look at the server, and run the threads; leaving the block works on what waits, and then ends the leases.

        Raises:
            ConfigurationError: the server cannot be used.
        """
        try:
            await trio.to_thread.run_sync(self.check_server)
        except BaseException:
            self._lease_connection.close()
            raise
        async with running(self.leases, self.writes, self.reads):
            yield

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} waiting={len(self.writes)}>"

    @abstractmethod
    def check_server(self) -> None:
        """Look at the server, and `begin`. Raises `ConfigurationError` if it cannot be used."""

    @abstractmethod
    def _renewal(self, nodes: Mapping[str, bytes]) -> R:
        """Return the request that renews leases; its result is a `Renewal`. Raises `StoreError` for a bad name."""

    @abstractmethod
    def _burial(self, node: str, until: float | None) -> R:
        """Return the request that buries a process; its result is whether that is dead.

        Args:
            until: when, by the clock of the store, it is too late to bury one whose lease has lapsed; None for a name of this
                process, which ends.
        """

    @abstractmethod
    def _subscribe(self) -> Subscription:
        """Return a new connection that receives notices. Raises `StoreError`."""

    # in the thread of the leases

    def _renew(self, nodes: Mapping[str, bytes]) -> Renewal:
        return cast("Renewal", self._ask(self._renewal(nodes)))

    def _leave(self) -> None:
        try:
            for node in self.leases.nodes:
                self._ask(self._burial(node, None))
        except Exception as error:  # noqa: BLE001  whatever a driver raises: the process ends
            logger.warning("the store does not know that this process has ended, and waits for its lease: %s", error)
        self._lease_connection.close()

    def _ask(self, request: R) -> object:
        (outcome,) = self._lease_connection.carried_out([request])
        return outcome.unwrap()


def unusable(error: StoreError) -> ConfigurationError:
    """Return the error of a start that fails because a store does not answer."""
    # A server that starts, or has too many connections, refuses one in the same way.
    advice = (
        "If the user, the password or the database in its URL is wrong, correct it; otherwise try again, or name another store"
        if isinstance(error, NotAdmitted)
        else "Start the server, or name another store"
    )
    return ConfigurationError(f"{error}. {advice}")
