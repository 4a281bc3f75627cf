"""A store in the memory of this process: bounded, and lost when the process ends."""

from __future__ import annotations

import math
import time
import weakref
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import trio

from ..base.shared_limits import STORED_RECORDS
from ..errors import LimitExceeded
from ..runtime import MemoryBudget, process_budget
from ..runtime.quota import Quota
from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
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
SLICE: Final = 200
"""How many things that have expired are dropped at once."""
SPARE: Final = 1024
"""How many more times of expiry than things that expire there may be."""


class Log:
    """The entries of a log; `first` is the number of the oldest, `size` the memory that they take."""

    __slots__ = ("entries", "expires_at", "first", "size")

    def __init__(self, first: int) -> None:
        self.first = first
        self.entries: list[bytes] = []
        self.expires_at = math.inf
        self.size = 0

    @property
    def newest(self) -> int:
        """The number of the newest entry; that of the one before `first` if there is none."""
        return self.first + len(self.entries) - 1

    def write(self, first: int, entries: Sequence[bytes]) -> None:
        """Set the entries from this number on. After a gap, those before it are deleted, so that a log never has gaps."""
        if first < self.first or first > self.newest + 1:
            self._drop(0, len(self.entries))
            self.first = first
        elif first <= self.newest:
            self._drop(first - self.first, len(self.entries))
        self.entries += entries
        self.size += sum(map(len, entries)) + ENTRY_SIZE * len(entries)

    def shorten(self, keep: int) -> None:
        """Keep only the newest `keep` entries."""
        excess = len(self.entries) - keep
        if excess > 0:
            self._drop(0, excess)
            self.first += excess

    def _drop(self, begin: int, end: int) -> None:
        dropped = self.entries[begin:end]
        self.size -= sum(map(len, dropped)) + ENTRY_SIZE * len(dropped)
        del self.entries[begin:end]


class MemoryStore:
    """Keeps records and logs until they expire.

    Args:
        memory: the budget that they are kept in; by default that of the process.
        records: how many records there may be. Their owners share them: over half, an owner may have a quarter.
        clock: the time in Unix seconds.
    """

    durable = False
    lapses = 0

    def __init__(
        self,
        *,
        memory: MemoryBudget | None = None,
        records: int = STORED_RECORDS.limit,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._account = (process_budget() if memory is None else memory).open()
        # A store that was not closed gives its memory back when it is collected.
        weakref.finalize(self, self._account.close)
        self._quota = Quota(STORED_RECORDS, records)
        self._clock = clock
        self._records: dict[tuple[str, str], Record] = {}
        self._keys: dict[tuple[str, str | None], list[str]] = {}
        """The keys of each kind, and of each owner of a kind, in order; None is for all owners."""
        self._logs: dict[tuple[str, str], Log] = {}
        self._expiring: list[tuple[float, bool, str, str]] = []
        """A heap of what expires: when, whether it is a log, its kind and its key. It may be out of date."""
        self._nodes: set[str] = set()

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
        return self._live((kind, key))

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        keys = self._keys.get((kind, owner), [])
        behind = (keys[at] for at in range(bisect_right(keys, after), len(keys)))
        return list(islice((record for key in behind if (record := self._live((kind, key))) is not None), limit))

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        await trio.lowlevel.checkpoint()
        log = self._logs.get((kind, key))
        if log is None or log.expires_at <= self._clock() or after + 1 < log.first:
            raise EventsGone(f"the entries after number {after} of this log are no longer kept")
        if after > log.newest:
            raise NoSuchEvent(f"this log has no entry {after}")
        start = after + 1 - log.first
        return log.entries[start : start + limit]

    async def join(self, node: str) -> None:
        """Say that this process lives under that name, like `Store.join`."""
        await trio.lowlevel.checkpoint()
        self._nodes.add(node)

    async def is_alive(self, node: str) -> bool:
        """Return whether that is a name of this process: no other sees what is kept here."""
        await trio.lowlevel.checkpoint()
        return node in self._nodes

    def close(self) -> None:
        """Give its memory back; nothing that is kept afterwards counts."""
        self._account.close()

    def __repr__(self) -> str:
        return f"<MemoryStore records={len(self._records)} logs={len(self._logs)}>"

    # one step each

    def _check(self, changes: Sequence[Change]) -> None:
        """Raise unless all changes can be made."""
        versions: dict[tuple[str, str], int] = {}
        owners: dict[tuple[str, str], str | None] = {}
        size = 0
        for change in changes:
            match change:
                case Put(record):
                    place = record.kind, record.key
                    owners[place] = record.owner or None
                    versions[place] = self._checked(place, record.version, versions) + 1
                    old = self._records.get(place)
                    size += RECORD_SIZE + len(record.value) - (0 if old is None else RECORD_SIZE + len(old.value))
                case Remove(kind, key, version):
                    self._checked((kind, key), version, versions)
                    versions[kind, key] = 0
                case Expect(kind, key, version):
                    self._checked((kind, key), version, versions)
                case Append():
                    size += sum(map(len, change.entries)) + ENTRY_SIZE * len(change.entries)
                    size += 0 if (change.kind, change.key) in self._logs else RECORD_SIZE
        more = Counter(owners[place] for place, version in versions.items() if version)
        more.subtract(old.owner or None for place in versions if (old := self._records.get(place)) is not None)
        for owner, count in more.items():
            refusal = self._quota.refusal(owner, count) if count > 0 else None
            if refusal is not None:
                raise StoreFull(refusal)
        if size > 0:
            try:
                self._account.check_step(size)
            except LimitExceeded as error:
                raise StoreFull(f"the store in memory is full: {error}") from None

    def _checked(self, place: tuple[str, str], expected: int | None, versions: Mapping[tuple[str, str], int]) -> int:
        """Return the version of a record at this point of a write; raise `StoreConflict` if another is expected.

        Args:
            versions: those that the write has made so far; 0 where it removes a record.
        """
        record = self._live(place)
        found = versions.get(place, 0 if record is None else record.version)
        # None, of a removal: whatever is there.
        if expected is not None and found != expected:
            raise StoreConflict(f"this {place[0]} has the version {found}, not {expected}")
        return found

    def _live(self, place: tuple[str, str]) -> Record | None:
        record = self._records.get(place)
        return None if record is None or record.expires_at <= self._clock() else record

    def _put(self, record: Record) -> None:
        place = record.kind, record.key
        old = self._records.get(place)
        if old is not None and old.owner != record.owner:
            self._forget_key(old)
        if old is None or old.owner != record.owner:
            self._quota.add(record.owner or None)
            for owner in (None, record.owner):
                insort(self._keys.setdefault((record.kind, owner), []), record.key)
        self._account.draw(len(record.value) - len(old.value) if old is not None else RECORD_SIZE + len(record.value))
        self._records[place] = record._replace(version=record.version + 1)
        if old is None or old.expires_at != record.expires_at:
            self._expire(record.expires_at, *place, is_log=False)

    def _remove(self, kind: str, key: str) -> None:
        record = self._records.pop((kind, key), None)
        if record is not None:
            self._account.give_back(RECORD_SIZE + len(record.value))
            self._forget_key(record)

    def _forget_key(self, record: Record) -> None:
        self._quota.give_back(record.owner or None)
        for owner in (None, record.owner):
            keys = self._keys[record.kind, owner]
            del keys[bisect_right(keys, record.key) - 1]
            if not keys:
                del self._keys[record.kind, owner]

    def _append(self, change: Append) -> None:
        place = change.kind, change.key
        log = self._logs.get(place)
        if log is not None and log.expires_at <= self._clock():
            self._forget(*place)
            log = None
        if log is None:
            log = self._logs[place] = Log(change.first)
            self._account.draw(RECORD_SIZE)
        before, expired_at = log.size, log.expires_at
        log.write(change.first, change.entries)
        if change.keep is not None:
            log.shorten(change.keep)
        log.expires_at = change.expires_at
        self._account.draw(log.size - before)
        if log.expires_at != expired_at:
            self._expire(log.expires_at, *place, is_log=True)

    def _forget(self, kind: str, key: str) -> None:
        log = self._logs.pop((kind, key), None)
        if log is not None:
            self._account.give_back(RECORD_SIZE + log.size)

    def _expire(self, when: float, kind: str, key: str, *, is_log: bool) -> None:
        if when == math.inf:
            return
        heappush(self._expiring, (when, is_log, kind, key))
        # What was prolonged or removed is still in it.
        if len(self._expiring) > 2 * (len(self._records) + len(self._logs)) + SPARE:
            self._expiring = [
                *((record.expires_at, False, *place) for place, record in self._records.items()),
                *((log.expires_at, True, *place) for place, log in self._logs.items()),
            ]
            heapify(self._expiring)

    def _drop_expired(self) -> None:
        """Drop a slice of what has expired."""
        now = self._clock()
        for _ in range(SLICE):
            if not self._expiring or self._expiring[0][0] > now:
                return
            when, is_log, kind, key = heappop(self._expiring)
            found = self._logs.get((kind, key)) if is_log else self._records.get((kind, key))
            if found is not None and found.expires_at <= when:
                (self._forget if is_log else self._remove)(kind, key)
