"""Where what an actor says waits until its connection can take it.

One writer drains an outbox; many actors fill it. Replies must never block (the actor that ends has nobody left to wait for
it), so `post` always succeeds; they are bounded by the number of running actors. What an actor says on the way (progress,
logs, questions) goes through `send`, which waits while the outbox is full: a slow reader slows down the actors that talk,
and nobody else. The writer takes everything that is ready at once, so that many messages cost one write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutboxStatistics:
    """What an outbox holds, how many senders wait for room, and how many items came after it was closed."""

    queued: int
    waiting: int
    dropped: int
    closed: bool


class Outbox(Generic[T]):
    """A bounded queue with one reader; items that come after `close` are dropped and counted."""

    __slots__ = ("_closed", "_dropped", "_items", "_limit", "_senders", "on_ready", "shortcut")

    def __init__(self, limit: int = 256) -> None:
        self._items: list[T] = []
        self._limit = limit
        self._closed = False
        self._dropped = 0
        self._senders: trio.lowlevel.ParkingLot | None = None  # made for the first sender that has to wait
        self.on_ready: Callable[[], None] | None = None
        """Called when there is something to take, or nothing ever will be. Cleared by the call."""
        self.shortcut: Callable[[T], bool] | None = None
        """Offered an item when nothing is queued and the reader waits; True when it has dealt with it."""

    def post(self, item: T) -> None:
        """Queue an item without waiting, above the limit too."""
        if self._closed:
            self._dropped += 1
            return
        if self.shortcut is not None and self.on_ready is not None and not self._items and self.shortcut(item):
            return
        self._items.append(item)
        self._ready()

    async def send(self, item: T) -> None:
        """Queue an item, waiting while the outbox is full. A cancel leaves the item unsent."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.room()
        self.post(item)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def room(self) -> None:
        """Wait until the outbox is not full."""
        while self.full:
            if self._senders is None:
                self._senders = trio.lowlevel.ParkingLot()
            await self._senders.park()

    @property
    def waiting(self) -> int:
        """Senders that wait for room."""
        return 0 if self._senders is None else self._senders.statistics().tasks_waiting

    def _wake_senders(self) -> None:
        if self._senders is not None:
            self._senders.unpark_all()

    @property
    def full(self) -> bool:
        return len(self._items) >= self._limit and not self._closed

    def take_nowait(self) -> list[T]:
        """Everything that is queued, in order; empty when nothing is."""
        items, self._items = self._items, []
        self._wake_senders()
        return items

    async def take(self) -> list[T]:
        """Wait until something is queued and take it all; an empty list once the outbox is closed and drained."""
        await self.ready()
        return self.take_nowait()

    async def ready(self) -> None:
        """Wait until there is something to take, or nothing ever will be."""
        if not self._items and not self._closed:
            task = trio.lowlevel.current_task()
            self.on_ready = lambda: trio.lowlevel.reschedule(task)
            await trio.lowlevel.wait_task_rescheduled(self._stop_taking)
        else:
            await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """No more items: what is queued can still be taken, later ones are dropped."""
        self._closed = True
        self._wake_senders()
        self._ready()

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._items)

    def statistics(self) -> OutboxStatistics:
        return OutboxStatistics(len(self._items), self.waiting, self._dropped, self._closed)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Outbox {state} queued={len(self._items)}/{self._limit} waiting={self.waiting}>"

    def _ready(self) -> None:
        callback, self.on_ready = self.on_ready, None
        if callback is not None:
            callback()

    def _stop_taking(self, _raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
        self.on_ready = None
        return trio.lowlevel.Abort.SUCCEEDED
