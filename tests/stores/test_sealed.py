"""What a durable store keeps is sealed, and what cannot be opened is set aside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from store_makers import KEYS

from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.sealing.at_rest import Unsealable, Vault
from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import (
    Append,
    MemoryStore,
    Notice,
    Put,
    Record,
    SharedStore,
    Store,
    StoreTimeout,
    UnreadableRecord,
    open_store,
)
from trio_mcp.stores.sealed import SECONDS, SealedStore
from trio_mcp.stores.sqlite import open_sqlite

OLD, NEW = KeyRing([b"o" * 32]), KeyRing([b"n" * 32])
BOTH = KeyRing([b"n" * 32, b"o" * 32])


def sealed(keys: KeyRing, store: Store) -> SealedStore:
    return SealedStore(store, Vault(keys), "the store")


def thing(key: str, value: bytes = b"secret value", owner: str = "secret owner") -> Put:
    return Put(Record("thing", key, value, owner))


async def keys_of(store: Store, **options: str) -> list[str]:
    return [record.key for record in await store.list("thing", **options)]


async def test_nothing_of_what_was_written_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(str(path), KEYS, MemoryBudget()) as store:
        await store.write([thing("a"), Append("log", "a", 1, [b"secret entry"])])
        # In the write-ahead log until it is closed.
        assert all(b"secret" not in file.read_bytes() for file in (path, Path(f"{path}-wal")))
    assert b"secret" not in path.read_bytes()


async def test_two_seals_of_one_value_differ() -> None:
    vault = Vault(KEYS)
    assert vault.seal(b"value", b"place") != vault.seal(b"value", b"place")


@pytest.mark.parametrize("at", [0, 3, 10, 20, -1])
def test_a_value_that_was_changed_does_not_open(at: int) -> None:
    vault = Vault(KEYS)
    changed = bytearray(vault.seal(b"value", b"place"))
    changed[at] ^= 1
    with pytest.raises(Unsealable):
        vault.open(bytes(changed), b"place")
    with pytest.raises(Unsealable):
        vault.open(bytes(changed[:20]), b"place")


async def test_what_an_older_key_sealed_is_found_and_opened() -> None:
    inner = MemoryStore()
    await sealed(OLD, inner).write([thing("a")])
    rotated = sealed(BOTH, inner)
    await rotated.write([thing("b")])
    assert await keys_of(rotated, owner="secret owner") == ["a", "b"]
    assert await keys_of(sealed(NEW, inner), owner="secret owner") == ["b"]


async def test_a_value_that_was_moved_is_set_aside_and_the_others_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(str(path), KEYS, MemoryBudget()) as store:
        await store.write([thing("a", b"1"), thing("b", b"2"), thing("c", b"3")])
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE records SET value = (SELECT value FROM records WHERE key = 'a') WHERE key = 'b'")
            other.commit()
        assert await keys_of(store) == ["a", "c"]
        with pytest.raises(UnreadableRecord):
            await store.read("thing", "b")


async def test_entries_that_were_exchanged_do_not_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(str(path), KEYS, MemoryBudget()) as store:
        await store.write([Append("log", "a", 1, [b"1", b"2"])])
        with closing(sqlite3.connect(path)) as other:
            other.execute("UPDATE entries SET value = (SELECT value FROM entries WHERE number = 1) WHERE number = 2")
            other.commit()
        assert await store.entries("log", "a", 0, 1) == [b"1"]
        with pytest.raises(UnreadableRecord):
            await store.entries("log", "a", 1, 1)


async def test_a_page_of_what_cannot_be_opened_does_not_end_a_list() -> None:
    inner = MemoryStore()
    await sealed(OLD, inner).write([thing(f"a{number}") for number in range(10)])
    store = sealed(NEW, inner)
    await store.write([thing("b"), thing("c"), thing("d")])
    assert [record.key for record in await store.list("thing", limit=2)] == ["b", "c"]


async def test_a_record_that_cannot_be_opened_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    inner = MemoryStore()
    await sealed(OLD, inner).write([thing("a"), thing("b")])
    store = sealed(NEW, inner)
    for _ in range(3):
        with pytest.raises(UnreadableRecord):
            await store.read("thing", "a")
        assert await keys_of(store) == []
    assert len(caplog.records) == 2
    assert all("secret" not in record.getMessage() for record in caplog.records)


async def test_records_of_another_key_are_counted_in_one_line_that_names_the_variable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = MemoryStore()
    await sealed(OLD, inner).write([thing(f"a{number:02}") for number in range(25)])
    store = sealed(NEW, inner)
    for _ in range(2):
        assert await store.list("thing", limit=10) == []
    (line,) = caplog.messages
    assert "25" in line
    assert "TRIO_MCP_KEYS" in line


async def test_a_record_that_cannot_be_opened_stays() -> None:
    inner = MemoryStore()
    await sealed(OLD, inner).write([thing("a")])
    assert await keys_of(sealed(NEW, inner)) == []
    assert await keys_of(sealed(OLD, inner)) == ["a"]


async def hang(*_arguments: object, **_options: object) -> Any:
    await trio.sleep_forever()


class Hanging(MemoryStore):
    durable = True
    lapses = 0
    write = read = list = entries = join = is_alive = hang  # type: ignore[assignment]


async def test_a_store_that_hangs_is_a_timeout_with_its_name(autojump_clock: trio.testing.MockClock) -> None:
    store = sealed(KEYS, Hanging())
    for use in (
        store.write([thing("a")]),
        store.read("thing", "a"),
        store.list("thing"),
        store.entries("log", "a", 0, 1),
        store.join("here"),
        store.is_alive("here"),
    ):
        with trio.fail_after(SECONDS + 1), pytest.raises(StoreTimeout, match="the store"):
            await use


async def test_a_cancel_is_no_timeout() -> None:
    with trio.move_on_after(0) as scope:
        await sealed(KEYS, Hanging()).read("thing", "a")
    assert scope.cancelled_caught


async def test_a_process_with_other_keys_than_a_living_one_is_refused_and_the_error_names_the_keys(
    tmp_path: Path,
) -> None:
    path, memory = str(tmp_path / "state.db"), MemoryBudget()
    old, new = b"o" * 32, b"n" * 32
    async with open_store(path, KeyRing([old]), memory) as store:
        await store.join("first")
        async with open_store(path, KeyRing([new, old]), memory) as rotated:
            await rotated.join("second")
        async with open_store(path, KeyRing([new]), memory) as stranger:
            with pytest.raises(ConfigurationError, match="TRIO_MCP_KEYS"):
                await stranger.join("third")
    # Of a process that has ended nothing is asked.
    async with open_store(path, KeyRing([new]), memory) as later:
        await later.join("fourth")


async def test_notices_and_what_processes_say_are_sealed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with open_store(str(path), KEYS, MemoryBudget()) as store, open_sqlite(str(path)) as bare:
        assert isinstance(store, SharedStore)
        await store.join("here", b"secret")
        assert b"secret" not in (await bare.nodes())["here"]
        async with bare.listen() as sealed, store.listen() as opened:
            await bare.announce("topic", b"not sealed")
            await store.announce("topic", b"secret")
            assert await anext(opened) == Notice("topic", b"secret")
            contents = [(await anext(sealed)).content for _ in range(2)]
    assert b"secret" not in contents[1]
