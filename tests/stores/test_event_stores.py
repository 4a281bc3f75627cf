"""The events of streams, in memory and in a store of records and logs: what is kept, what goes first, and that it is reported."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from trio_mcp.session import MemoryBudget
from trio_mcp.stores import EventsGone, LogKey, MemoryEventStore, MemoryStore, NoSuchEvent, StoreError
from trio_mcp.stores.adapters import StoredEvents

EventStore = MemoryEventStore | StoredEvents

A, B, C = (LogKey("me", "s", stream) for stream in (1, 2, 3))
OTHER, ANOTHER = LogKey("me", "t", 1), LogKey("me", "u", 1)
YOU, NOBODY = LogKey("you", "s", 1), LogKey(None, "s", 1)


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, first + count)]


async def everything(store: EventStore, key: LogKey, after: int = 0) -> list[bytes]:
    return list(await store.read(key, after, 1_000_000))


async def gone(store: EventStore, key: LogKey, after: int = 0) -> None:
    with pytest.raises(EventsGone):
        await store.read(key, after, 100)


def stored(**limits: int) -> StoredEvents:
    return StoredEvents(MemoryStore(), **limits)  # type: ignore[arg-type]


@pytest.fixture(params=[MemoryEventStore, stored], ids=["memory", "stored"])
def make(request: pytest.FixtureRequest) -> Callable[..., EventStore]:
    """Makes a store with these limits."""
    return request.param  # type: ignore[no-any-return]


async def test_events_are_read_from_after_a_number_page_by_page(make: Callable[..., EventStore]) -> None:
    store = make()
    await store.append(A, 1, numbered(1, 5))
    pages = [await store.read(A, after, 2) for after in (0, 2, 4, 5)]
    assert pages == [numbered(1, 2), numbered(3, 2), numbered(5, 1), []]


async def test_streams_of_sessions_and_principals_are_apart(make: Callable[..., EventStore]) -> None:
    store = make()
    await store.append(A, 1, [b"a"])
    for key in (B, OTHER, NOBODY, YOU):
        await gone(store, key)


async def test_a_hole_makes_what_is_before_it_unreadable(make: Callable[..., EventStore]) -> None:
    store = make()
    await store.append(A, 1, numbered(1, 3))
    await store.append(A, 5, numbered(5, 1))
    await gone(store, A, 2)
    assert await everything(store, A, 4) == numbered(5, 1)


@pytest.mark.parametrize("limit", [{"stream_bytes": 10}, {"stream_events": 2}], ids=str)
async def test_a_stream_over_its_limit_loses_its_own_beginning_only(
    make: Callable[..., EventStore], limit: dict[str, int]
) -> None:
    store = make(**limit)
    await store.append(B, 1, numbered(1, 2))
    await store.append(A, 1, numbered(1, 3))
    await gone(store, A)
    assert await everything(store, A, 1) == numbered(2, 2)
    assert await everything(store, B) == numbered(1, 2)


async def test_an_event_over_a_limit_is_not_kept_and_the_log_goes_on_after_it(make: Callable[..., EventStore]) -> None:
    store = make(stream_bytes=10)
    await store.append(A, 1, [b"x" * 11])
    await gone(store, A)
    await store.append(A, 2, numbered(2, 1))
    await gone(store, A)
    assert await everything(store, A, 1) == numbered(2, 1)


@pytest.mark.parametrize("limit", [{"session_bytes": 24}, {"session_events": 6}], ids=str)
async def test_a_session_over_its_limit_loses_the_stream_that_has_been_silent_longest(
    make: Callable[..., EventStore], limit: dict[str, int]
) -> None:
    store = make(**limit)
    for key in (A, B, OTHER):
        await store.append(key, 1, numbered(1, 2))
    await store.append(A, 3, numbered(3, 2))
    await store.append(C, 1, numbered(1, 1))
    await gone(store, B)
    assert await everything(store, A) == numbered(1, 4)
    await store.append(C, 2, numbered(2, 2))
    await gone(store, A)
    assert await everything(store, C) == numbered(1, 3)
    assert await everything(store, OTHER) == numbered(1, 2)


async def test_over_the_limit_of_all_the_stream_goes_that_has_been_silent_longest_whatever_its_session(
    make: Callable[..., EventStore],
) -> None:
    store = make(total_bytes=32)
    streams = [LogKey(f"{number}", "s", 1) for number in range(5)]
    for stream in streams:
        await store.append(stream, 1, numbered(1, 2))
    await gone(store, streams[0])
    for stream in streams[1:]:
        assert await everything(store, stream) == numbered(1, 2)


async def test_a_caller_over_its_share_loses_the_streams_of_its_own_sessions_and_no_others(
    make: Callable[..., EventStore],
) -> None:
    store = make(total_bytes=32)
    for key in (YOU, NOBODY, A, B, OTHER, ANOTHER):
        await store.append(key, 1, numbered(1, 2))
    for key in (YOU, NOBODY, ANOTHER):
        assert await everything(store, key) == numbered(1, 2)
    await gone(store, OTHER)


async def test_a_forgotten_stream_or_session_is_gone_and_counts_no_more(make: Callable[..., EventStore]) -> None:
    store = make(total_events=8)
    for key in (A, B, OTHER, YOU):
        await store.append(key, 1, numbered(1, 1))
    await store.forget("me", "s", 1)
    await gone(store, A)
    assert await everything(store, B) == numbered(1, 1)
    await store.forget("me", "s")
    await store.forget("me", "never")
    await gone(store, B)
    assert await everything(store, OTHER) == await everything(store, YOU) == numbered(1, 1)
    await store.append(OTHER, 2, numbered(2, 2))
    assert len(await everything(store, OTHER)) == 3


async def test_every_operation_is_a_checkpoint(make: Callable[..., EventStore]) -> None:
    store = make()
    for operation in (lambda: store.append(A, 1, [b"x"]), lambda: store.read(A, 0, 1), lambda: store.forget("me", "s")):
        with trio.testing.assert_checkpoints():
            await operation()


# in memory


async def test_unknown_and_evicted_events_are_distinguished() -> None:
    store = MemoryEventStore(stream_events=2)
    await store.append(A, 1, numbered(1, 3))
    with pytest.raises(NoSuchEvent):
        await store.read(A, 4, 1)
    for key in (A, B):
        await gone(store, key)


async def test_a_stream_over_the_share_of_its_caller_loses_its_beginning() -> None:
    store = MemoryEventStore(total_events=8)
    await store.append(YOU, 1, numbered(1, 4))
    await store.append(A, 1, numbered(1, 4))
    assert await everything(store, YOU) == numbered(1, 4)
    assert await everything(store, A, 2) == numbered(3, 2)


async def test_over_half_of_the_memory_a_caller_within_its_share_loses_nothing() -> None:
    memory = MemoryBudget(100_000)
    table = memory.open_table()
    table.draw(60_000, "they")
    store = MemoryEventStore(memory=memory)
    for key in (A, YOU):
        await store.append(key, 1, numbered(1, 2))
    assert await everything(store, A) == await everything(store, YOU) == numbered(1, 2)


KEYS = [LogKey(owner, session, stream) for owner in (None, "p") for session in ("s", "t") for stream in (1, 2)]
ACTIONS = st.sampled_from(["append", "again", "forget"])
STEPS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 4), st.integers(0, 6), ACTIONS), max_size=60)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_what_is_read_is_always_the_end_of_what_was_appended_and_within_the_limits(
    steps: list[tuple[LogKey, int, int, str]],
) -> None:
    trio.run(follow, steps)


async def follow(steps: list[tuple[LogKey, int, int, str]]) -> None:
    store = MemoryEventStore(stream_events=8, session_events=12, total_events=30, total_bytes=100)
    streams: dict[LogKey, list[bytes]] = {}  # everything that was ever appended, and no limits
    for key, count, size, what in steps:
        known = streams.setdefault(key, [])
        if what == "forget":
            await store.forget(key.principal, key.session, key.stream)
        else:
            del known[max(0, len(known) - (2 if what == "again" else 0)) :]
            added = [bytes([len(known) + number]) * size for number in range(count)]
            await store.append(key, len(known) + 1, added)
            known += added
        for other, events in streams.items():
            await compare(store, other, events)
    assert len(store) <= 30


async def compare(store: MemoryEventStore, key: LogKey, events: list[bytes]) -> None:
    """For each number: all that came after it, or that it is gone; and what is gone once is gone for all before."""
    is_gone = False
    for after in range(len(events), -1, -1):
        try:
            read = await everything(store, key, after)
        except EventsGone:
            is_gone = True
        else:
            assert not is_gone
            assert read == events[after:]
            assert len(read) <= 8


# in a store


async def test_events_are_read_by_another_process_too() -> None:
    store = MemoryStore()
    await StoredEvents(store).append(A, 1, [b"1", b"2"])
    await StoredEvents(store).append(A, 3, [b"3"])
    assert await everything(StoredEvents(store), A) == [b"1", b"2", b"3"]


class Failing(MemoryStore):
    fails = True

    async def write(self, changes: object) -> None:
        if self.fails:
            raise StoreError
        await super().write(changes)  # type: ignore[arg-type]


async def test_events_that_the_store_refused_are_appended_again() -> None:
    store = Failing()
    events = StoredEvents(store, total_events=2)
    for _ in range(5):
        with pytest.raises(StoreError):
            await events.append(A, 1, [b"1"])
    store.fails = False
    for key in (YOU, A):
        await events.append(key, 1, [b"1"])
    for key in (YOU, A):
        assert await everything(events, key) == [b"1"]
