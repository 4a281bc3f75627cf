"""The queue between the actors that send messages and the connection that writes them.

Many actors fill an outbox; one writer drains it. `post` never blocks and is for replies: an actor that ends must not wait, and
the number of replies is limited by the number of actors. `send` is for messages on the way (progress, logs, questions) and
waits while the outbox is full: a slow reader slows down the actors that send, and no others. The writer takes all queued items
together, so that many messages cost one write.
"""

# Not a Trio memory channel: that has no item above its limit, gives out one item per receive, and no way to see whether a reader
# waits, which `send_now` needs.
#
# `items`, `closed` and `is_full` are attributes, which every change keeps up to date, because each message reads them several
# times from other files; nothing outside of this class may write them.
#
#   queued items or bytes    closed   is_full   post       send    take
#   fewer than the limits    no       no        queues     queues  all items; waits if there are none
#   a limit or more          no       yes       queues     waits   all items, and wakes the senders
#   any                      yes      no        drops      drops   all items; [] if there are none, without waiting
#
# With an account, the bytes of an item are counted from `post` until the item was written. The reader does not report it: it has
# written what it took when it takes again, or waits. Nothing is drawn while `prepaid` covers all of it, which is nearly always.

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import trio

from .memory_budget import Account

T = TypeVar("T")

MAX_QUEUED_BYTES: Final = 1024 * 1024
"""Queued bytes from which on `send` waits, in an outbox that counts them."""
QUESTIONS: Final = 4
"""Questions that the peer may ask at once for each of our requests before it has to read the answers."""


def no_size(_item: object) -> int:
    return 0


@dataclass(slots=True, eq=False, repr=False)
class Outbox(Generic[T]):
    """A bounded queue with one reader; items that come after `close` are dropped.

    As a context manager, it closes itself and its account.
    """

    limit: int = 256
    """Queued items from which on `send` waits."""
    items: list[T] = field(default_factory=list)
    closed: bool = False
    is_full: bool = False
    """Whether `send` waits."""
    on_ready: Callable[[], None] | None = None
    """Called once when there is something to take, or the outbox is closed; None afterwards."""
    send_now: Callable[[T], bool] | None = None
    """Offered an item if nothing is queued and the reader waits; returns True if it has sent it."""
    queue_while: Collection[object] = ()
    """While this holds anything, items are queued and not offered to `send_now`, so that several share a write."""
    unanswered: Collection[object] = ()
    """Our requests that the peer runs: for each, the answers to `QUESTIONS` questions may wait above the limit."""
    account: Account | None = None
    """Counts the bytes that are queued or being written; None counts nothing."""
    size_of: Callable[[T], int] = no_size
    """The bytes of an item."""
    prepaid: int = 0
    """Bytes up to which nothing is drawn: the fixed cost of what the outbox belongs to includes them."""
    _queued_bytes: int = 0
    _taken_bytes: int = 0
    _drawn: int = 0
    _unasked: int = 0
    _unasked_bytes: int = 0
    # Made for the first sender that has to wait: most outboxes are never full.
    _senders: trio.lowlevel.ParkingLot | None = None

    def post(self, item: T, *, last: bool = False, unasked: bool = False) -> None:
        """Queue an item without waiting, also above the limit.

        Args:
            last: close the outbox after it.
            unasked: the peer has not caused it: `wait_for_reader` does not count it.
        """
        if self.closed:
            return
        send_now = None if self.on_ready is None or self.items or self.queue_while else self.send_now
        if send_now is None or not send_now(item):
            self.items.append(item)
            if unasked:
                self._unasked += 1
            if self.account is not None:
                size = self.size_of(item)
                self._queued_bytes += size
                if unasked:
                    self._unasked_bytes += size
                held = self._queued_bytes + self._taken_bytes
                if held > self.prepaid:
                    self.account.draw(held - self._drawn)
                    self._drawn = held
            self.is_full = len(self.items) >= self.limit or self._queued_bytes >= MAX_QUEUED_BYTES
            # One call tells of both, so that a reader can know at once that this is all.
            if not last:
                self._ready()
        if last:
            self.close()

    async def send(self, item: T) -> None:
        """Queue an item, waiting while the outbox is full. If it is cancelled, the item was not queued."""
        await trio.lowlevel.checkpoint_if_cancelled()
        await self.wait_not_full()
        self.post(item, unasked=True)
        # Shielded: a cancel that is noticed after the item was queued must not look as if it had not been.
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def wait_not_full(self) -> None:
        """Wait until `send` would not wait."""
        while self.is_full:
            await self._wait_taken()

    async def wait_for_reader(self) -> None:
        """Wait while what the peer has caused fills the outbox: a peer that does not read its answers is not read either.

        What we have caused, as what `send` has queued, does not count: a peer that stops reading by the same rule would wait for
        us, as we for it.
        """
        while self._queued_bytes - self._unasked_bytes >= MAX_QUEUED_BYTES or (
            len(self.items) - self._unasked >= self.limit + QUESTIONS * len(self.unanswered)
        ):
            await self._wait_taken()

    async def _wait_taken(self) -> None:
        if self._senders is None:
            self._senders = trio.lowlevel.ParkingLot()
        await self._senders.park()

    def _wake_senders(self) -> None:
        if self._senders is not None:
            self._senders.unpark_all()

    def take_nowait(self) -> list[T]:
        """Return all queued items in order, without waiting."""
        self.written()
        items, self.items = self.items, []
        self._taken_bytes, self._queued_bytes = self._queued_bytes, 0
        self._unasked = self._unasked_bytes = 0
        self.is_full = False
        self._wake_senders()
        return items

    def written(self) -> None:
        """Note that what was taken has been written; taking again, and waiting, note it too."""
        self._taken_bytes = 0
        if self._drawn and self.account is not None:
            held = self._queued_bytes if self._queued_bytes > self.prepaid else 0
            self.account.give_back(self._drawn - held)
            self._drawn = held

    async def take(self) -> list[T]:
        """Wait until something is queued and return all of it; an empty list once the outbox is closed and drained."""
        await self.wait_ready()
        return self.take_nowait()

    async def wait_ready(self) -> None:
        """Wait until there is something to take, or the outbox is closed.

        Raises:
            trio.BusyResourceError: another reader waits already.
        """
        # Before `on_ready` is written: a reader that was cancelled must not take the wake-up of the one after it.
        await trio.lowlevel.checkpoint_if_cancelled()
        self.written()
        if self.items or self.closed:
            await trio.lowlevel.cancel_shielded_checkpoint()
        task = trio.lowlevel.current_task()
        # Again and again: by the time this task runs, what there was may have been taken, as when a connection is lost.
        while not (self.items or self.closed):
            if self.on_ready is not None:
                raise trio.BusyResourceError("another task reads this outbox")
            self.on_ready = lambda: trio.lowlevel.reschedule(task)
            await trio.lowlevel.wait_task_rescheduled(self._stop_taking)

    def close(self) -> None:
        """Drop all later items; those that are queued can still be taken."""
        self.closed = True
        self.is_full = False
        self._wake_senders()
        self._ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Close it and its account, as leaving its block does."""
        self.close()
        account = self.account
        if account is None:
            return
        if account.drawn or account.most_kept:
            account.close()
        else:
            # As in `close`; hardly any outbox has drawn something.
            account.closed = True

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Outbox {state} queued={len(self.items)}/{self.limit}>"

    def _ready(self) -> None:
        callback, self.on_ready = self.on_ready, None
        if callback is not None:
            callback()

    def _stop_taking(self, _raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
        self.on_ready = None
        return trio.lowlevel.Abort.SUCCEEDED
