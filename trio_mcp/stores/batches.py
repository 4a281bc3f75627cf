"""Threads that take what waits as one batch: how a store uses a library that blocks."""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

import trio
from outcome import Error, Outcome

from ..base.logs import peer_logger
from ..storage import StoreError

# A turn of a thread costs more than most operations of a store. With one for each operation, a few thousand at once would wait
# longer than a store has to answer, so those that wait together share a turn: a transaction of SQLite, a pipeline of Redis.
#
# A thread has no cancel scope: a caller that is cancelled leaves the connection as it is, and its operation goes on. A store has
# one thread for all its writes, so that they are made in the order of their calls (`Store.write`), and another one for the rest.

T = TypeVar("T")

Outcomes: TypeAlias = Sequence[Outcome[object]]

MOST_WAITING: Final = 10_000
"""Items that may wait or be in work; a further one fails."""
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes that may wait or be in work; an item that would make it more fails, unless there is no other."""

logger = peer_logger("trio_mcp.stores")


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    """An item that waits for its batch."""

    item: T
    size: int
    done: trio.Event = field(default_factory=trio.Event)
    outcome: Outcome[object] | None = None


class Batches(Generic[T]):
    """A thread, and the items that wait for it.

    Args:
        name: of the store, for errors.
        work: called in the thread with the items of a batch; returns their outcomes. If it raises, each item fails, and after a
            `StoreError` those behind them fail too: they would wait for the same server.
        close: called in the thread after the last batch.
        upkeep: called in the thread after each batch, and when as many seconds have passed as it returned last.
        most: the items of a batch.
        most_bytes: of a batch; one item may be larger.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[T]], Outcomes],
        close: Callable[[], None],
        upkeep: Callable[[], float] | None = None,
        *,
        most: int = MOST_WAITING,
        most_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self._name = name
        self._work = work
        self._close = close
        self._upkeep = upkeep
        self._most = most
        self._most_bytes = most_bytes
        self._queue: queue.SimpleQueue[Waiting[T] | None] = queue.SimpleQueue()
        self._unsettled: dict[Waiting[T], None] = {}
        self._unsettled_bytes = 0
        self._is_stopped = False
        self._pause: float | None = None if upkeep is None else 0.0
        self._held: Waiting[T] | None = None
        """Taken from the queue, and too large for the batch before it."""

    async def add(self, item: T, size: int = 0) -> object:
        """Wait for the batch of an item, and return or raise its outcome.

        After a cancel the work may be done, also later, or not.

        Args:
            size: its bytes.

        Raises:
            StoreError: the store is closed, or too much waits already.
        """
        self._check_room(size)
        waiting = Waiting(item, size)
        # Counted until it is settled, also if its caller stops waiting: it is still done.
        self._unsettled[waiting] = None
        self._unsettled_bytes += size
        self._queue.put(waiting)
        await waiting.done.wait()
        outcome = waiting.outcome
        assert outcome is not None
        if isinstance(outcome, Error):
            raise outcome.error.with_traceback(None)
        return outcome.unwrap()

    async def run(self) -> None:
        """Work on what waits; return after `stop`, when nothing waits. A cancel abandons a batch that hangs."""
        token = trio.lowlevel.current_trio_token()
        try:
            await trio.to_thread.run_sync(self._run, token, limiter=trio.CapacityLimiter(1), abandon_on_cancel=True)
        finally:
            # The thread of an abandoned batch ends after it.
            self.stop()
            closed = StoreError(f"the store {self._name} was closed")
            self._settle([*self._unsettled], [Error(closed)] * len(self._unsettled))

    def stop(self) -> None:
        """Take no more items, and let `run` end when none waits any more."""
        self._is_stopped = True
        self._queue.put(None)

    def __len__(self) -> int:
        """Return how many items wait or are in work."""
        return len(self._unsettled)

    def _check_room(self, size: int) -> None:
        if self._is_stopped:
            raise StoreError(f"the store {self._name} is closed")
        if len(self._unsettled) >= MOST_WAITING:
            raise StoreError(f"{MOST_WAITING} operations already wait for the store {self._name}, which is the limit")
        if self._unsettled_bytes and self._unsettled_bytes + size > MOST_WAITING_BYTES:
            raise StoreError(
                f"{self._unsettled_bytes} bytes already wait for the store {self._name}; the limit is {MOST_WAITING_BYTES}"
            )

    def _settle(self, batch: Sequence[Waiting[T]], outcomes: Outcomes) -> None:
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting in self._unsettled:
                del self._unsettled[waiting]
                self._unsettled_bytes -= waiting.size
                waiting.outcome = outcome
                waiting.done.set()

    # in the thread

    def _run(self, token: trio.lowlevel.TrioToken) -> None:
        try:
            while (batch := self._next()) is not None:
                batch, outcomes = self._worked(batch)
                if batch:
                    try:
                        token.run_sync_soon(self._settle, batch, outcomes)
                    except trio.RunFinishedError:
                        return
                if self._upkeep is not None:
                    self._pause = self._upkeep()
        finally:
            self._close()

    def _worked(self, batch: list[Waiting[T]]) -> tuple[list[Waiting[T]], Outcomes]:
        """Work on a batch; return it and the outcomes, with what waits behind it if that fails too."""
        if not batch:
            return [], []
        try:
            return batch, self._work([waiting.item for waiting in batch])
        except StoreError as error:
            batch += self._rest()
            return batch, [Error(error)] * len(batch)
        except Exception as error:
            logger.exception("the store %s failed", self._name)
            return batch, [Error(StoreError(f"the store {self._name} failed: {error}"))] * len(batch)

    def _next(self) -> list[Waiting[T]] | None:
        """Wait for a batch; an empty one if it is time for the upkeep, None after the last."""
        batch: list[Waiting[T]] = []
        size = 0
        while len(batch) < self._most:
            try:
                waiting = self._held or self._queue.get(not batch, self._pause)
            except queue.Empty:
                return batch
            if waiting is None:
                # For the next turn, which returns None.
                self._queue.put(None)
                return batch or None
            if batch and size + waiting.size > self._most_bytes:
                self._held = waiting
                return batch
            self._held = None
            batch.append(waiting)
            size += waiting.size
        return batch

    def _rest(self) -> list[Waiting[T]]:
        """Take everything that waits."""
        rest = [] if self._held is None else [self._held]
        self._held = None
        while True:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                return rest
            if waiting is None:
                self._queue.put(None)
                return rest
            rest.append(waiting)


async def run_in(scope: trio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
    """Run work in a cancel scope, which may be shielded."""
    with scope:
        await work()
