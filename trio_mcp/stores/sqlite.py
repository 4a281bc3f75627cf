"""A store in a SQLite file: one writer, which commits what waits in one transaction, and one reader beside it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from outcome import Error, Outcome, capture

from ..base.groups import UnwrappedErrors
from ..base.logs import RepeatedRecords, peer_logger
from ..storage import Append, Change, Put, Record, StoreError
from .nodes import Nodes, OwnFiles

if TYPE_CHECKING:
    import sqlite3

# The look-ups of a SQLite store: those that wait at the same time share one turn of the reader's thread.
#
# A turn of a thread costs more than a look-up. With one for each, a few thousand look-ups at once would wait longer than the
# time
# that a store has to answer.

T = TypeVar("T")

MOST_AT_ONCE: Final = 100
"""Look-ups of one turn of the thread: the next ones should not wait long for it."""


@dataclass(slots=True, eq=False)
class LookUp:
    """A look-up that waits for its turn."""

    run: Callable[[], object]
    done: trio.Event = field(default_factory=trio.Event)
    outcome: Outcome[object] | None = None

    def settle(self, outcome: Outcome[object]) -> None:
        self.outcome = outcome
        self.done.set()


@dataclass(slots=True, eq=False)
class Reads:
    """The reader of one file, and what waits for it."""

    reader: sqlite3.Connection
    _thread: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    _waiting: deque[LookUp] = field(default_factory=deque[LookUp])
    _running: Sequence[LookUp] = ()
    _asked: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _is_stopped: bool = False

    async def look_up(self, query: Callable[..., T], *args: object) -> T:
        """Return what a query returns for the reader and these arguments, or raise what it raises.

        A cancel ends the wait; a reader that hangs, on a file of a network say, keeps the one thread.
        """
        run = partial(query, self.reader, *args)
        look_up = LookUp(run)
        self._waiting.append(look_up)
        self._asked.unpark()
        try:
            await look_up.done.wait()
        except trio.Cancelled:
            # Nobody wants it any more.
            look_up.run = nothing
            raise
        outcome = look_up.outcome
        assert outcome is not None
        if isinstance(outcome, Error):
            raise outcome.error.with_traceback(None)
        return outcome.unwrap()  # type: ignore[return-value]

    async def run(self) -> None:
        """Look up what waits, again and again; ends after `stop`, when nothing waits."""
        while self._waiting or not self._is_stopped:
            if not self._waiting:
                await self._asked.park()
                continue
            self._running = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
            runs = [look_up.run for look_up in self._running]
            outcomes = await trio.to_thread.run_sync(run_all, runs, limiter=self._thread, abandon_on_cancel=True)
            for look_up, outcome in zip(self._running, outcomes, strict=True):
                look_up.settle(outcome)
            self._running = ()

    def stop(self) -> None:
        """Let `run` end when nothing waits any more."""
        self._is_stopped = True
        self._asked.unpark_all()

    async def close(self, error: StoreError) -> None:
        """Close the reader, when `run` has ended; what still waits gets this error."""
        for look_up in (*self._running, *self._waiting):
            look_up.settle(Error(error))
        # A look-up that nobody waits for any more would keep it.
        self.reader.interrupt()
        async with self._thread:
            self.reader.close()


def run_all(runs: Sequence[Callable[[], object]]) -> list[Outcome[object]]:
    """Run look-ups in the thread of the reader."""
    return [capture(run) for run in runs]


def nothing() -> None:
    """The look-up of a caller that has gone."""


logger = peer_logger("trio_mcp.stores")

SWEEP_SECONDS: Final = 5.0
"""The longest time between two searches for what has expired, in seconds."""
SWEEP_ROWS: Final = 500
"""Rows that are written after which it is searched at once: otherwise a file that is written fast would grow until it is time."""
MOST_WAITING: Final = 10_000
"""Writes that may wait; a further one fails."""
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes that may wait or be on their way to the file; a write that would make it more fails, unless there is no other."""
CLOSE_SECONDS: Final = 10.0
"""How long the last writes, and the closing of the file, may take."""
LAST_READ_SECONDS: Final = 2.0
"""How long the last look-ups may take."""


@dataclass(slots=True, eq=False)
class Write:
    """A write that waits for its commit."""

    changes: Sequence[Change]
    size: int
    done: trio.Event = field(default_factory=trio.Event)
    failure: StoreError | None = None


class SqliteStore:
    """Keeps records and logs in a file; opened by `open_sqlite`. Several processes may use one file.

    A write that has returned survives the end of the process, however it ends. If the machine dies, the last ones may be lost,
    and nothing else is damaged (`PRAGMA synchronous = NORMAL`).
    """

    durable = True

    def __init__(
        self, path: Path, writer: sqlite3.Connection, reader: sqlite3.Connection, clock: Callable[[], float]
    ) -> None:
        self.path = path
        # Whole, as it was opened: the program may change its folder.
        file = path.absolute()
        self._nodes = Nodes(file.with_name(f"{path.name}.nodes"))
        self._files = OwnFiles(file, self._nodes)
        self._writer = writer
        self.reads = Reads(reader)
        self._clock = clock
        self._waiting: list[Write] = []
        self._unwritten = 0
        """Bytes that wait, or are on their way to the file."""
        self._written = 0
        """Rows that were written since the last search for what has expired."""
        self._wakened = trio.lowlevel.ParkingLot()
        self._write_thread = trio.CapacityLimiter(1)
        self._node_threads = trio.CapacityLimiter(4)
        self._records = RepeatedRecords(logger)
        self._is_closing = False

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        self._check_open()
        if len(self._waiting) >= MOST_WAITING:
            raise StoreError(f"{MOST_WAITING} writes already wait for the store {self.path}, which is the limit")
        write = Write(changes, sum(map(bytes_of, changes)))
        if self._unwritten and self._unwritten + write.size > MOST_WAITING_BYTES:
            raise StoreError(
                f"{self._unwritten} bytes already wait for the store {self.path}; the limit is {MOST_WAITING_BYTES}"
            )
        self._waiting.append(write)
        # Given back by the writer, and by nobody who stops waiting: it is still written.
        self._unwritten += write.size
        self._wakened.unpark()
        await write.done.wait()
        if write.failure is not None:
            raise write.failure

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, like `Store.read`."""
        from . import sqlite_file  # noqa: PLC0415  loads sqlite3

        return await self._look_up(sqlite_file.read, kind, key, self._clock())

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        from . import sqlite_file  # noqa: PLC0415

        return await self._look_up(sqlite_file.list_records, kind, owner, after, limit, self._clock())

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        from . import sqlite_file  # noqa: PLC0415

        return await self._look_up(sqlite_file.entries, kind, key, after, limit, self._clock())

    async def join(self, node: str) -> None:
        """Say that this process lives under that name, like `Store.join`."""
        self._check_open()
        # Whole: a lock that nobody knows of would never be released.
        await trio.to_thread.run_sync(self._nodes.join, node, limiter=self._node_threads)

    @property
    def lapses(self) -> int:
        """How often the lock file of this process had vanished, like `Store.lapses`."""
        return self._nodes.remade

    async def is_alive(self, node: str) -> bool:
        """Return whether the process of that name lives, like `Store.is_alive`."""
        self._check_open()
        try:
            return await trio.to_thread.run_sync(
                self._nodes.is_alive, node, limiter=self._node_threads, abandon_on_cancel=True
            )
        except OSError as error:
            raise StoreError(f"the store {self.path} cannot tell whether a process lives: {error}") from None

    async def _look_up(self, query: Callable[..., T], *args: object) -> T:
        import sqlite3  # noqa: PLC0415

        from . import sqlite_file  # noqa: PLC0415

        self._check_open()
        try:
            return await self.reads.look_up(query, *args)
        except sqlite3.Error as error:
            raise sqlite_file.failure_of(error) from None
        except UnicodeEncodeError as error:
            # Of a key with a lone surrogate, which no record can have.
            raise StoreError(f"this cannot be looked for: {error}") from None

    def _check_open(self) -> None:
        if self._is_closing:
            raise StoreError(f"the store {self.path} is closed")

    # the writer

    async def run(self) -> None:
        """Commit what waits, again and again, and drop what has expired; ends after `stop`, when nothing waits."""
        due = trio.current_time() + SWEEP_SECONDS
        while self._waiting or not self._is_closing:
            if self._waiting:
                await self._commit_waiting()
            # However much is written, what has expired goes too.
            if trio.current_time() >= due or self._written >= SWEEP_ROWS:
                self._written = 0
                due = trio.current_time() + (0 if await self._sweep() else SWEEP_SECONDS)
            elif not self._waiting and not self._is_closing:
                with trio.move_on_at(due):
                    await self._wakened.park()

    def stop(self) -> None:
        """Take no more writes, and let `run` end when none waits any more."""
        self._is_closing = True
        self._wakened.unpark_all()
        self.reads.stop()

    async def _commit_waiting(self) -> None:
        from . import sqlite_file  # noqa: PLC0415

        batch, self._waiting = self._waiting, []
        self._written += sum(rows_of(change) for write in batch for change in write.changes)
        changes = [write.changes for write in batch]
        work = partial(sqlite_file.write_in_place, self._writer, self._files, changes, self._clock())
        failures: Sequence[StoreError | None] = [StoreError(f"the store {self.path} was closed")] * len(batch)
        try:
            failures = await trio.to_thread.run_sync(work, limiter=self._write_thread)
        except Exception as error:
            logger.exception("the store %s failed", self.path)
            failures = [StoreError(f"the store {self.path} failed: {error}")] * len(batch)
        finally:
            for write, failure in zip(batch, failures, strict=True):
                self._unwritten -= write.size
                write.failure = failure
                write.done.set()

    async def _sweep(self) -> bool:
        """Drop some of what has expired; return whether there is more."""
        import sqlite3  # noqa: PLC0415

        from . import sqlite_file  # noqa: PLC0415

        try:
            work = partial(sqlite_file.drop_in_place, self._writer, self._files, self._clock())
            return await trio.to_thread.run_sync(work, limiter=self._write_thread)
        except (sqlite3.Error, StoreError) as error:
            self._records.log("a store cannot drop what has expired: %s (%s)", error, self.path)
            return False

    async def close(self) -> None:
        """Close the file, when `run` has ended."""
        from . import sqlite_file  # noqa: PLC0415

        for write in self._waiting:
            write.failure = StoreError(f"the store {self.path} was closed")
            write.done.set()
        self._records.close()
        await self.reads.close(StoreError(f"the store {self.path} was closed"))
        await trio.to_thread.run_sync(sqlite_file.close_database, self._writer, limiter=self._write_thread)
        # At last: until then this process may have written.
        await trio.to_thread.run_sync(self._nodes.leave, limiter=self._node_threads)

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path} waiting={len(self._waiting)}>"


@asynccontextmanager
async def open_sqlite(target: str, *, clock: Callable[[], float] = time.time) -> AsyncIterator[SqliteStore]:
    """Open a store in a file, which is made if it does not exist; leaving the block writes everything and closes it.

    Args:
        target: the path of the file.
        clock: the time in Unix seconds.

    Raises:
        ConfigurationError: it cannot be opened, or is not a store of this version; nothing was changed.
    """
    path = await trio.to_thread.run_sync(Path(target).expanduser)
    writer, reader = await trio.to_thread.run_sync(open_connections, path)
    store, ended, read = SqliteStore(path, writer, reader, clock), trio.CancelScope(shield=True), trio.CancelScope()
    read.shield = True
    try:
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                # Shielded, because a cancel from outside must not end it before the last write of those whom the cancel ends.
                nursery.start_soon(run_in, ended, store.run)
                nursery.start_soon(run_in, read, store.reads.run)
                try:
                    yield store
                finally:
                    store.stop()
                    ended.deadline = trio.current_time() + CLOSE_SECONDS
                    read.deadline = trio.current_time() + LAST_READ_SECONDS
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
            await store.close()


def rows_of(change: Change) -> int:
    """Return how many rows a change writes, about."""
    return len(change.entries) if isinstance(change, Append) else 1


def bytes_of(change: Change) -> int:
    """Return how many bytes a change stores."""
    match change:
        case Put(record):
            return len(record.value)
        case Append():
            return sum(map(len, change.entries))
        case _:
            return 0


async def run_in(scope: trio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await work()


def open_connections(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Return the connections of the writer and of the reader. Raises `ConfigurationError`."""
    import sqlite3  # noqa: PLC0415

    from . import sqlite_schema  # noqa: PLC0415

    writer = sqlite_schema.open_database(path)
    try:
        return writer, sqlite_schema.reader_of(path)
    except sqlite3.Error as error:
        writer.close()
        raise sqlite_schema.unusable(path, error) from None
