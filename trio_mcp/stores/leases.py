"""The leases by which the processes of a store on a network live, and the thread that renews those of this process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import trio

from ..base.groups import UnwrappedErrors
from ..base.logs import RepeatedRecords, peer_logger
from ..base.named_tuples import NamedTuple
from ..storage import StoreError
from .batches import Batches, run_in

# A process lives until its lease ends, by the clock of the store: clocks of machines differ. A thread renews it, so that a
# process whose event loop is blocked lives, but only for some seconds: it serves nothing.
#
# One whose lease has ended may be buried, and then it writes nothing any more. As long as nothing has buried it, it may renew
# the lease: it was late, and has lost nothing.
#
# When the store was away, no process could renew. So a process that has not reached the store for half a lease buries no other
# one until those have had the time to come back: for one and a half leases after its next renewal. So it is at the start.
#
# A server that was frozen still carries out the burial that it finds in its socket, perhaps before the renewals beside it. So a
# burial says until when it holds, by the clock of the server.

LEASE_SECONDS: Final = 1.5
RENEW_SECONDS: Final = 0.4
LATE_SECONDS: Final = LEASE_SECONDS / 2
"""After as long without a renewal, the store may have been away."""
QUIET_SECONDS: Final = 1.5 * LEASE_SECONDS
STUCK_SECONDS: Final = 10.0
"""After as long without a turn of the event loop, the lease is not renewed."""
LEAST_OFFSET: Final = 1.0
"""Seconds by which two clocks may differ and still count as one."""

CLOSE_SECONDS: Final = 5.0
"""How long the last operations of a store may take."""

T = TypeVar("T")

logger = peer_logger("trio_mcp.stores")


class Renewal(NamedTuple):
    """What a store says when leases are renewed.

    Attributes:
        now: by its clock, in Unix seconds.
        buried: those of the processes that were buried.
    """

    now: float
    buried: Sequence[str]


class Leases:
    """The leases of this process, under all its names.

    Args:
        name: of the store, for the log.
        renew: called in the thread with what each name of this process says about itself. Raises `StoreError` if the store
            does not answer.
        close: called in the thread at the end.
        clock: the time of this machine in Unix seconds.

    Attributes:
        nodes: what each name of this process says about itself.
        lapses: counts the burials of this process.
        offset: seconds by which the clock of the store is ahead; 0 if it is less than `LEAST_OFFSET`.
    """

    def __init__(
        self,
        name: str,
        renew: Callable[[Mapping[str, bytes]], Renewal],
        close: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.nodes: dict[str, bytes] = {}
        self.lapses = 0
        self.offset = 0.0
        self._name = name
        self._renew = renew
        self._close = close
        self._clock = clock
        self._buried: set[str] = set()
        self._records = RepeatedRecords(logger)
        self._stopped = threading.Event()
        self._turned_at = self._renewed_at = self._quiet_until = time.monotonic()
        self._store_time = 0.0

    def bury_until(self) -> float:
        """Return until when, by the clock of the store, a burial that is sent now may be made.

        Minus infinity if it is too early to say whether another process could have renewed its lease.
        """
        now = time.monotonic()
        is_too_early = now - self._renewed_at > LATE_SECONDS or now < self._quiet_until
        return -math.inf if is_too_early else self._store_time + LATE_SECONDS

    def joined(self, node: str, about: bytes) -> None:
        """Add a name, which takes the place of those that were buried."""
        self.nodes = {name: said for name, said in self.nodes.items() if name not in self._buried} | {node: about}

    def renew(self) -> None:
        """Renew all leases. Raises `StoreError`."""
        began = time.monotonic()
        renewal = self._renew(self.nodes)
        # A store whose machine was paused has a clock that jumps, and this process may have been paused with it.
        if renewal.now - self._store_time > LATE_SECONDS or began - self._renewed_at > LATE_SECONDS:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
        self._renewed_at, self._store_time = began, renewal.now
        self._note_offset(renewal.now - self._clock())
        self.note_buried(renewal.buried)

    def note_buried(self, nodes: Iterable[str]) -> None:
        """Note names of this process that were buried."""
        for node in set(nodes) - self._buried:
            self._buried.add(node)
            self.lapses += 1
            logger.error("the store %s: this process was taken for dead (%s), and can write nothing", self._name, node)

    def _note_offset(self, offset: float) -> None:
        offset = offset if abs(offset) >= LEAST_OFFSET else 0.0
        if abs(offset - self.offset) >= LEAST_OFFSET:
            logger.warning(
                "the clock of the store %s differs by %d seconds from that of this machine", self._name, offset
            )
            self.offset = offset

    async def run(self) -> None:
        """Renew the leases until `stop`."""
        token = trio.lowlevel.current_trio_token()
        self._turned()
        await trio.to_thread.run_sync(self._run, token, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped.set()

    def _turned(self) -> None:
        self._turned_at = time.monotonic()

    def _run(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            while not self._stopped.wait(RENEW_SECONDS):
                try:
                    token.run_sync_soon(self._turned, idempotent=True)
                except trio.RunFinishedError:
                    return
                if time.monotonic() - self._turned_at <= STUCK_SECONDS:
                    self._try_to_renew()
        finally:
            self._records.close()
            self._close()

    def _try_to_renew(self) -> None:
        try:
            self.renew()
        except StoreError as error:
            self._records.log("a lease cannot be renewed: %s", error)
        except Exception as error:  # noqa: BLE001  whatever a driver raises: it is no reason to end the server
            self._records.log("a lease cannot be renewed", exc_info=error)


@asynccontextmanager
async def running(leases: Leases, *batches: Batches[T]) -> AsyncGenerator[None]:
    """Run the threads of a store; leaving the block works on what waits, and then ends the leases."""
    # The leases end at last: until then this process may have written.
    async with renewing(leases), working_on(batches):
        yield


@asynccontextmanager
async def renewing(leases: Leases) -> AsyncGenerator[None]:
    leasing = trio.CancelScope(shield=True)
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_in, leasing, leases.run)
            try:
                yield
            finally:
                leases.stop()
                leasing.deadline = trio.current_time() + CLOSE_SECONDS


@asynccontextmanager
async def working_on(batches: Sequence[Batches[T]]) -> AsyncGenerator[None]:
    # Shielded, because a cancel from outside must not end them before the last write of those whom it ends.
    working = [trio.CancelScope(shield=True) for _ in batches]
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            for scope, each in zip(working, batches, strict=True):
                nursery.start_soon(run_in, scope, each.run)
            try:
                yield
            finally:
                for scope, each in zip(working, batches, strict=True):
                    each.stop()
                    scope.deadline = trio.current_time() + CLOSE_SECONDS
