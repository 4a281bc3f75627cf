"""A store in PostgreSQL: one thread for writes, one for look-ups, and one that renews the lease of this process."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import trio

from ..base.groups import UnwrappedErrors
from ..base.logs import RepeatedRecords, peer_logger
from ..errors import ConfigurationError
from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
    Fenced,
    Forget,
    Missed,
    NoSuchEvent,
    Notice,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    notice_bytes,
)
from . import postgres_schema
from .batches import Batches
from .leases import LEASE_SECONDS, Leases, Renewal, running
from .listening import Listening
from .postgres_connection import Address, PostgresConnection, PostgresSubscription, Request, Row, Rows

MOST_AT_ONCE: Final = 64
MOST_BYTES: Final = 1024 * 1024
"""What one transaction has at most, or one write if that is larger."""
MOST_NUMBER: Final = 2**63 - 1
SWEEP_SECONDS: Final = 5.0
"""How long until this process looks again for what has expired."""

logger = peer_logger("trio_mcp.stores")


class PostgresStore:
    """Keeps records and logs in PostgreSQL; opened by `open_postgres`. Processes on several machines may use one database.

    A write that has returned survives whatever the database survives.

    Args:
        clock: the time of this machine in Unix seconds.
    """

    durable = True

    def __init__(self, address: Address, clock: Callable[[], float]) -> None:
        self.address = address
        self._space = address.namespace
        self._clock = clock
        writer, reader, self._sweeper = (PostgresConnection(address) for _ in range(3))
        self._lease_connection = PostgresConnection(address)
        self.writes = Batches(address.name, writer.carried_out, writer.close, most=MOST_AT_ONCE, most_bytes=MOST_BYTES)
        self.reads = Batches(address.name, reader.carried_out, reader.close, most=MOST_AT_ONCE)
        self.leases = Leases(address.name, self._renew, self._leave, clock)
        self._records = RepeatedRecords(logger)
        self._swept_at = time.monotonic()

    @property
    def lapses(self) -> int:
        """How often this process was buried, like `Store.lapses`."""
        return self.leases.lapses

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

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, like `SharedStore.join`."""
        checked(node)
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
        ((is_dead,),) = await self._look_up(postgres_schema.BURY, checked(node), self.leases.may_bury(), False)
        return bool(is_dead)

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`."""
        return dict(await self._look_up(postgres_schema.NODES))

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        payload = base64.b64encode(notice_bytes(topic, content)).decode()
        # Behind the writes, which it may be about.
        await self.writes.add(Request(postgres_schema.NOTIFY, (self._channel, payload), same))

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[AsyncIterator[Notice | Missed]]:
        """Return the notices from now on, like `SharedStore.listen`."""
        listening = Listening(lambda: PostgresSubscription(self.address, self._channel))
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                await nursery.start(listening.run)
                try:
                    yield listening
                finally:
                    listening.stop()

    def __repr__(self) -> str:
        return f"<PostgresStore {self.address.name} namespace={self.address.namespace!r} waiting={len(self.writes)}>"

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

    # in the thread of the leases

    def _renewal(self, nodes: Mapping[str, bytes]) -> Request:
        arguments = (self._space, LEASE_SECONDS, list(nodes), list(nodes.values()))
        return Request(postgres_schema.RENEW, arguments, renewal_of)

    def _renew(self, nodes: Mapping[str, bytes]) -> Renewal:
        (outcome,) = self._lease_connection.carried_out([self._renewal(nodes)])
        renewal = cast("Renewal", outcome.unwrap())
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            self._sweep()
        return renewal

    def _sweep(self) -> None:
        """Drop some of what has expired."""
        try:
            while self._sweeper.carried_out([Request(postgres_schema.SWEEP, (), same)])[0].unwrap() == [
                (postgres_schema.SLICE,)
            ]:
                continue
        except StoreError as error:
            self._records.log("a store cannot drop what has expired: %s", error)

    def _leave(self) -> None:
        try:
            for node in self.leases.nodes:
                request = Request(postgres_schema.BURY, (self._space, node, False, True), same)
                self._lease_connection.carried_out([request])[0].unwrap()
        except StoreError as error:
            logger.warning("the store does not know that this process has ended, and waits for its lease: %s", error)
        self._records.close()
        self._sweeper.close()
        self._lease_connection.close()

    def check_server(self) -> None:
        """Look at the server, and begin to count its time. Raises `ConfigurationError` if it cannot be used."""
        self._lease_connection.check()
        try:
            self.leases.renew()
        except StoreError as error:
            raise ConfigurationError(f"{error}. Start the server, or name another store") from None


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
        target: the URL, whose scheme "postgresql:" may be missing; `?namespace=` tells servers apart that share a database.
        clock: the time in Unix seconds.

    Raises:
        ConfigurationError: the database cannot be used.
    """
    store = PostgresStore(address_of(target), clock)
    await trio.to_thread.run_sync(store.check_server)
    async with running(store.leases, store.writes, store.reads):
        yield store
