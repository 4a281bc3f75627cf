"""A durable store in memory: what it has committed outlives the process, and nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from trio_mcp.protocol.sealing.at_rest import Vault
from trio_mcp.session import KeyRing
from trio_mcp.stores import (
    Append,
    EventsGone,
    Expect,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
)
from trio_mcp.stores.sealed import entry_place, record_place

Key = tuple[str, str]
Change: TypeAlias = Append | Expect | Forget | Put | Remove
"""One step of `Store.write`."""


class Disk:
    """What stores in several processes share, and which processes live."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.nodes: dict[Key, Record] = {}
        """The processes that have used it, whose records the tests are not about."""
        self.logs: dict[Key, list[bytes]] = {}
        self.dropped: dict[Key, int] = {}
        """How many entries each log has lost at its beginning."""
        self.alive: set[str] = set()
        self.writes: list[Sequence[Change]] = []


def plain_text(disk: Disk, keys: KeyRing) -> bytes:
    """Return everything that a disk has, opened with these keys, with which it must have been sealed."""
    values = [opened(record, keys) for record in disk.records.values()]
    for place, entries in disk.logs.items():
        values += [Vault(keys).open(entry, entry_place(*place, number)) for number, entry in enumerate(entries, 1)]
    return b"\n".join(values)


def opened(record: Record, keys: KeyRing) -> bytes:
    """Return the value of a record."""
    return Vault(keys).open(record.value, record_place(record.kind, record.key))


def sealed(value: bytes, keys: KeyRing, kind: str, key: str, number: int | None = None) -> bytes:
    """Return the value of a record, or of the entry of a log with this number, as a store has it."""
    return Vault(keys).seal(value, record_place(kind, key) if number is None else entry_place(kind, key, number))


def stored_names(owner: str, keys: KeyRing) -> Sequence[str]:
    """Return what stands for an owner in records."""
    return Vault(keys).names(owner)


class CrashingStore:
    """The store of one process, until `crash`.

    Attributes:
        failing: every write fails while it is set.
        hang: every write waits for this, if it is set.
        may_read_logs: the logs are read once this is set; None reads them at once.
        on_write: called before changes are committed.
        has_crashed: `crash` was called.
        lapses: counts what `lapse` did.
    """

    durable = True

    def __init__(self, disk: Disk) -> None:
        self.lapses = 0
        self.disk = disk
        self.failing = False
        self.hang: trio.Event | None = None
        self.may_read_logs: trio.Event | None = None
        self.on_write: Callable[[Sequence[Change]], None] = lambda _changes: None
        self._node = ""
        self.has_crashed = False

    def crash(self) -> None:
        """End the process: nothing that it still does reaches the disk."""
        self.has_crashed = True
        self.disk.alive.discard(self._node)

    async def write(self, changes: Sequence[Change]) -> None:
        await self._turn()
        if isinstance(changes[0], Put) and changes[0].record.kind == "node" and not self.has_crashed:
            self.disk.nodes["node", changes[0].record.key] = changes[0].record._replace(version=1)
            return
        self.on_write(changes)
        if self.has_crashed:
            await trio.sleep_forever()
        for change in changes:
            self._check(change)
        for change in changes:
            self._apply(change)
        self.disk.writes.append(changes)

    async def read(self, kind: str, key: str) -> Record | None:
        await self._turn()
        return self._record(kind, key)

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        await self._turn()
        places = self.disk.nodes if kind == "node" else self.disk.records
        keys = sorted(key for found, key in places if found == kind and key > after)
        records = [record for key in keys if (record := self._record(kind, key)) is not None]
        return [record for record in records if owner is None or record.owner == owner][:limit]

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        await self._turn()
        if self.may_read_logs is not None:
            await self.may_read_logs.wait()
        log = self.disk.logs.get((kind, key))
        dropped = self.disk.dropped.get((kind, key), 0)
        if log is None or after < dropped:
            raise EventsGone(f"there is no log {kind} {key}, or not its entry {after + 1}")
        if after > dropped + len(log):
            raise NoSuchEvent(f"there is no entry {after}")
        return log[after - dropped : after - dropped + limit]

    async def join(self, node: str) -> None:
        self._node = node
        self.disk.alive.add(node)

    async def is_alive(self, node: str) -> bool:
        await trio.lowlevel.checkpoint()
        return node in self.disk.alive

    def lapse(self) -> None:
        """Let others believe that the process has ended, until it joins again."""
        self.disk.alive.discard(self._node)

    async def aclose(self) -> None:
        self.disk.alive.discard(self._node)

    async def _turn(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.hang is not None:
            await self.hang.wait()
        if self.failing:
            raise StoreError("the disk is full")

    def _record(self, kind: str, key: str) -> Record | None:
        record = (self.disk.nodes if kind == "node" else self.disk.records).get((kind, key))
        return None if record is None or record.expires_at <= time.time() else record

    def _check(self, change: Change) -> None:
        if isinstance(change, Put):
            found = self._record(change.record.kind, change.record.key)
            if (0 if found is None else found.version) != change.record.version:
                raise StoreConflict(f"{change.record.kind} {change.record.key} has changed")
        elif isinstance(change, Expect) or (isinstance(change, Remove) and change.version is not None):
            found = self._record(change.kind, change.key)
            if found is None or found.version != change.version:
                raise StoreConflict(f"{change.kind} {change.key} has changed")

    def _apply(self, change: Change) -> None:
        match change:
            case Put(record):
                self.disk.records[record.kind, record.key] = record._replace(version=record.version + 1)
            case Remove(kind, key):
                self.disk.records.pop((kind, key), None)
            case Append(kind, key, first, entries, _, keep):
                log = self.disk.logs.setdefault((kind, key), [])
                dropped = self.disk.dropped.get((kind, key), 0)
                if not dropped < first <= dropped + len(log) + 1:
                    self.disk.dropped[kind, key] = dropped = first - 1
                    log.clear()
                del log[first - 1 - dropped :]
                log += entries
                if keep is not None and len(log) > keep:
                    self.disk.dropped[kind, key] = dropped + len(log) - keep
                    del log[:-keep]
            case Forget(kind, key):
                self.disk.logs.pop((kind, key), None)
                self.disk.dropped.pop((kind, key), None)
