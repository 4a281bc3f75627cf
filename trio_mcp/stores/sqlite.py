"""A store in a SQLite file: a thread that commits what waits in one transaction, and one for look-ups beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, cast

import trio
from outcome import Error, Value, capture

from ..base.groups import UnwrappedErrors
from ..base.logs import RepeatedRecords, peer_logger
from ..storage import Append, Change, Missed, Notice, Put, Record, StoreError, notice_bytes
from . import sqlite_notices
from .batches import Batches, Outcomes, run_in
from .nodes import Nodes, OwnFiles

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger = peer_logger("trio_mcp.stores")

SWEEP_SECONDS: Final = 5.0
"""The longest time between two searches for what has expired, in seconds."""
SWEEP_ROWS: Final = 500
"""Rows that are written after which it is searched at once: otherwise a file that is written fast would grow until it is time."""
CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
"""Bytes in the write-ahead log, about, after which they are moved into the file."""
ROW_BYTES: Final = 5 * 1024
"""Bytes that a row takes there beside its value, of many in one transaction; alone it takes 16 KiB."""
MOST_AT_ONCE: Final = 100
"""Look-ups of one turn of the thread: the next ones should not wait long for it."""
CLOSE_SECONDS: Final = 10.0
"""How long the last writes, and the closing of the file, may take."""
LAST_READ_SECONDS: Final = 2.0
"""How long the last look-ups may take."""


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
        self._node_threads = trio.CapacityLimiter(4)
        self._is_closing = False
        self._reader = reader
        self._clock = clock
        self._looking_up = threading.Lock()
        self._reader_closed = threading.Event()
        files = OwnFiles(file, self._nodes)
        self._writer = Writer(file, writer, files, self._nodes, self._looking_up, self._reader_closed, clock)
        work = self._writer
        self._writes: Batches[Sequence[Change]] = Batches(str(path), work.commit, work.close, work.keep_up)
        self._reads: Batches[Callable[[], object]] = Batches(str(path), run_all, self._close_reader, most=MOST_AT_ONCE)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        await self._writes.add(changes, sum(map(bytes_of, changes)))

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

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, like `SharedStore.join`."""
        self._check_open()
        # Not abandoned on cancel: the lock would never be released.
        await trio.to_thread.run_sync(self._nodes.join, node, about, limiter=self._node_threads)

    @property
    def lapses(self) -> int:
        """How often the lock file of this process had vanished, like `Store.lapses`."""
        return self._nodes.remade

    async def bury(self, node: str) -> bool:
        """Return whether a process is dead, like `SharedStore.bury`: the lock of one that is has been released by its end."""
        return not await self.is_alive(node)

    async def is_alive(self, node: str) -> bool:
        """Return whether the process of that name lives, like `Store.is_alive`."""
        return await self._about_nodes(self._nodes.is_alive, node)

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`."""
        return await self._about_nodes(self._nodes.living)

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        data = notice_bytes(topic, content)
        await self._about_nodes(sqlite_notices.send, self._nodes.folder, data)

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[AsyncIterator[Notice | Missed]]:
        """Return the notices from now on, like `SharedStore.listen`."""
        with await self._about_nodes(sqlite_notices.Notices, self._nodes.folder) as notices:
            yield notices

    async def _about_nodes(self, ask: Callable[[*Ts], T], *args: *Ts) -> T:
        self._check_open()
        try:
            return await trio.to_thread.run_sync(ask, *args, limiter=self._node_threads, abandon_on_cancel=True)
        except OSError as error:
            raise StoreError(f"the store {self.path} cannot reach the other processes: {error}") from None

    async def _look_up(self, query: Callable[..., T], *args: object) -> T:
        import sqlite3  # noqa: PLC0415

        from . import sqlite_file  # noqa: PLC0415

        self._check_open()
        try:
            return cast("T", await self._reads.add(partial(self._looked_up, query, *args)))
        except sqlite3.Error as error:
            raise sqlite_file.failure_of(error) from None
        except UnicodeEncodeError as error:
            # Of a key with a lone surrogate, which no record can have.
            raise StoreError(f"this cannot be looked for: {error}") from None

    def _looked_up(self, query: Callable[..., T], *args: object) -> T:
        with self._looking_up:
            return query(self._reader, *args)

    def _close_reader(self) -> None:
        self._reader.close()
        self._reader_closed.set()

    def _check_open(self) -> None:
        if self._is_closing:
            raise StoreError(f"the store {self.path} is closed")

    async def run_writes(self) -> None:
        """Commit what waits, and drop what has expired, until `stop`."""
        await self._writes.run()

    async def run_reads(self) -> None:
        """Look up what waits until `stop`. A cancel interrupts the look-up that hangs."""
        try:
            await self._reads.run()
        except trio.Cancelled:
            self._reader.interrupt()
            raise

    def stop(self) -> None:
        """Take no more writes and look-ups, and let both `run` methods end when none waits any more."""
        self._is_closing = True
        self._writes.stop()
        self._reads.stop()

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path} waiting={len(self._writes)}>"


class Writer:
    """The connection that writes, in its thread.

    Args:
        nodes: left when the file is closed: until then this process may write.
        looking_up: held by each look-up.
        reader_closed: set when the connection of the look-ups is closed.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        files: OwnFiles,
        nodes: Nodes,
        looking_up: threading.Lock,
        reader_closed: threading.Event,
        clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._connection = connection
        self._files = files
        self._nodes = nodes
        self._looking_up = looking_up
        self._reader_closed = reader_closed
        self._clock = clock
        self._written = 0
        """Rows that were written since the last search for what has expired."""
        self._logged = 0
        """Bytes that were written since they were last moved from the log into the file, about."""
        self._due = time.monotonic() + SWEEP_SECONDS
        self._records = RepeatedRecords(logger)

    def commit(self, batch: Sequence[Sequence[Change]]) -> Outcomes:
        """Make writes in one transaction."""
        from . import sqlite_file  # noqa: PLC0415  loads sqlite3

        rows = sum(rows_of(change) for changes in batch for change in changes)
        self._written += rows
        self._logged += rows * ROW_BYTES + sum(bytes_of(change) for changes in batch for change in changes)
        failures = sqlite_file.write_in_place(self._connection, self._files, batch, self._clock())
        return [Value(None) if failure is None else Error(failure) for failure in failures]

    def keep_up(self) -> float:
        """Drop what has expired, and move the log into the file, if it is time; return the seconds until it is time again."""
        # However much is written, what has expired goes too.
        if time.monotonic() >= self._due or self._written >= SWEEP_ROWS:
            self._written = 0
            self._due = time.monotonic() + (0 if self._sweep() else SWEEP_SECONDS)
        if self._logged >= CHECKPOINT_BYTES:
            self._logged = 0
            self._checkpoint()
        return max(0.0, self._due - time.monotonic())

    def _sweep(self) -> bool:
        """Drop some of what has expired; return whether there is more."""
        import sqlite3  # noqa: PLC0415

        from . import sqlite_file  # noqa: PLC0415

        try:
            is_more = sqlite_file.drop_in_place(self._connection, self._files, self._clock())
        except (sqlite3.Error, StoreError) as error:
            self._records.log("a store cannot drop what has expired: %s (%s)", error, self._path)
            return False
        self._logged += sqlite_file.SLICE * ROW_BYTES if is_more else 0
        return is_more

    def _checkpoint(self) -> None:
        import sqlite3  # noqa: PLC0415

        from . import sqlite_schema  # noqa: PLC0415

        try:
            self._files.check()
            sqlite_schema.checkpoint(self._connection, self._path, self._looking_up)
        except (sqlite3.Error, StoreError) as error:
            self._records.log("a store cannot move its write-ahead log into its file: %s (%s)", error, self._path)

    def close(self) -> None:
        """Close the file; then this process lives no more for the others."""
        self._records.close()
        # The last connection to a file moves the write-ahead log into it. Of two that are closed at once, neither does.
        self._reader_closed.wait(LAST_READ_SECONDS)
        self._connection.close()
        self._nodes.leave()


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
    store = SqliteStore(path, writer, reader, clock)
    written, read = trio.CancelScope(shield=True), trio.CancelScope(shield=True)
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            # Shielded, because a cancel from outside must not end it before the last write of those whom the cancel ends.
            nursery.start_soon(run_in, written, store.run_writes)
            nursery.start_soon(run_in, read, store.run_reads)
            try:
                yield store
            finally:
                store.stop()
                written.deadline = trio.current_time() + CLOSE_SECONDS
                read.deadline = trio.current_time() + LAST_READ_SECONDS


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


def run_all(runs: Sequence[Callable[[], object]]) -> Outcomes:
    """Run look-ups in the thread of the reader."""
    return [capture(run) for run in runs]


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
