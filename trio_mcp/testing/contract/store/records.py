"""Rules about records: versions, lists, and writes that are made as a whole."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable
from typing import Final

import trio

from ....storage import Append, Change, EventsGone, Expect, Put, Record, Remove, Store, StoreConflict
from ..expecting import failure
from .cases import Opened, StoreTrait, store_rule

PAST: Final = 1000.0
"""A time at which nothing lives any more, in Unix seconds."""
WRITERS: Final = 16


async def put(store: Store, key: str, value: bytes = b"value", *, owner: str = "", version: int = 0) -> None:
    await store.write([Put(Record("thing", key, value, owner, math.inf, version))])


async def value_of(store: Store, key: str) -> bytes | None:
    record = await store.read("thing", key)
    return None if record is None else record.value


async def keys(store: Store, *, owner: str | None = None, after: str = "", limit: int = 100) -> list[str]:
    return [record.key for record in await store.list("thing", owner=owner, after=after, limit=limit)]


async def conflicts(write: Awaitable[None]) -> None:
    await failure(StoreConflict, write)


# one record


@store_rule()
async def a_record_is_read_as_it_was_written(opened: Opened) -> None:
    until = time.time() + 1000
    for key, value in (("bytes", bytes(range(256))), ("empty", b""), ("large", b"x" * 1_000_000)):
        await opened.store.write([Put(Record("thing", key, value, "", until))])
        assert await opened.store.read("thing", key) == Record("thing", key, value, "", until, 1)


@store_rule()
async def a_record_that_does_not_expire_is_read_as_such(opened: Opened) -> None:
    await put(opened.store, "a")
    record = await opened.store.read("thing", "a")
    assert record is not None
    assert record.expires_at == math.inf


@store_rule()
async def what_was_never_written_is_none(opened: Opened) -> None:
    assert await opened.store.read("thing", "a") is None
    assert not await opened.store.list("thing")


@store_rule()
async def a_record_replaces_the_version_that_it_names(opened: Opened) -> None:
    await put(opened.store, "a", b"1")
    await put(opened.store, "a", b"2", version=1)
    record = await opened.store.read("thing", "a")
    assert record is not None
    assert (record.value, record.version) == (b"2", 2)


@store_rule()
async def a_record_that_is_there_is_not_made_again(opened: Opened) -> None:
    await put(opened.store, "a", b"1")
    await conflicts(put(opened.store, "a", b"2"))
    assert await value_of(opened.store, "a") == b"1"


@store_rule()
async def an_older_version_replaces_nothing(opened: Opened) -> None:
    await put(opened.store, "a", b"1")
    await put(opened.store, "a", b"2", version=1)
    await conflicts(put(opened.store, "a", b"3", version=1))
    assert await value_of(opened.store, "a") == b"2"


@store_rule()
async def a_record_that_is_not_there_is_not_replaced(opened: Opened) -> None:
    await conflicts(put(opened.store, "a", version=1))
    assert await value_of(opened.store, "a") is None


@store_rule()
async def a_removed_record_is_gone_and_may_be_made_again(opened: Opened) -> None:
    await put(opened.store, "a", b"1")
    await opened.store.write([Remove("thing", "a", 1)])
    assert await value_of(opened.store, "a") is None
    assert not await keys(opened.store)
    await put(opened.store, "a", b"2")
    assert await value_of(opened.store, "a") == b"2"


@store_rule()
async def a_removal_without_a_version_removes_any_or_none(opened: Opened) -> None:
    await opened.store.write([Remove("thing", "a")])
    await put(opened.store, "a", b"1")
    await put(opened.store, "a", b"2", version=1)
    await opened.store.write([Remove("thing", "a")])
    assert await value_of(opened.store, "a") is None


@store_rule()
async def a_removal_of_another_version_removes_nothing(opened: Opened) -> None:
    await conflicts(opened.store.write([Remove("thing", "a", 1)]))
    await put(opened.store, "a")
    await conflicts(opened.store.write([Remove("thing", "a", 2)]))
    assert await value_of(opened.store, "a") == b"value"


@store_rule()
async def a_write_that_expects_another_version_makes_no_change(opened: Opened) -> None:
    store = opened.store
    await conflicts(store.write([Expect("thing", "a", 1), Put(Record("thing", "b", b"value"))]))
    await store.write([Put(Record("thing", "a", b"old", "me", PAST))])
    await conflicts(store.write([Expect("thing", "a", 1), Put(Record("thing", "b", b"value"))]))
    await put(store, "a")
    await store.write([Expect("thing", "a", 1), Put(Record("thing", "b", b"value"))])
    await conflicts(store.write([Append("log", "c", 1, [b"1"]), Expect("thing", "a", 2)]))
    assert await keys(store) == ["a", "b"]
    await failure(EventsGone, store.entries("log", "c", 0, 1))


@store_rule()
async def an_expectation_changes_no_version(opened: Opened) -> None:
    await put(opened.store, "a", b"1")
    await opened.store.write([Expect("thing", "a", 1), Expect("thing", "a", 1)])
    await opened.store.write([Put(Record("thing", "a", b"2", version=1)), Expect("thing", "a", 2)])
    assert await value_of(opened.store, "a") == b"2"


@store_rule()
async def records_of_two_kinds_may_have_one_key(opened: Opened) -> None:
    await put(opened.store, "a", b"thing")
    await opened.store.write([Put(Record("other", "a", b"other"))])
    await opened.store.write([Remove("other", "a")])
    assert await value_of(opened.store, "a") == b"thing"
    assert not await opened.store.list("other")


@store_rule()
async def a_key_may_be_any_text(opened: Opened) -> None:
    texts = ["a b", "a%", "a_", "a'\"", "a\\", "a\n", "a/../b", "ä", "\N{GRINNING FACE}", "x" * 200]
    for text in texts:
        await put(opened.store, text, text.encode())
    assert [await value_of(opened.store, text) for text in texts] == [text.encode() for text in texts]
    assert await keys(opened.store) == sorted(texts)


# expired


@store_rule()
async def a_record_that_has_expired_is_as_none(opened: Opened) -> None:
    store, old = opened.store, Record("thing", "a", b"old", "me", PAST)
    await store.write([Put(old)])
    assert await store.read("thing", "a") is None
    assert not await keys(store)
    assert not await keys(store, owner="me")
    await conflicts(store.write([Put(old._replace(version=1))]))
    await conflicts(store.write([Remove("thing", "a", 1)]))
    await put(store, "a", b"new")
    assert await value_of(store, "a") == b"new"


@store_rule()
async def a_record_may_be_prolonged(opened: Opened) -> None:
    soon = time.time() + 100
    await opened.store.write([Put(Record("thing", "a", b"1", "", soon))])
    await opened.store.write([Put(Record("thing", "a", b"1", "", soon + 100, 1))])
    record = await opened.store.read("thing", "a")
    assert record is not None
    assert record.expires_at == soon + 100


# lists


@store_rule()
async def records_are_listed_in_the_order_of_their_keys(opened: Opened) -> None:
    for key in ("b", "c", "a"):
        await put(opened.store, key, key.encode())
    listed = await opened.store.list("thing")
    assert [(record.kind, record.key, record.value, record.version) for record in listed] == [
        ("thing", key, key.encode(), 1) for key in ("a", "b", "c")
    ]


@store_rule()
async def a_list_is_read_page_by_page(opened: Opened) -> None:
    names = [f"{number:03d}" for number in range(25)]
    await opened.store.write([Put(Record("thing", name, b"")) for name in names])
    found, after = [], ""
    while page := await keys(opened.store, after=after, limit=10):
        assert len(page) <= 10
        found += page
        after = page[-1]
    assert found == names


@store_rule()
async def a_list_goes_on_after_a_key_that_is_gone(opened: Opened) -> None:
    for key in ("a", "b", "c"):
        await put(opened.store, key)
    await opened.store.write([Remove("thing", "b")])
    assert await keys(opened.store, after="b") == ["c"]


@store_rule()
async def a_list_may_be_that_of_one_owner(opened: Opened) -> None:
    store = opened.store
    for key, owner in (("a", "me"), ("b", "you"), ("c", "me"), ("d", "")):
        await put(store, key, owner=owner)
    assert await keys(store, owner="me") == ["a", "c"]
    assert await keys(store, owner="me", after="a") == ["c"]
    assert await keys(store, owner="me", limit=1) == ["a"]
    assert await keys(store, owner="") == ["d"]
    assert not await keys(store, owner="m")
    assert await keys(store) == ["a", "b", "c", "d"]


@store_rule()
async def a_record_may_change_its_owner(opened: Opened) -> None:
    await put(opened.store, "a", owner="me")
    await put(opened.store, "a", owner="you", version=1)
    assert not await keys(opened.store, owner="me")
    assert await keys(opened.store, owner="you") == ["a"]


# writes


@store_rule()
async def a_write_makes_all_its_changes_or_none(opened: Opened) -> None:
    store = opened.store
    await put(store, "there")
    changes: list[Change] = [
        Put(Record("thing", "new", b"")),
        Remove("thing", "there"),
        Append("log", "a", 1, [b"entry"]),
        Put(Record("thing", "none", b"", version=7)),
    ]
    await conflicts(store.write(changes))
    assert await keys(store) == ["there"]
    await failure(EventsGone, store.entries("log", "a", 0, 10))


@store_rule()
async def changes_are_made_in_their_order(opened: Opened) -> None:
    record = Record("thing", "a", b"1")
    await opened.store.write(
        [
            Put(record),
            Put(record._replace(value=b"2", version=1)),
            Remove("thing", "a", 2),
            Put(record._replace(value=b"3")),
        ]
    )
    found = await opened.store.read("thing", "a")
    assert found is not None
    assert (found.value, found.version) == (b"3", 1)


@store_rule()
async def of_several_that_replace_a_version_one_succeeds(opened: Opened) -> None:
    await put(opened.store, "a")
    successes: list[int] = []

    async def replace(number: int) -> None:
        try:
            await put(opened.store, "a", b"%d" % number, version=1)
        except StoreConflict:
            return
        successes.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(replace, number)
    assert len(successes) == 1
    assert await value_of(opened.store, "a") == b"%d" % successes[0]


@store_rule()
async def a_conflict_fails_no_other_write(opened: Opened) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(put, opened.store, f"{number:02d}")
            nursery.start_soon(conflicts, opened.store.write([Remove("thing", "none", 1)]))
    assert len(await keys(opened.store)) == WRITERS


@store_rule()
async def what_one_task_has_written_another_reads(opened: Opened) -> None:
    """Also if it was written at the same time as much else."""

    async def write_and_read(key: str) -> None:
        await put(opened.store, key, key.encode())
        assert await value_of(opened.store, key) == key.encode()

    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(write_and_read, f"{number:02d}")


@store_rule()
async def a_cancelled_write_is_made_as_a_whole_or_not_at_all(opened: Opened) -> None:
    changes = [Put(Record("thing", key, b"")) for key in ("a", "b")]
    with trio.CancelScope() as scope:
        scope.cancel()
        await opened.store.write(changes)
    # The store goes on. Its writes are made in turn, so that the cancelled one is made by now, or never will be.
    await put(opened.store, "c")
    assert await keys(opened.store) in (["a", "b", "c"], ["c"])


@store_rule(StoreTrait.DURABLE)
async def records_are_there_when_the_store_is_opened_again(opened: Opened) -> None:
    async with opened.maker.open(opened.place.with_name("second")) as store:
        assert store.durable
        await put(store, "a", b"1", owner="me")
        await put(store, "a", b"2", owner="me", version=1)
    async with opened.maker.open(opened.place.with_name("second")) as store:
        record = await store.read("thing", "a")
        assert record is not None
        assert (record.value, record.version) == (b"2", 2)
        assert await keys(store, owner="me") == ["a"]
