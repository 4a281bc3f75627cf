"""The events of streams in a store of records and logs."""

from __future__ import annotations

import pytest

from trio_mcp.stores import EventsGone, LogKey, MemoryStore, StoreError
from trio_mcp.stores.adapters import StoredEvents

A, B, C = (LogKey("me", "session", stream) for stream in (1, 2, 3))
OTHER = LogKey("me", "other", 1)


async def gone(events: StoredEvents, key: LogKey, after: int = 0) -> None:
    with pytest.raises(EventsGone):
        await events.read(key, after, 100)


async def test_events_are_read_in_order_and_by_another_process_too() -> None:
    store = MemoryStore()
    await StoredEvents(store).append(A, 1, [b"1", b"2"])
    await StoredEvents(store).append(A, 3, [b"3"])
    assert await StoredEvents(store).read(A, 0, 100) == [b"1", b"2", b"3"]


async def test_streams_of_sessions_and_principals_are_apart() -> None:
    events = StoredEvents(MemoryStore())
    await events.append(A, 1, [b"a"])
    for key in (B, OTHER, LogKey(None, "session", 1), LogKey("you", "session", 1)):
        await gone(events, key)


async def test_a_stream_over_its_limits_loses_its_oldest_events() -> None:
    events = StoredEvents(MemoryStore(), stream_events=3, stream_bytes=10)
    await events.append(A, 1, [b"1", b"2", b"3", b"4"])
    await gone(events, A)
    assert await events.read(A, 1, 100) == [b"2", b"3", b"4"]
    await events.append(A, 5, [b"123456789"])
    assert await events.read(A, 3, 100) == [b"4", b"123456789"]
    await events.append(A, 6, [b"x" * 11])
    await gone(events, A, 4)
    await events.append(A, 7, [b"7"])
    assert await events.read(A, 6, 100) == [b"7"]


async def test_a_session_over_its_limits_loses_its_least_recently_written_stream() -> None:
    events = StoredEvents(MemoryStore(), session_events=4)
    await events.append(A, 1, [b"1"])
    await events.append(B, 1, [b"1", b"2"])
    await events.append(OTHER, 1, [b"1"])
    await events.append(A, 2, [b"2"])
    await events.append(C, 1, [b"1"])
    await gone(events, B)
    assert len(await events.read(A, 0, 100)) == 2
    assert len(await events.read(OTHER, 0, 100)) == 1


async def test_above_the_total_the_least_recently_written_stream_goes() -> None:
    events = StoredEvents(MemoryStore(), total_bytes=10)
    you, they = LogKey("you", "session", 1), LogKey("they", "session", 1)
    await events.append(you, 1, [b"12345"])
    await events.append(they, 1, [b"12345"])
    await events.append(A, 1, [b"1"])
    await gone(events, you)
    assert await events.read(they, 0, 100) == [b"12345"]


async def test_a_caller_over_its_share_loses_its_streams() -> None:
    events = StoredEvents(MemoryStore(), total_bytes=12)
    you = LogKey("you", "session", 1)
    await events.append(you, 1, [b"1234"])
    for stream in (A, B, OTHER):
        await events.append(stream, 1, [b"123"])
    await gone(events, A)
    assert await events.read(OTHER, 0, 100) == [b"123"]
    assert await events.read(you, 0, 100) == [b"1234"]


async def test_a_forgotten_stream_or_session_is_gone() -> None:
    events = StoredEvents(MemoryStore(), total_events=6)
    for key in (A, B, OTHER):
        await events.append(key, 1, [b"1"])
    await events.forget("me", "session", 1)
    await gone(events, A)
    assert await events.read(B, 0, 100) == [b"1"]
    await events.forget("me", "session")
    await events.forget("me", "never")
    await gone(events, B)
    assert await events.read(OTHER, 0, 100) == [b"1"]
    # Nothing of them counts any more.
    await events.append(OTHER, 2, [b"2", b"3"])
    assert len(await events.read(OTHER, 0, 100)) == 3


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
    other = LogKey("you", "session", 1)
    await events.append(other, 1, [b"1"])
    await events.append(A, 1, [b"1"])
    assert await events.read(A, 0, 100) == [b"1"]
    assert await events.read(other, 0, 100) == [b"1"]
