"""The rules of `trio_mcp.storage.Store`, for the store in memory, in a SQLite file, and in a sealed one."""

from __future__ import annotations

import math
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import child

from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.sealing.at_rest import Vault
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.runtime import MemoryBudget
from trio_mcp.storage import (
    Append,
    EventsGone,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    Store,
    StoreConflict,
    StoreError,
    StoreFull,
    StoreTimeout,
    UnreadableRecord,
)
from trio_mcp.stores import MemoryStore, open_store, sqlite_schema
from trio_mcp.stores.sealed import SealedStore
from trio_mcp.stores.sqlite import open_sqlite

KEYS = KeyRing.random()
OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "sealed"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> OpenStore:
    """Opens the same store, again and again where it is durable."""

    @asynccontextmanager
    async def memory() -> AsyncIterator[Store]:
        yield MemoryStore(clock=clock)

    @asynccontextmanager
    async def sqlite() -> AsyncIterator[Store]:
        async with open_sqlite(str(tmp_path / "state.db"), clock=clock) as store:
            yield store

    @asynccontextmanager
    async def sealed() -> AsyncIterator[Store]:
        async with sqlite() as store:
            yield SealedStore(store, Vault(KEYS), "state.db")

    return {"memory": memory, "sqlite": sqlite, "sealed": sealed}[request.param]


def put(key: str, value: bytes = b"value", *, owner: str = "", version: int = 0, expires_at: float = math.inf) -> Put:
    return Put(Record("task", key, value, owner, expires_at, version))


async def keys_of(store: Store, owner: str | None = None, after: str = "", limit: int = 100) -> list[str]:
    return [record.key for record in await store.list("task", owner=owner, after=after, limit=limit)]


async def test_a_record_is_read_as_it_was_written(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([put("a", b"\0\xff", expires_at=2_000_000.0)])
        record = await store.read("task", "a")
        assert record is not None
        assert (record.value, record.version, record.expires_at) == (b"\0\xff", 1, 2_000_000.0)
        assert await store.read("task", "b") is None
        assert await store.read("session", "a") is None


async def test_a_write_with_an_old_version_is_a_conflict_and_writes_nothing(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([put("a")])
        for changes in ([put("a")], [put("b"), put("a", version=7)], [Remove("task", "a", 3)], [put("c", version=1)]):
            with pytest.raises(StoreConflict):
                await store.write(changes)
        assert await keys_of(store) == ["a"]
        await store.write([put("a", b"new", version=1)])
        record = await store.read("task", "a")
        assert record is not None
        assert (record.value, record.version) == (b"new", 2)


async def test_of_many_that_replace_one_version_one_succeeds(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([put("a")])
        won: list[int] = []

        async def replace(number: int) -> None:
            try:
                await store.write([put("a", str(number).encode(), version=1), put(f"mine-{number}")])
            except StoreConflict:
                return
            won.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(replace, number)
        (winner,) = won
        assert await keys_of(store) == ["a", f"mine-{winner}"]


async def test_records_are_listed_in_the_order_of_their_keys_page_by_page(opened: OpenStore) -> None:
    async with opened() as store:
        for key in ("3", "1", "5", "2", "4"):
            await store.write([put(key, owner="me" if key in "135" else "you")])
        assert await keys_of(store) == ["1", "2", "3", "4", "5"]
        assert await keys_of(store, limit=2) == ["1", "2"]
        assert await keys_of(store, after="2", limit=2) == ["3", "4"]
        assert await keys_of(store, owner="me") == ["1", "3", "5"]
        assert await keys_of(store, owner="nobody") == []


async def test_what_has_expired_is_not_returned_and_its_key_is_free(opened: OpenStore, clock: Clock) -> None:
    async with opened() as store:
        await store.write([put("a", expires_at=clock.now + 10), put("b")])
        await store.write([Append("call", "log", 1, [b"1"], clock.now + 10)])
        clock.now += 11
        assert await store.read("task", "a") is None
        assert await keys_of(store) == ["b"]
        with pytest.raises(EventsGone):
            await store.entries("call", "log", 0, 10)
        await store.write([put("a", b"again")])
        assert await keys_of(store) == ["a", "b"]


async def test_a_record_that_is_removed_is_gone(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([put("a"), put("b")])
        await store.write([Remove("task", "a"), Remove("task", "b", 1), Remove("task", "never")])
        assert await keys_of(store) == []


async def test_a_log_gives_back_its_entries_by_number(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([Append("call", "k", 1, [b"1", b"2"]), Append("call", "k", 3, [b"3"])])
        assert list(await store.entries("call", "k", 0, 10)) == [b"1", b"2", b"3"]
        assert list(await store.entries("call", "k", 1, 1)) == [b"2"]
        assert list(await store.entries("call", "k", 3, 10)) == []
        with pytest.raises(NoSuchEvent):
            await store.entries("call", "k", 4, 10)
        with pytest.raises(EventsGone):
            await store.entries("call", "other", 0, 10)


async def test_entries_replace_those_from_their_number_on(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([Append("call", "k", 1, [b"1", b"2", b"3"])])
        await store.write([Append("call", "k", 2, [b"two"])])
        assert list(await store.entries("call", "k", 0, 10)) == [b"1", b"two"]


async def test_a_gap_makes_what_is_before_it_unreadable(opened: OpenStore) -> None:
    async with opened() as store:
        await store.write([Append("call", "k", 1, [b"1"]), Append("call", "k", 5, [b"5"])])
        with pytest.raises(EventsGone):
            await store.entries("call", "k", 0, 10)
        assert list(await store.entries("call", "k", 4, 10)) == [b"5"]


async def test_a_log_keeps_as_many_entries_as_it_is_told(opened: OpenStore) -> None:
    async with opened() as store:
        for number in range(1, 6):
            await store.write([Append("events", "k", number, [str(number).encode()], keep=2)])
        with pytest.raises(EventsGone):
            await store.entries("events", "k", 2, 10)
        assert list(await store.entries("events", "k", 3, 10)) == [b"4", b"5"]
        await store.write([Forget("events", "k")])
        with pytest.raises(EventsGone):
            await store.entries("events", "k", 4, 10)


async def test_what_was_written_is_there_when_it_is_opened_again(opened: OpenStore) -> None:
    async with opened() as store:
        if not store.durable:
            return
        await store.write([put("a", owner="me"), Append("call", "k", 1, [b"1"])])
    async with opened() as store:
        assert await keys_of(store, owner="me") == ["a"]
        assert list(await store.entries("call", "k", 0, 10)) == [b"1"]


async def test_a_writer_that_is_cancelled_harms_no_other(opened: OpenStore) -> None:
    async with opened() as store:
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                scope.cancel()
                await store.write([put("cancelled")])
            nursery.start_soon(store.write, [put("kept")])
        assert "kept" in await keys_of(store)


async def test_the_store_in_memory_has_limits_that_it_names() -> None:
    few = MemoryStore(records=1)
    await few.write([put("a")])
    with pytest.raises(StoreFull, match="limit"):
        await few.write([put("b")])
    small = MemoryStore(memory=MemoryBudget(2000))
    with pytest.raises(StoreFull, match="memory budget"):
        await small.write([put("a", b"x" * 5000)])
    assert await keys_of(small) == []


# in a file


def path_of(tmp_path: Path) -> str:
    return str(tmp_path / "state.db")


async def test_only_its_owner_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with open_sqlite(path_of(tmp_path)) as store:
            await store.write([put("a")])
            files = [file for file in tmp_path.iterdir() if file.is_file()]  # noqa: ASYNC240
            assert len(files) == 3
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)


async def test_nothing_in_the_files_can_be_read_without_the_keys(tmp_path: Path) -> None:
    async with open_store(path_of(tmp_path), KEYS, MemoryBudget()) as store:
        await store.write([put("a", b"a secret value", owner="principal alice")])
        await store.write([Append("call", "k", 1, [b"another secret"])])
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())  # noqa: ASYNC240
        for text in (b"secret", b"alice"):
            assert text not in written


async def test_a_store_without_keys_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"secrets\.token_bytes"):
        async with open_store(path_of(tmp_path), None, MemoryBudget()):
            raise AssertionError
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_after_a_rotation_everything_is_found_and_the_newest_key_seals(tmp_path: Path) -> None:
    old, new = bytes(32), bytes([1] * 32)
    async with open_store(path_of(tmp_path), KeyRing([old]), MemoryBudget()) as store:
        await store.write([put("1", b"one", owner="me")])
    async with open_store(path_of(tmp_path), KeyRing([new, old]), MemoryBudget()) as store:
        await store.write([put("2", b"two", owner="me")])
        assert [record.value for record in await store.list("task", owner="me")] == [b"one", b"two"]
    async with open_store(path_of(tmp_path), KeyRing([new]), MemoryBudget()) as store:
        assert await keys_of(store) == ["2"]
        with pytest.raises(UnreadableRecord):
            await store.read("task", "1")


async def test_a_value_that_was_moved_does_not_open(tmp_path: Path) -> None:
    async with open_store(path_of(tmp_path), KEYS, MemoryBudget()) as store:
        await store.write([put("mine"), put("yours")])
    with sqlite3.connect(path_of(tmp_path)) as connection:
        connection.execute(
            "UPDATE records SET value = (SELECT value FROM records WHERE key = 'yours') WHERE key = 'mine'"
        )
    connection.close()
    async with open_store(path_of(tmp_path), KEYS, MemoryBudget()) as store:
        assert await keys_of(store) == ["yours"]


@pytest.mark.parametrize("flaw", ["damaged", "newer", "foreign"])
async def test_a_file_that_is_no_store_of_this_version_is_left_as_it_is(tmp_path: Path, flaw: str) -> None:
    path = Path(path_of(tmp_path))
    if flaw == "damaged":
        path.write_bytes(b"no database at all" * 100)  # noqa: ASYNC240
    else:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE mine (x)")
        if flaw == "newer":
            connection.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}")
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    before = path.read_bytes()  # noqa: ASYNC240
    with pytest.raises(ConfigurationError, match={"damaged": "damaged", "newer": "newer", "foreign": "another"}[flaw]):
        async with open_sqlite(str(path)):
            raise AssertionError
    assert path.read_bytes() == before  # noqa: ASYNC240


async def test_an_older_schema_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_sqlite(path_of(tmp_path)) as store:
        await store.write([put("a")])
    migrations = (*sqlite_schema.MIGRATIONS, "ALTER TABLE records ADD COLUMN note TEXT")
    monkeypatch.setattr(sqlite_schema, "MIGRATIONS", migrations)
    async with open_sqlite(path_of(tmp_path)) as store:
        assert await keys_of(store) == ["a"]
    with sqlite3.connect(path_of(tmp_path)) as connection:
        assert connection.execute("SELECT key, note FROM records").fetchall() == [("a", None)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


async def test_what_does_not_fit_on_the_disk_is_refused_alone(tmp_path: Path) -> None:
    async with open_sqlite(path_of(tmp_path)) as store:
        store._writer.execute("PRAGMA max_page_count = 40")  # noqa: SLF001
        results: dict[str, Exception | None] = {}

        async def write(key: str, size: int) -> None:
            try:
                await store.write([put(key, b"x" * size)])
                results[key] = None
            except StoreError as error:
                results[key] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, "small", 10)
            nursery.start_soon(write, "large", 10_000_000)
        assert results["small"] is None
        assert isinstance(results["large"], StoreFull)
        await write("after", 10)
        assert results["after"] is None


async def test_a_database_that_stays_locked_is_an_error_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_schema, "BUSY_SECONDS", 0.05)
    async with open_sqlite(path_of(tmp_path)) as store:
        await store.write([put("a")])
        other = sqlite3.connect(path_of(tmp_path), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.write([put("b")])
        other.execute("ROLLBACK")
        other.close()
        await store.write([put("b")])


async def test_a_store_that_hangs_is_a_timeout_with_its_name(autojump_clock: trio.testing.MockClock) -> None:
    class Hanging(MemoryStore):
        durable = True

        async def write(self, changes: object) -> None:  # type: ignore[override]
            await trio.sleep_forever()

    store = SealedStore(Hanging(), Vault(KEYS), "my store")
    with pytest.raises(StoreTimeout, match="my store"):
        await store.write([put("a")])


async def test_short_lived_records_do_not_make_the_file_grow(tmp_path: Path, clock: Clock) -> None:
    path = Path(path_of(tmp_path))
    async with open_sqlite(str(path), clock=clock) as store:
        size = 0
        for round_ in range(20):
            expiring = [put(f"{round_:03}-{number:03}", b"x" * 500, expires_at=clock.now + 1) for number in range(200)]
            for first in range(0, 200, 50):
                await store.write(expiring[first : first + 50])
            clock.now += 2
            while await store._sweep():  # noqa: SLF001
                await trio.lowlevel.checkpoint()
            store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # noqa: SLF001
            if round_ == 1:
                size = path.stat().st_size  # noqa: ASYNC240
        assert path.stat().st_size <= 1.1 * size  # noqa: ASYNC240


async def test_an_unknown_scheme_names_those_that_are_installed() -> None:
    with pytest.raises(ConfigurationError, match="sqlite"):
        async with open_store("redis://localhost", KEYS, MemoryBudget()):
            raise AssertionError


WRITER = """
import sys, trio
from trio_mcp.storage import Put, Record
from trio_mcp.stores.sqlite import open_sqlite

async def main():
    async with open_sqlite(sys.argv[1]) as store:
        await store.join("child")
        for number in range(1_000_000):
            await store.write([Put(Record("task", f"{number:08}", b"x" * 100))])
            print(number, flush=True)

trio.run(main)
"""


@pytest.mark.wires
async def test_what_was_committed_survives_a_kill_and_the_dead_process_is_known(tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    async with open_sqlite(path_of(tmp_path)) as store:
        async with child(script, path_of(tmp_path), strict=False, stderr=None) as process:
            number = 0
            while number < 50:
                number = int(await process.line())
            assert await store.is_alive("child")
            process.process.kill()
            await process.process.wait()
            assert not await store.is_alive("child")
        assert len(await store.list("task", limit=1000)) >= number
        await store.write([put("zzz")])


def test_sqlite_is_loaded_by_servers_with_such_a_store_alone() -> None:
    import subprocess

    code = "import trio_mcp.session, sys; print('sqlite3' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
