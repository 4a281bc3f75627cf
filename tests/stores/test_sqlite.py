"""What only the SQLite store has: a file, other programs that use it, and a disk that is full. The contract tests the rest."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing
from naming import naming
from store_makers import Clock
from waiting import until

from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.sealing.at_rest import Vault
from trio_mcp.session import KeyRing
from trio_mcp.stores import (
    Append,
    EventsGone,
    Put,
    Record,
    StoreError,
    StoreFull,
    batches,
    sqlite,
    sqlite_file,
    sqlite_schema,
    sqlite_upkeep,
)
from trio_mcp.stores.sealed import SealedStore
from trio_mcp.stores.sqlite import SqliteStore, open_sqlite
from trio_mcp.stores.sqlite_schema import open_database

MANY = 1500 * 4096
"""Bytes of more pages than SQLite lets its log have before it moves them by itself."""
OPEN_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM records").fetchall()
connection.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def thing(key: str, value: bytes = b"value", expires_at: float = float("inf")) -> Put:
    return Put(Record("thing", key, value, "", expires_at))


async def outcome(store: SqliteStore, *changes: Put, into: dict[str, type[StoreError] | None]) -> None:
    try:
        await store.write(changes)
    except StoreError as error:
        into[changes[0].record.key] = type(error)
    else:
        into[changes[0].record.key] = None


async def write_each(store: SqliteStore, *keys: str, into: dict[str, type[StoreError] | None]) -> None:
    """Write records at once, each for itself."""
    async with trio.open_nursery() as nursery:
        for key in keys:
            nursery.start_soon(lambda each: outcome(store, thing(each), into=into), key)


# the file


async def replace(path: Path) -> None:
    """Put another store in the place of this one."""
    async with open_sqlite(f"{path}.new"):
        pass
    os.replace(f"{path}.new", path)


async def delete(path: Path) -> None:
    await trio.Path(path).unlink()


@pytest.mark.parametrize("do_away", [delete, replace])
async def test_a_file_that_is_not_there_any_more_takes_no_writes(
    path: Path, do_away: Callable[[Path], Awaitable[None]]
) -> None:
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a")])
        await do_away(path)
        with pytest.raises(StoreError, match="deleted or replaced"):
            await store.write([thing("b")])


async def test_a_file_that_is_not_there_any_more_is_not_swept(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    # With the second write, once.
    monkeypatch.setattr(sqlite, "SWEEP_ROWS", 2)
    monkeypatch.setattr(sqlite, "SWEEP_SECONDS", 1_000_000)
    async with open_sqlite(str(path), clock=clock) as store:
        await store.write([thing("a", expires_at=clock.now + 1)])
        clock.now += 2
        os.rename(path, f"{path}.moved")
        with pytest.raises(StoreError):
            await store.write([thing("b")])
        await until(lambda: "cannot drop" in caplog.text)
        os.rename(f"{path}.moved", path)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM records").fetchone() == (1,)
    assert "deleted or replaced" in caplog.text


async def test_a_process_whose_lock_file_is_gone_has_it_again_when_it_has_written(path: Path) -> None:
    async with open_sqlite(str(path)) as store, open_sqlite(str(path)) as other:
        await store.join("here")
        shutil.rmtree(f"{path}.nodes")
        assert not await other.is_alive("here")
        await store.write([thing("a")])
        assert await other.is_alive("here")
        assert (SealedStore(store, Vault(KeyRing.random()), "the store").lapses, other.lapses) == (1, 0)


async def test_an_idle_process_whose_lock_file_is_gone_has_it_again_after_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SWEEP_SECONDS", 0.02)
    async with open_sqlite(str(path)) as store, open_sqlite(str(path)) as other:
        await store.join("here")
        # At once: it makes the file again at any time.
        os.rename(f"{path}.nodes", f"{path}.gone")
        await until((Path(f"{path}.nodes") / "here").exists)
        assert await other.is_alive("here")


async def test_a_process_that_cannot_say_that_it_lives_writes_nothing(path: Path) -> None:
    folder = Path(f"{path}.nodes")
    async with open_sqlite(str(path)) as store:
        await store.join("here")
        shutil.rmtree(folder)
        os.mkfifo(folder)
        with pytest.raises(StoreError, match=naming("this process lives")):
            await store.write([thing("a")])
        assert await store.read("thing", "a") is None
        os.remove(folder)
        await store.write([thing("a")])


async def test_a_program_may_change_its_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    async with open_sqlite(path.name) as store, open_sqlite(path.name) as other:
        monkeypatch.chdir("/")
        await store.write([thing("a")])
        await store.join("here")
        assert await other.is_alive("here")
    assert await trio.Path(f"{path}.nodes").is_dir()


async def test_only_its_owner_can_read_the_file_and_those_beside_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = os.umask(0)
    try:
        async with open_sqlite(str(path)) as store:
            await store.write([thing("a")])
            await store.join("here")
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
            node = stat.S_IMODE((path.parent / "state.db.nodes" / "here").stat().st_mode)
    finally:
        os.umask(before)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600, "state.db.nodes": 0o700}
    assert node == 0o600
    # From the first moment, and not because it was closed to others afterwards.
    assert not caplog.records


async def test_a_closed_store_is_one_file(path: Path) -> None:
    async with open_sqlite(str(path)) as store:
        await store.join("here")
        await store.write([thing("a")])
    assert [each for each in path.parent.rglob("*") if each.is_file()] == [path]


def size_of(path: Path) -> int:
    return path.stat().st_size


def begin_of(path: Path) -> sqlite3.Connection:
    """Return a connection that keeps others from writing."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def test_a_large_log_is_moved_into_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", MANY)
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a", bytes(MANY))])
        await until(lambda: size_of(path) > MANY)


def test_the_log_stays_where_it_is_while_another_process_may_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite up to 3.51.2 may lose what is written while it moves the log."""
    monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)
    with closing(open_database(path)) as writer:
        # More than it moves by itself, if it is let.
        assert sqlite_file.write_together(writer, [[thing("a", bytes(MANY))]], 0) == [None]
        with closing(begin_of(path)), pytest.raises(sqlite3.OperationalError):
            sqlite_schema.checkpoint(writer, path, threading.Lock())
        assert size_of(path) < MANY
        sqlite_schema.checkpoint(writer, path, threading.Lock())
        assert size_of(path) > MANY


COUNT = "WITH RECURSIVE up(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM up LIMIT 9999) SELECT i FROM up"
SLOW = f"SELECT count(*) FROM records, ({COUNT})"


async def test_the_log_is_begun_anew_although_one_look_up_follows_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = 100 * 1024
    monkeypatch.setattr(sqlite, "CHECKPOINT_BYTES", some)
    monkeypatch.setattr(sqlite_schema, "WAL_BYTES", 2 * some)

    async def look_up(store: SqliteStore) -> None:
        while True:
            await store._look_up(lambda reader: reader.execute(SLOW).fetchall())  # noqa: SLF001

    async with open_sqlite(str(path)) as store, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(look_up, store)
        for number in range(30):
            await store.write([thing(f"{number}", bytes(some))])
        assert (await trio.Path(f"{path}-wal").stat()).st_size < 10 * some
        nursery.cancel_scope.cancel()


async def test_a_store_that_is_closed_leaves_the_log_to_those_that_use_it(path: Path) -> None:
    some = MANY // 2
    async with open_sqlite(str(path)) as store:
        async with open_sqlite(str(path)) as other:
            await other.write([thing("a", bytes(some))])
        assert size_of(path) < some
        assert await store.read("thing", "a") is not None
    assert size_of(path) > some


class Closing:
    """A connection that notes that it is closed; the one of the look-ups lets the other one go first, if that does not wait."""

    def __init__(self, connection: sqlite3.Connection, name: str, closed: list[str], other: threading.Event) -> None:
        self._connection, self._name = connection, name
        self._closed, self._other = closed, other

    def close(self) -> None:
        if self._name == "reader":
            self._other.wait(0.2)
        self._connection.close()
        self._closed.append(self._name)
        self._other.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


async def test_the_connection_that_writes_is_closed_last(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are closed at the same moment, neither moves the log into the file."""
    closed, one = list[str](), threading.Event()
    opened = sqlite.open_connections

    def open_connections(path: Path) -> tuple[Closing, Closing]:
        writer, reader = opened(path)
        return Closing(writer, "writer", closed, one), Closing(reader, "reader", closed, one)

    monkeypatch.setattr(sqlite, "open_connections", open_connections)
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a")])
    assert closed == ["reader", "writer"]


async def test_a_second_store_in_the_same_process_leaves_the_locks_of_the_first_one(path: Path) -> None:
    """Without them, another process that closes the file takes itself for the last one, and deletes the log."""
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a")])
        async with open_sqlite(str(path)):
            await trio.run_process([sys.executable, "-c", OPEN_AND_CLOSE, str(path)])
        assert size_of(Path(f"{path}-wal"))


async def test_an_older_schema_is_brought_up_to_date_and_keeps_its_data(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a")])
    migrations = (*sqlite_schema.MIGRATIONS, "ALTER TABLE records ADD COLUMN note TEXT")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", migrations)
    async with open_sqlite(str(path)) as store:
        assert await store.read("thing", "a") is not None
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT key, note FROM records").fetchall() == [("a", None)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")


def no_database(path: Path) -> None:
    path.write_text("a text, and a long one " * 100)


def with_records(path: Path) -> None:
    with closing(open_database(path)) as connection:
        changes = [[thing(f"{number}", b"x" * 1000)] for number in range(100)]
        assert not any(sqlite_file.write_together(connection, changes, 0))


def cut_off(path: Path) -> None:
    with_records(path)
    os.truncate(path, path.stat().st_size // 2)


def scribbled_on(path: Path) -> None:
    with_records(path)
    with path.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 3 * 4096)


def changed(statement: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with closing(open_database(path)) as connection:
            connection.execute(statement)

    return spoil


async def use(path: Path) -> None:
    async with open_sqlite(str(path)):
        pass


@pytest.mark.parametrize(
    ("spoil", "cure"),
    [
        (changed("PRAGMA user_version = 99"), "install that version"),
        (of_another_program, "name another file"),
        (no_database, "move it away"),
        (cut_off, "store check"),
        (scribbled_on, "store check"),
        (changed("DROP TABLE entries"), "store check"),
        (changed("ALTER TABLE logs DROP COLUMN newest"), "store check"),
    ],
    ids=[
        "newer",
        "of another program",
        "no database",
        "cut off",
        "scribbled on",
        "without a table",
        "without a column",
    ],
)
def test_a_file_that_cannot_be_used_ends_the_start_and_keeps_its_data(
    path: Path, spoil: Callable[[Path], None], cure: str
) -> None:
    spoil(path)
    path.chmod(0o640)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        trio.run(use, path)
    assert str(path) in str(caught.value)
    assert cure in str(caught.value)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_a_store_is_a_regular_file(path: Path, kind: str) -> None:
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")
    before = path.lstat()
    with pytest.raises(ConfigurationError, match=naming(path, kind)):
        trio.run(use, path)
    assert path.lstat().st_mode == before.st_mode


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["FIFO", "device", "folder"])
def test_the_files_beside_a_store_are_regular_files(path: Path, suffix: str, kind: str) -> None:
    trio.run(use, path)
    beside = Path(f"{path}{suffix}")
    if kind == "FIFO":
        os.mkfifo(beside)
    elif kind == "device":
        beside.symlink_to("/dev/null")
    else:
        beside.mkdir()
    link = path.with_name("link.db")
    link.symlink_to(path)
    for opens in (lambda: trio.run(use, path), lambda: trio.run(use, link), lambda: sqlite_upkeep.summaries(path, 0)):
        with pytest.raises(ConfigurationError, match=naming(beside)):
            opens()


@pytest.mark.parametrize("content", [b"", None], ids=["empty", "store"])
def test_a_file_that_others_may_read_is_closed_to_them(
    path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        trio.run(use, path)
    else:
        path.write_bytes(content)
    path.chmod(0o666)
    beside = [Path(f"{path}-wal"), Path(f"{path}-shm")]
    for each in beside:
        each.touch()
        each.chmod(0o666)

    async def modes() -> set[int]:
        async with open_sqlite(str(path)) as store:
            await store.write([thing("a")])
            return {stat.S_IMODE(each.stat().st_mode) for each in (path, *beside)}

    assert trio.run(modes) == {0o600}
    assert str(path) in caplog.text


def test_a_file_whose_mode_cannot_be_changed_ends_the_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to another user, say."""
    trio.run(use, path)
    path.chmod(0o666)

    def refuse(*_args: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        trio.run(use, path)


async def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "a %20?mode=ro#x.db"
    async with open_sqlite(str(path)) as store:
        await store.write([thing("a")])
    assert path.exists()


def test_several_that_make_the_same_file_all_open_it(path: Path) -> None:
    opened: list[sqlite3.Connection] = []
    threads = [threading.Thread(target=lambda: opened.append(open_database(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    modes = [connection.execute("PRAGMA journal_mode").fetchone() for connection in opened]
    for connection in opened:
        connection.close()
    assert modes == [("wal",)] * 8


# a disk that is full, another process, bad values


def test_a_full_disk_fails_the_writes_that_do_not_fit_and_no_other(path: Path) -> None:
    with closing(open_database(path)) as connection:
        sqlite_file.write_together(connection, [[thing("before")]], 0)
        connection.execute("PRAGMA max_page_count = 30")
        batch = [[thing("small")], [thing("new"), thing("large", b"x" * 1_000_000)], [thing("little")]]
        outcomes = sqlite_file.write_together(connection, batch, 0)
        assert [type(outcome) for outcome in outcomes] == [type(None), StoreFull, type(None)]
        found = sqlite_file.list_records(connection, "thing", None, "", 100, 0)
        assert [record.key for record in found] == ["before", "little", "small"]
        # With room again it goes on.
        connection.execute("PRAGMA max_page_count = 10000")
        assert sqlite_file.write_together(connection, batch[1:2], 0) == [None]


LIMITED = """
import resource, sys, trio
from trio_mcp.storage import Put, Record, StoreFull
from trio_mcp.stores.sqlite import open_sqlite

async def main(path):
    async with open_sqlite(path) as store:
        await store.write([Put(Record("thing", "before", b"value"))])
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        for key in ("large", "larger"):
            try:
                await store.write([Put(Record("thing", key, bytes(1_000_000)))])
            except StoreFull as error:
                print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await store.write([Put(Record("thing", "after", b"value"))])
        print(*[record.key for record in await store.list("thing")])

trio.run(main, sys.argv[1])
"""


@pytest.mark.parametrize("limit", [100_000, 512 * 1024])
def test_a_limit_of_the_size_of_files_is_a_full_store(path: Path, limit: int) -> None:
    """`ulimit -f`, which the system reports in another way than a disk without room."""
    command = [sys.executable, "-c", LIMITED, str(path), str(limit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    *refused, kept = ended.stdout.splitlines()
    assert len(refused) == 2
    assert kept == "after before"


async def test_a_database_that_another_process_keeps_locked_is_an_error_in_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)
    outcomes: dict[str, type[StoreError] | None] = {}
    async with open_sqlite(str(path)) as store:
        with closing(begin_of(path)) as other:
            with trio.fail_after(5):
                await write_each(store, *map(str, range(200)), into=outcomes)
            assert await store.read("thing", "1") is None
            other.execute("ROLLBACK")
        assert set(outcomes.values()) == {StoreError}
        await store.write([thing("a")])


async def test_a_value_that_cannot_be_stored_fails_its_write_alone(path: Path) -> None:
    outcomes: dict[str, type[StoreError] | None] = {}
    async with open_sqlite(str(path)) as store:
        await write_each(store, "a", "\ud800", "b", into=outcomes)
        assert outcomes == {"a": None, "\ud800": StoreError, "b": None}


async def test_writes_that_wait_have_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_WAITING", 2)
    outcomes: dict[str, type[StoreError] | None] = {}
    async with open_sqlite(str(path)) as store:
        # The writer, too: it would take the first ones.
        await trio.testing.wait_all_tasks_blocked()
        await write_each(store, "a", "b", "c", into=outcomes)
    assert sorted(map(str, outcomes.values())).count(str(StoreError)) == 1


async def test_bytes_that_wait_have_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are being written count: a disk that hangs keeps them."""
    monkeypatch.setattr(batches, "MOST_WAITING_BYTES", 2500)
    outcomes: dict[str, type[StoreError] | None] = {}
    async with open_sqlite(str(path)) as store:
        with closing(begin_of(path)) as other:
            async with trio.open_nursery() as nursery:
                for key in ("first", "second"):
                    nursery.start_soon(lambda k: outcome(store, thing(k, bytes(1000)), into=outcomes), key)
                    # Into the hands of the writer.
                    await trio.testing.wait_all_tasks_blocked()
                await outcome(store, thing("third", bytes(1000)), into=outcomes)
                assert outcomes == {"third": StoreError}
                other.execute("ROLLBACK")
        assert outcomes == {"first": None, "second": None, "third": StoreError}
        # Alone, a write may be larger than the limit; and what was written counts no more.
        await store.write([thing("large", bytes(5000))])
        await store.write([Append("log", "large", 1, [bytes(5000)])])


async def test_a_key_that_cannot_be_stored_cannot_be_looked_for(path: Path) -> None:
    async with open_sqlite(str(path)) as store:
        for look_up in (store.read("thing", "\ud800"), store.list("\ud800"), store.entries("log", "\ud800", 0, 1)):
            with pytest.raises(StoreError):
                await look_up


# the end


async def test_what_waits_is_written_when_the_store_is_closed(path: Path) -> None:
    async with trio.open_nursery() as nursery:
        async with open_sqlite(str(path)) as store:
            for number in range(20):
                nursery.start_soon(store.write, [thing(f"{number:02d}")])
            await trio.testing.wait_all_tasks_blocked()
    async with open_sqlite(str(path)) as store:
        assert len(await store.list("thing")) == 20


async def test_what_a_cancelled_owner_still_writes_is_written(path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_sqlite(str(path)) as store:
            try:
                scope.cancel()
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True), trio.fail_after(5):
                    await trio.testing.wait_all_tasks_blocked()
                    await store.write([thing("last")])
    async with open_sqlite(str(path)) as store:
        assert await store.read("thing", "last") is not None


async def test_an_error_of_the_owner_leaves_as_it_is(path: Path) -> None:
    with pytest.raises(KeyError):
        async with open_sqlite(str(path)):
            raise KeyError


async def test_a_closed_store_raises_a_store_error(path: Path) -> None:
    async with open_sqlite(str(path)) as store:
        pass
    for use in (store.write([thing("a")]), store.read("thing", "a"), store.list("thing"), store.is_alive("here")):
        with pytest.raises(StoreError):
            await use


# what has expired


def pages(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        return int(other.execute("PRAGMA page_count").fetchone()[0])


async def test_the_file_stays_as_large_as_what_lives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast it is written: the time for a search has not come in this test."""
    monkeypatch.setattr(sqlite, "SWEEP_SECONDS", 1_000_000)
    clock = Clock()
    sizes = []
    async with open_sqlite(str(path), clock=clock) as store:
        for number in range(60):
            clock.now += 1
            until = clock.now + 10
            await store.write([thing(f"{number}-{each}", b"x" * 500, until) for each in range(50)])
            await store.write([Append("log", f"{number}", 1, [b"x" * 500] * 50, until)])
            sizes.append(pages(path))
    assert max(sizes[30:]) <= max(sizes[:30]) * 1.1


async def test_expired_logs_are_deleted_slice_by_slice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "SLICE", 7)
    with closing(open_database(path)) as connection:
        changes = [Append("log", f"{number}", 1, [b"x"] * 10, 5.0) for number in range(5)]
        sqlite_file.write_together(connection, [changes], 0)
        rounds = 1
        while sqlite_file.drop_expired(connection, 10.0):
            rounds += 1
        with pytest.raises(EventsGone):
            sqlite_file.entries(connection, "log", "1", 0, 10, 0.0)
        left = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("logs", "entries")]
    assert left == [0, 0]
    assert rounds >= 7


@pytest.mark.parametrize(("path", "named"), [("missing/state.db", "missing"), ("folder", "folder")])
async def test_the_error_for_a_path_that_cannot_be_a_file_omits_the_message_of_the_system(
    tmp_path: Path, path: str, named: str
) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match=named) as raised:
        async with open_sqlite(str(tmp_path / path)):
            raise AssertionError("it was opened")
    assert "Errno" not in str(raised.value)


def test_vacuum_waits_no_longer_for_every_slice_of_a_file_that_is_locked_again_and_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = 0.0, []

    def drop_some(connection: sqlite3.Connection, _now: float) -> bool:
        nonlocal now
        waits.append(connection.execute("PRAGMA busy_timeout").fetchone()[0] / 1000)
        now += waits[-1]
        return len(waits) < 100

    trio.run(use, path)
    monkeypatch.setattr(sqlite_upkeep, "drop_expired", drop_some)
    sqlite_upkeep.vacuum(path, 0.0, clock=lambda: now)
    assert sum(waits[:3]) <= sqlite_upkeep.LOCKED_SECONDS + sqlite_upkeep.LEAST_WAIT
    assert set(waits[3:]) == {sqlite_upkeep.LEAST_WAIT}
