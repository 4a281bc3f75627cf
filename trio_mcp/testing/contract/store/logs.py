"""Rules about logs, whose numbered entries have no gaps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ....storage import Append, EventsGone, Forget, NoSuchEvent, Put, Record, Store
from ..expecting import failure
from .cases import Opened, StoreTrait, store_rule
from .records import PAST

LATER = time.time() + 100_000


async def append(store: Store, first: int, *entries: bytes, keep: int | None = None, until: float = LATER) -> None:
    await store.write([Append("log", "a", first, entries, until, keep)])


async def read(store: Store, after: int = 0, limit: int = 100) -> Sequence[bytes]:
    return list(await store.entries("log", "a", after, limit))


async def is_gone(store: Store, after: int = 0) -> None:
    await failure(EventsGone, read(store, after))


@store_rule()
async def entries_are_read_in_the_order_of_their_numbers(opened: Opened) -> None:
    await append(opened.store, 1, b"1", b"")
    await append(opened.store, 3, bytes(range(256)))
    assert await read(opened.store) == [b"1", b"", bytes(range(256))]


@store_rule()
async def a_log_is_read_page_by_page(opened: Opened) -> None:
    await append(opened.store, 1, b"1", b"2", b"3")
    assert await read(opened.store, limit=2) == [b"1", b"2"]
    assert await read(opened.store, 2) == [b"3"]
    assert await read(opened.store, 3) == []


@store_rule()
async def there_is_nothing_after_a_number_that_never_was(opened: Opened) -> None:
    await append(opened.store, 1, b"1")
    for after in (2, 2**80):
        await failure(NoSuchEvent, read(opened.store, after))


@store_rule()
async def a_log_that_never_was_is_gone(opened: Opened) -> None:
    await is_gone(opened.store)


@store_rule()
async def entries_that_are_appended_again_take_the_place_of_those_before(opened: Opened) -> None:
    await append(opened.store, 1, b"1", b"2", b"3")
    await append(opened.store, 2, b"two")
    assert await read(opened.store) == [b"1", b"two"]


@store_rule()
async def a_log_may_be_begun_anew_before_its_oldest_entry(opened: Opened) -> None:
    await append(opened.store, 5, b"5", b"6")
    await append(opened.store, 3, b"3")
    assert await read(opened.store, 2) == [b"3"]


@store_rule()
async def a_gap_makes_what_came_before_unreadable(opened: Opened) -> None:
    await append(opened.store, 1, b"1")
    await append(opened.store, 3, b"3")
    await is_gone(opened.store)
    await is_gone(opened.store, 1)
    assert await read(opened.store, 2) == [b"3"]


@store_rule()
async def a_log_keeps_as_many_of_its_newest_entries_as_it_shall(opened: Opened) -> None:
    await append(opened.store, 1, b"1", b"2", keep=3)
    assert await read(opened.store) == [b"1", b"2"]
    await append(opened.store, 3, b"3", b"4", keep=3)
    await is_gone(opened.store)
    assert await read(opened.store, 1) == [b"2", b"3", b"4"]


@store_rule()
async def a_log_that_has_expired_is_gone_and_does_not_come_back(opened: Opened) -> None:
    await append(opened.store, 1, b"1", until=PAST)
    await is_gone(opened.store)
    await append(opened.store, 2, b"2")
    await is_gone(opened.store)
    assert await read(opened.store, 1) == [b"2"]


@store_rule()
async def a_log_expires_as_a_whole(opened: Opened) -> None:
    """At the time that was said last."""
    await append(opened.store, 1, b"1")
    await append(opened.store, 2, b"2", until=LATER + 1)
    assert await read(opened.store) == [b"1", b"2"]
    await append(opened.store, 3, b"3", until=PAST)
    await is_gone(opened.store, 2)


@store_rule()
async def a_forgotten_log_is_gone(opened: Opened) -> None:
    await append(opened.store, 1, b"1")
    await opened.store.write([Forget("log", "a"), Forget("log", "never")])
    await is_gone(opened.store)
    await append(opened.store, 1, b"one")
    assert await read(opened.store) == [b"one"]


@store_rule()
async def a_log_and_a_record_may_have_one_key(opened: Opened) -> None:
    await append(opened.store, 1, b"entry")
    await opened.store.write([Put(Record("log", "a", b"record"))])
    await opened.store.write([Forget("log", "a")])
    record = await opened.store.read("log", "a")
    assert record is not None
    assert record.value == b"record"


@store_rule(StoreTrait.DURABLE)
async def logs_are_there_when_the_store_is_opened_again(opened: Opened) -> None:
    place = opened.place.with_name("second")
    async with opened.maker.open(place) as store:
        await append(store, 1, b"1", b"2")
    async with opened.maker.open(place) as store:
        await append(store, 3, b"3")
        assert await read(store) == [b"1", b"2", b"3"]
