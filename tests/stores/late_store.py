"""A durable store in memory whose writes may time out and be made later, as they are by a database behind a slow network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import trio
from crashing_store import Change, CrashingStore, Disk, Key

from trio_mcp.stores import Append, Expect, Forget, Put, Record, Remove, StoreConflict, StoreTimeout

TIMEOUT: Final = 1.0
"""Seconds after which a write that is late is given up."""

MOST_LATE: Final = 10.0
"""Seconds after that in which it is made at the latest."""

NEVER: Final = math.inf
"""The lateness of a write that is not made."""

Lateness = Callable[[Sequence[Change]], float | None]


def in_time(_changes: Sequence[Change]) -> None:
    """Make every write at once."""


class LateWrite(NamedTuple):
    """A write that was given up, and the time at which it is made, on Trio's clock."""

    due: float
    changes: Sequence[Change]


class LateStore(CrashingStore):
    """The store of one process, whose writes may be made after they have timed out, also after the process has ended.

    Writes to one record or log are made in the order in which they were asked for.

    Args:
        any_order_of: writes to these, "record" or "log", may be made in any order.

    Attributes:
        lateness: returns how many seconds after its timeout a write is made; None: in time, and `NEVER`: not at all.
        given_up: counts the writes that have timed out, or will.
        late: the writes that may still be made.
    """

    def __init__(self, disk: Disk, lateness: Lateness = in_time, *, any_order_of: Sequence[str] = ()) -> None:
        super().__init__(disk)
        self.lateness = lateness
        self.given_up = 0
        self._any_order_of = any_order_of
        self.late: list[LateWrite] = []

    async def write(self, changes: Sequence[Change]) -> None:
        lateness = None if changes_nodes(changes) else self.lateness(changes)
        if lateness is None:
            self.make_late(self._before(changes))
            await super().write(changes)
            return
        self.on_write(changes)
        if self.has_crashed:
            await trio.sleep_forever()
        due = trio.current_time() + TIMEOUT + lateness
        due = max((due, *(write.due for write in self._before(changes) if write.due < NEVER)))
        self.late.append(LateWrite(due, changes))
        self.given_up += 1
        await trio.sleep(TIMEOUT)
        raise StoreTimeout("the store took too long to keep something")

    async def _turn(self) -> None:
        await super()._turn()
        self.make_due()

    def make_due(self) -> None:
        """Make the late writes whose time has come."""
        self.make_late(write for write in self.late if write.due <= trio.current_time())

    def make_late(self, writes: Iterable[LateWrite] | None = None) -> None:
        """Make late writes now, the earliest first; all of them by default. What conflicts by now is not made."""
        chosen = list(self.late) if writes is None else list(writes)
        self.late = [write for write in self.late if write not in chosen]
        for write in sorted((write for write in chosen if write.due < NEVER), key=lambda write: write.due):
            try:
                for change in write.changes:
                    self._check(change)
            except StoreConflict:
                continue
            for change in write.changes:
                self._apply(change)
            self.disk.writes.append(write.changes)

    def _before(self, changes: Sequence[Change]) -> list[LateWrite]:
        """Return the late writes that come before this one, because they change the same records or logs."""
        keys = self._ordered_keys(changes)
        found: list[LateWrite] = []
        for write in reversed(self.late):
            also = self._ordered_keys(write.changes)
            if not keys.isdisjoint(also):
                found.append(write)
                keys |= also
        return found[::-1]

    def _ordered_keys(self, changes: Sequence[Change]) -> set[tuple[str, Key]]:
        return {key for key in keys_of(changes) if key[0] not in self._any_order_of}


def keys_of(changes: Sequence[Change]) -> set[tuple[str, Key]]:
    """Return the records and logs that are changed."""
    return {key_of(change) for change in changes if not isinstance(change, Expect)}


def key_of(change: Put | Remove | Append | Forget) -> tuple[str, Key]:
    match change:
        case Put(Record(kind, key)) | Remove(kind, key):
            return "record", (kind, key)
        case Append(kind, key) | Forget(kind, key):
            return "log", (kind, key)


def changes_nodes(changes: Sequence[Change]) -> bool:
    return isinstance(changes[0], Put) and changes[0].record.kind == "node"
