"""A store in the memory of this process: bounded, and lost when the process ends."""

from __future__ import annotations

import math
import time
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import trio

from ..errors import LimitExceeded
from ..runtime import MemoryBudget, process_budget
from ..storage import (
    Append,
    Change,
    EventsGone,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreFull,
)

RECORD_SIZE: Final = 512
"""Bytes of memory that a record takes besides its value."""
ENTRY_SIZE: Final = 128
"""Bytes of memory that an entry of a log takes besides its value."""


@dataclass(slots=True)
class Log:
    """The entries of a log; `first` is the number of the oldest, `size` the memory that they take."""

    first: int
    entries: list[bytes] = field(default_factory=list)
    expires_at: float = math.inf
    size: int = 0

    def cut(self, first: int, last: int) -> None:
        """Keep only the entries with these numbers."""
        for entry in (*self.entries[: max(0, first - self.first)], *self.entries[max(0, last + 1 - self.first) :]):
            self.size -= len(entry) + ENTRY_SIZE
        self.entries = self.entries[max(0, first - self.first) : max(0, last + 1 - self.first)]
        self.first = max(self.first, first)

    def add(self, entries: Sequence[bytes]) -> None:
        """Add entries behind the last."""
        self.entries += entries
        self.size += sum(map(len, entries)) + ENTRY_SIZE * len(entries)


class MemoryStore:
    """Keeps records and logs until they expire.

    Args:
        memory: the budget that they are kept in; by default that of the process.
        records: how many records there may be.
        clock: the time in Unix seconds.
    """

    durable = False

    def __init__(
        self,
        *,
        memory: MemoryBudget | None = None,
        records: int = 100_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._account = (process_budget() if memory is None else memory).open()
        # It does not end by itself.
        weakref.finalize(self, self._account.close)
        self._limit = records
        self._clock = clock
        self._records: dict[tuple[str, str], Record] = {}
        self._keys: dict[str, list[str]] = {}
        """The keys of each kind, in order."""
        self._logs: dict[tuple[str, str], Log] = {}
        self._expiring: list[tuple[float, bool, str, str]] = []
        """A heap of what expires: when, whether it is a log, its kind and its key. It may be out of date."""

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`. It has no checkpoint before they are made."""
        self._drop_expired()
        self._check(changes)
        for change in changes:
            match change:
                case Put(record):
                    self._put(record)
                case Remove(kind, key):
                    self._remove(kind, key)
                case Append():
                    self._append(change)
                case Forget(kind, key):
                    self._forget(kind, key)
        await trio.lowlevel.checkpoint()

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, like `Store.read`."""
        await trio.lowlevel.checkpoint()
        record = self._records.get((kind, key))
        return None if record is None or record.expires_at <= self._clock() else record

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        keys = self._keys.get(kind, [])
        found: list[Record] = []
        for key in keys[bisect_right(keys, after) :]:
            record = self._records[kind, key]
            if owner is None or record.owner == owner:
                found.append(record)
                if len(found) >= limit:
                    break
        return found

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        await trio.lowlevel.checkpoint()
        log = self._logs.get((kind, key))
        if log is None or log.expires_at <= self._clock() or after + 1 < log.first:
            raise EventsGone(f"the entries after number {after} of this log are no longer kept")
        start = after + 1 - log.first
        if start > len(log.entries):
            raise NoSuchEvent(f"this log has no entry {after}")
        return log.entries[start : start + limit]

    async def join(self, node: str) -> None:
        """Do nothing: nothing of it is seen by another process."""

    async def is_alive(self, node: str) -> bool:  # noqa: ARG002
        """Return True: only this process sees what it keeps."""
        return True

    def __repr__(self) -> str:
        return f"<MemoryStore records={len(self._records)} logs={len(self._logs)}>"

    # one step each

    def _check(self, changes: Sequence[Change]) -> None:
        """Raise unless all changes can be made."""
        more = size = 0
        for change in changes:
            if isinstance(change, Put | Remove):
                self._check_version(change)
            if isinstance(change, Put):
                old = self._records.get((change.record.kind, change.record.key))
                more += old is None
                size += len(change.record.value) + RECORD_SIZE - (0 if old is None else len(old.value) + RECORD_SIZE)
            elif isinstance(change, Append):
                size += sum(map(len, change.entries)) + ENTRY_SIZE * len(change.entries)
        if more and len(self._records) + more > self._limit:
            raise StoreFull(f"the store in memory has {self._limit} records, which is its limit")
        if size > 0:
            try:
                self._account.check_step(size)
            except LimitExceeded as error:
                raise StoreFull(str(error)) from None

    def _check_version(self, change: Put | Remove) -> None:
        place = change.record if isinstance(change, Put) else change
        record = self._records.get((place.kind, place.key))
        found = 0 if record is None else record.version
        if place.version is not None and found != place.version:
            raise StoreConflict(f"this {place.kind} has the version {found}, not {place.version}")

    def _put(self, record: Record) -> None:
        place = record.kind, record.key
        old = self._records.get(place)
        if old is None:
            insort(self._keys.setdefault(record.kind, []), record.key)
            self._account.draw(RECORD_SIZE + len(record.value))
        else:
            self._account.draw(len(record.value) - len(old.value))
        self._records[place] = record._replace(version=record.version + 1)
        if old is None or old.expires_at != record.expires_at:
            self._expire(record.expires_at, *place, is_log=False)

    def _remove(self, kind: str, key: str) -> None:
        record = self._records.pop((kind, key), None)
        if record is None:
            return
        self._account.give_back(RECORD_SIZE + len(record.value))
        keys = self._keys[kind]
        del keys[bisect_right(keys, key) - 1]
        if not keys:
            del self._keys[kind]

    def _append(self, change: Append) -> None:
        place = change.kind, change.key
        log = self._logs.setdefault(place, Log(change.first))
        before, expired_at, last = log.size, log.expires_at, log.first + len(log.entries) - 1
        if last >= change.first:
            log.cut(log.first, change.first - 1)
        elif last + 1 < change.first:
            # Nobody must miss an entry in between.
            log.cut(change.first, change.first)
        log.add(change.entries)
        if change.keep is not None and len(log.entries) > change.keep:
            newest = log.first + len(log.entries) - 1
            log.cut(newest + 1 - change.keep, newest)
        log.expires_at = change.expires_at
        self._account.draw(log.size - before)
        if log.expires_at != expired_at:
            self._expire(log.expires_at, *place, is_log=True)

    def _forget(self, kind: str, key: str) -> None:
        log = self._logs.pop((kind, key), None)
        if log is not None:
            self._account.give_back(log.size)

    def _expire(self, when: float, kind: str, key: str, *, is_log: bool) -> None:
        if when != math.inf:
            heappush(self._expiring, (when, is_log, kind, key))

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._expiring and self._expiring[0][0] <= now:
            when, is_log, kind, key = heappop(self._expiring)
            if is_log and (log := self._logs.get((kind, key))) is not None and log.expires_at <= when:
                self._forget(kind, key)
            elif not is_log and (record := self._records.get((kind, key))) is not None and record.expires_at <= when:
                self._remove(kind, key)
