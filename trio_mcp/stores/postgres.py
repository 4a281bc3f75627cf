"""A store in PostgreSQL: one thread for writes, one for look-ups, and one that renews the lease of this process."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from ..base.logs import RepeatedRecords, peer_logger
from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
    Fenced,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    notice_bytes,
)
from . import postgres_schema
from .leased import LeasedStore, unusable
from .leases import LEASE_SECONDS, RENEW_SECONDS, Renewal
from .listening import Subscription
from .postgres_connection import Address, PostgresConnection, PostgresSubscription, Request, Row, Rows, check

MOST_NUMBER: Final = 2**63 - 1
SWEEP_SECONDS: Final = 5.0
"""How long until this process looks again for what has expired."""

logger = peer_logger("trio_mcp.stores")


class PostgresStore(LeasedStore[Request]):
    """Keeps records and logs in PostgreSQL; opened by `open_postgres`. Processes on several machines may use one database.

    A write that has returned survives whatever the database survives.

    Args:
        clock: the time of this machine in Unix seconds.
    """

    def __init__(self, address: Address, clock: Callable[[], float]) -> None:
        self.address = address
        self._space = address.namespace
        self._sweeper = PostgresConnection(address)
        self._swept_at = time.monotonic()
        self._records = RepeatedRecords(logger)
        super().__init__(address.name, lambda: PostgresConnection(address), clock)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        data = [each for change in changes for each in data_of(change)]
        steps = [self._step(change) for change in changes]
        try:
            text = checked(json.dumps(steps, ensure_ascii=False))
        except StoreError as error:
            raise StoreError(f"this cannot be stored: {error}") from None
        arguments = (self._space, list(self.leases.nodes), text, data)
        await self.writes.add(Request(postgres_schema.WRITE, arguments, made), sum(map(len, data)))

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, like `Store.read`."""
        rows = await self._look_up(postgres_schema.READ, checked(kind), checked(key))
        return self._record(kind, rows[0]) if rows else None

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        statement = postgres_schema.LIST if owner is None else postgres_schema.LIST_OF
        whose = () if owner is None else (checked(owner),)
        rows = await self._look_up(statement, checked(kind), checked(after), *whose, limit)
        return [self._record(kind, row) for row in rows]

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        number = min(after, MOST_NUMBER)
        arguments = (number, self._space, checked(kind), checked(key), limit)
        rows = cast("Rows", await self.reads.add(Request(postgres_schema.ENTRIES, arguments, same)))
        if not rows or after + 1 < rows[0][0]:
            raise EventsGone(f"the entries after number {after} of this log are no longer kept")
        if after > rows[0][1]:
            raise NoSuchEvent(f"this log has no entry {after}")
        return [row[2] for row in rows if row[2] is not None]

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`."""
        return dict(await self._look_up(postgres_schema.NODES))

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        payload = base64.b64encode(notice_bytes(topic, content)).decode()
        # Behind the writes, which it may be about.
        await self.writes.add(Request(postgres_schema.NOTIFY, (self._channel, payload), same))

    @property
    def _channel(self) -> str:
        # The name of a channel has at most 63 bytes.
        return f"trio_mcp_{hashlib.sha256(self._space.encode()).hexdigest()[:32]}"

    async def _look_up(self, statement: str, *arguments: object) -> Rows:
        return cast("Rows", await self.reads.add(Request(statement, (self._space, *arguments), same)))

    def _step(self, change: Change) -> Sequence[object]:
        match change:
            case Put(record):
                return ["P", record.kind, record.key, record.version, self._expiry(record.expires_at), record.owner]
            case Remove(kind, key, version):
                return ["R", kind, key, version]
            case Expect(kind, key, version):
                return ["E", kind, key, version]
            case Append(kind, key, first, entries, expires_at, keep):
                return ["A", kind, key, first, self._expiry(expires_at), keep, len(entries)]
            case Forget(kind, key):
                return ["F", kind, key]

    def _expiry(self, at: float) -> float | None:
        """Return when something expires by the clock of the store."""
        return None if at == math.inf else at + self.leases.offset

    def _record(self, kind: str, row: Row) -> Record:
        key, value, owner, expiry, version = row
        return Record(kind, key, value, owner, math.inf if expiry is None else expiry - self.leases.offset, version)

    def _renewal(self, nodes: Mapping[str, bytes]) -> Request:
        arguments = (self._space, LEASE_SECONDS, [checked(node) for node in nodes], list(nodes.values()))
        return Request(postgres_schema.RENEW, arguments, renewal_of)

    def _burial(self, node: str, until: float | None) -> Request:
        latest = math.inf if until is None else until
        return Request(postgres_schema.BURY, (self._space, checked(node), latest, until is None), is_true)

    def _subscribe(self) -> Subscription:
        return PostgresSubscription(self.address, self._channel)

    # in the thread of the leases

    def _renew(self, nodes: Mapping[str, bytes]) -> Renewal:
        renewal = super()._renew(nodes)
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._sweep()
        return renewal

    def _sweep(self) -> None:
        """Drop what has expired; the rest after the next renewal, if that is too much before it."""
        until = time.monotonic() + RENEW_SECONDS
        try:
            while self._sweeper.carried_out([Request(postgres_schema.SWEEP, (), same)])[0].unwrap() == [
                (postgres_schema.SLICE,)
            ]:
                if time.monotonic() >= until:
                    return
        except StoreError as error:
            self._records.log("a store cannot drop what has expired: %s", error)
        self._swept_at = time.monotonic()

    def _leave(self) -> None:
        super()._leave()
        self._records.close()
        self._sweeper.close()

    def check_server(self) -> None:
        """Look at the server, and begin to count its time. Raises `ConfigurationError` if it cannot be used."""
        try:
            check(self.address)
        except StoreError as error:
            raise unusable(error) from None
        self.begin()


def data_of(change: Change) -> Sequence[bytes]:
    """Return the values that a change stores."""
    match change:
        case Put(record):
            return (record.value,)
        case Append():
            return change.entries
        case _:
            return ()


def checked(text: str) -> str:
    """Return a text. Raises `StoreError` for one that the database cannot have."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"this cannot be looked for: {error}") from None
    if "\0" in text or "\\u0000" in text:
        raise StoreError("this cannot be looked for: it has a NUL")
    return text


def same(rows: Rows) -> Rows:
    return rows


def is_true(rows: Rows) -> bool:
    ((value,),) = rows
    return bool(value)


def renewal_of(rows: Rows) -> Renewal:
    ((now, buried),) = rows
    return Renewal(now, buried)


def made(rows: Rows) -> None:
    """Raise unless a write was made."""
    ((outcome,),) = rows
    if outcome == postgres_schema.CONFLICT:
        raise StoreConflict("a record has another version than a change expects")
    if outcome == postgres_schema.FENCED:
        raise Fenced("another process has taken this one for dead, and nothing that it writes is stored")


def address_of(target: str) -> Address:
    """Return the address that a URL names, whose scheme "postgresql:" may be missing. Raises `ConfigurationError`."""
    return Address(f"postgresql:{target}" if target.startswith("//") else target)


@asynccontextmanager
async def open_postgres(target: str, *, clock: Callable[[], float] = time.time) -> AsyncIterator[PostgresStore]:
    """Open a store in PostgreSQL; leaving the block writes what waits, and says that this process has ended.

    Args:
        target: the URL, whose scheme "postgresql:" may be missing; `?namespace=` tells servers apart that share a database, and
            `?notify=` is the URL for notices if this one is that of a pool which has connections for transactions only.
        clock: the time in Unix seconds.

    Raises:
        ConfigurationError: the database cannot be used.
    """
    store = PostgresStore(address_of(target), clock)
    async with store.running():
        yield store
