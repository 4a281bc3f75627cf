"""The event log in memory: what it keeps, what it forgets first, and that it reports it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import given, settings, strategies as st

from trio_mcp.stores import EventsGone, LogKey, MemoryEventStore, NoSuchEvent

A, B, C = (LogKey(None, "s", stream) for stream in (1, 2, 3))
OTHER = LogKey(None, "t", 1)


def numbered(first: int, count: int, size: int = 4) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(first, first + count)]


async def everything(store: MemoryEventStore, key: LogKey, after: int = 0) -> list[bytes]:
    return list(await store.read(key, after, 1_000_000))


async def test_events_are_read_from_after_a_number_page_by_page() -> None:
    store = MemoryEventStore()
    await store.append(A, 1, numbered(1, 5))
    assert [await store.read(A, after, 2) for after in (0, 2, 4, 5)] == [
        numbered(1, 2),
        numbered(3, 2),
        numbered(5, 1),
        [],
    ]


async def test_unknown_and_evicted_events_are_distinguished() -> None:
    store = MemoryEventStore(stream_events=2)
    await store.append(A, 1, numbered(1, 3))
    with pytest.raises(NoSuchEvent):
        await store.read(A, 4, 1)
    with pytest.raises(EventsGone):
        await store.read(A, 0, 1)
    with pytest.raises(EventsGone):
        await store.read(B, 0, 1)
    assert await everything(store, A, 1) == numbered(2, 2)


async def test_a_hole_makes_what_is_before_it_unreadable() -> None:
    store = MemoryEventStore()
    await store.append(A, 1, numbered(1, 3))
    await store.append(A, 5, numbered(5, 1))
    with pytest.raises(EventsGone):
        await store.read(A, 2, 1)
    assert await everything(store, A, 4) == numbered(5, 1)


async def test_a_stream_over_its_limit_loses_its_own_beginning_only() -> None:
    store = MemoryEventStore(stream_bytes=10)
    await store.append(B, 1, numbered(1, 2))
    await store.append(A, 1, numbered(1, 3))
    assert await everything(store, A, 1) == numbered(2, 2)
    assert await everything(store, B) == numbered(1, 2)


async def test_a_session_over_its_limit_loses_the_stream_that_has_been_silent_longest() -> None:
    store = MemoryEventStore(session_events=6)
    await store.append(A, 1, numbered(1, 2))
    await store.append(B, 1, numbered(1, 2))
    await store.append(OTHER, 1, numbered(1, 2))
    await store.append(A, 3, numbered(3, 2))
    await store.append(C, 1, numbered(1, 1))
    with pytest.raises(EventsGone):
        await store.read(B, 0, 1)
    assert await everything(store, A) == numbered(1, 4)
    assert await everything(store, OTHER) == numbered(1, 2)


async def test_over_the_limit_of_all_the_oldest_stream_of_any_session_goes() -> None:
    store = MemoryEventStore(total_bytes=32)
    streams = [LogKey(None, session, 1) for session in "abcde"]
    for stream in streams:
        await store.append(stream, 1, numbered(1, 2))
    with pytest.raises(EventsGone):
        await store.read(streams[0], 0, 1)
    for stream in streams[1:]:
        assert await everything(store, stream) == numbered(1, 2)


async def test_a_caller_over_its_share_loses_the_streams_of_its_own_sessions_and_no_others() -> None:
    store = MemoryEventStore(total_bytes=32)
    alice = LogKey("alice", "s", 1)
    await store.append(alice, 1, numbered(1, 2))
    await store.append(OTHER, 1, numbered(1, 2))
    sessions = [LogKey("mallory", session, 1) for session in "abcd"]
    for session in sessions:
        await store.append(session, 1, numbered(1, 2))
    for other in (alice, OTHER, sessions[-1]):
        assert await everything(store, other) == numbered(1, 2)
    with pytest.raises(EventsGone):
        await store.read(sessions[-2], 0, 1)


async def test_a_stream_over_the_share_of_its_caller_loses_its_beginning() -> None:
    store = MemoryEventStore(total_events=8)
    await store.append(OTHER, 1, numbered(1, 4))
    await store.append(A, 1, numbered(1, 4))
    assert await everything(store, OTHER) == numbered(1, 4)
    assert await everything(store, A, 2) == numbered(3, 2)


async def test_an_event_over_a_limit_is_not_kept_and_the_log_goes_on_after_it() -> None:
    store = MemoryEventStore(stream_bytes=10)
    await store.append(A, 1, [b"x" * 11])
    await store.append(A, 2, numbered(2, 1))
    with pytest.raises(EventsGone):
        await store.read(A, 0, 1)
    assert await everything(store, A, 1) == numbered(2, 1)


async def test_forgetting_is_for_one_session_or_one_stream_of_it() -> None:
    store = MemoryEventStore()
    stranger = LogKey("mallory", "s", 1)
    for key in (A, B, OTHER, stranger):
        await store.append(key, 1, numbered(1, 1))
    await store.forget(None, "s", 1)
    assert len(store) == 3
    await store.forget(None, "s")
    await store.forget(None, "unknown")
    assert await everything(store, OTHER) == await everything(store, stranger) == numbered(1, 1)
    assert len(store) == 2


async def test_every_operation_is_a_checkpoint() -> None:
    store = MemoryEventStore()
    for operation in (lambda: store.append(A, 1, [b"x"]), lambda: store.read(A, 0, 1), lambda: store.forget(None, "s")):
        with trio.testing.assert_checkpoints():
            await operation()


# against a list


KEYS = [LogKey(owner, session, stream) for owner in (None, "p") for session in ("s", "t") for stream in (1, 2)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.integers(1, 4), st.integers(0, 6), st.sampled_from(["append", "again", "forget"])
    ),
    max_size=60,
)


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
    gone = False
    for after in range(len(events), -1, -1):
        try:
            read = await everything(store, key, after)
        except EventsGone:
            gone = True
        else:
            assert not gone
            assert read == events[after:]
            assert len(read) <= 8
