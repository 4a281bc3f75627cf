"""The outbox of a connection: replies never wait, talk waits while a reader is slow."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp.runtime import MemoryBudget, Outbox
from trio_mcp.runtime.outbox import MAX_QUEUED_BYTES, QUESTIONS


async def test_items_are_taken_in_order_and_all_at_once() -> None:
    outbox: Outbox[int] = Outbox()
    for item in (1, 2, 3):
        outbox.post(item)
    assert await outbox.take() == [1, 2, 3]
    assert len(outbox.items) == 0


async def test_a_cancelled_reader_loses_nothing() -> None:
    outbox: Outbox[int] = Outbox()
    with trio.move_on_after(1) as scope:
        await outbox.take()
    assert scope.cancelled_caught
    outbox.post(1)
    assert await outbox.take() == [1]


async def test_a_reader_that_gives_up_leaves_the_wait_of_the_next_one_alone() -> None:
    outbox: Outbox[int] = Outbox()
    woken = trio.Event()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            first.cancel()
            outbox.on_ready = woken.set
            await outbox.wait_ready()
        outbox.post(1)
        with trio.fail_after(5):
            await woken.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_reader_whose_items_are_taken_before_it_runs_waits_for_others(waits: bool) -> None:
    """An empty list would tell it that the outbox is closed."""
    # Trio chooses which task runs first.
    for _ in range(20):
        outbox: Outbox[int] = Outbox()
        taken: list[int] = []

        async def read(outbox: Outbox[int] = outbox, taken: list[int] = taken) -> None:
            taken.extend(await outbox.take())
            assert taken

        async def take_first(outbox: Outbox[int] = outbox) -> None:
            outbox.take_nowait()
            await trio.lowlevel.checkpoint()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                if not waits:
                    outbox.post(1)
                nursery.start_soon(read)
                if waits:
                    await wait_all_tasks_blocked()
                    outbox.post(1)
                nursery.start_soon(take_first)
                await wait_all_tasks_blocked()
                outbox.post(2)


async def test_a_reply_is_posted_above_the_limit_without_waiting() -> None:
    outbox: Outbox[int] = Outbox(limit=1)
    for item in (1, 2, 3):
        outbox.post(item)
    assert len(outbox.items) == 3


async def test_a_sender_that_is_cancelled_sends_nothing_though_there_is_room() -> None:
    outbox: Outbox[int] = Outbox()
    with trio.CancelScope() as scope:
        scope.cancel()
        await outbox.send(1)
    assert scope.cancelled_caught
    assert len(outbox.items) == 0


async def test_only_as_many_senders_go_on_as_there_is_room_for() -> None:
    outbox: Outbox[int] = Outbox(limit=1)
    outbox.post(0)
    async with trio.open_nursery() as nursery:
        for item in (1, 2, 3):
            nursery.start_soon(outbox.send, item)
        for waiting in (2, 1, 0):
            await wait_all_tasks_blocked()
            outbox.take_nowait()
            await wait_all_tasks_blocked()
            assert (1, waiting) == (len(outbox.items), len(nursery.child_tasks))


async def test_a_sender_that_is_cancelled_while_it_waits_has_sent_nothing() -> None:
    outbox: Outbox[int] = Outbox(limit=1)
    outbox.post(1)
    with trio.move_on_after(1) as scope:
        await outbox.send(2)
    assert scope.cancelled_caught
    assert outbox.take_nowait() == [1]


async def test_waiting_for_an_outbox_that_is_not_full_waits_until_the_outbox_is_read() -> None:
    outbox: Outbox[int] = Outbox(limit=1)
    outbox.post(1)
    with trio.move_on_after(1) as scope:
        await outbox.wait_not_full()
    assert scope.cancelled_caught
    outbox.take_nowait()
    with trio.fail_after(1):
        await outbox.wait_not_full()


@pytest.mark.parametrize(
    ("asked", "unasked", "unanswered", "waits"),
    [
        (1, 5, 0, False),
        (2, 0, 0, True),
        (2, 5, 0, True),
        (2 + QUESTIONS - 1, 5, 1, False),
        (2 + QUESTIONS, 0, 1, True),
    ],
)
async def test_answers_that_are_not_read_fill_an_outbox_and_what_we_have_caused_does_not(
    asked: int, unasked: int, unanswered: int, waits: bool
) -> None:
    outbox: Outbox[int] = Outbox(limit=2, unanswered=range(unanswered))
    for item in range(asked + unasked):
        outbox.post(item, unasked=item >= asked)
    with trio.move_on_after(1) as scope:
        await outbox.wait_for_reader()
    assert scope.cancelled_caught == waits
    outbox.take_nowait()
    with trio.fail_after(1):
        await outbox.wait_for_reader()


@pytest.mark.parametrize(("count", "size"), [(2, 1), (1, MAX_QUEUED_BYTES)], ids=["items", "bytes"])
async def test_an_outbox_that_is_full_of_what_was_sent_on_the_way_does_not_keep_its_owner_from_reading(
    count: int, size: int
) -> None:
    _, outbox = counting()
    outbox.limit = 2
    for _ in range(count):
        await outbox.send(b"x" * size)
    assert outbox.is_full
    with trio.fail_after(1):
        await outbox.wait_for_reader()


async def test_what_was_queued_before_the_close_is_still_taken_and_then_the_end_shows_as_nothing() -> None:
    outbox: Outbox[int] = Outbox()
    outbox.post(1)
    outbox.close()
    assert await outbox.take() == [1]
    assert await outbox.take() == []


async def test_items_after_the_close_are_dropped() -> None:
    outbox: Outbox[int] = Outbox(limit=1)
    outbox.close()
    outbox.post(1)
    await outbox.send(2)
    assert (outbox.items, outbox.closed) == ([], True)


async def test_a_close_wakes_the_reader_and_the_senders() -> None:
    empty: Outbox[int] = Outbox()
    full: Outbox[int] = Outbox(limit=1)
    full.post(1)
    taken: list[list[int]] = []

    async def reads() -> None:
        taken.append(await empty.take())

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reads)
            nursery.start_soon(full.send, 2)
            await wait_all_tasks_blocked()
            empty.close()
            full.close()
    assert taken == [[]]
    assert full.items == [1]


async def test_on_ready_is_called_once_when_there_is_something_to_take() -> None:
    outbox: Outbox[int] = Outbox()
    calls: list[int] = []
    outbox.on_ready = lambda: calls.append(len(outbox.items))
    outbox.post(1)
    outbox.post(2)
    assert calls == [1]


async def test_the_repr_shows_how_full_it_is() -> None:
    outbox: Outbox[int] = Outbox(limit=3)
    outbox.post(1)
    assert repr(outbox) == "<Outbox open queued=1/3>"
    outbox.close()
    assert repr(outbox) == "<Outbox closed queued=1/3>"


# What it counts


def counting(limit: int = 256) -> tuple[MemoryBudget, Outbox[bytes]]:
    budget = MemoryBudget(10**9)
    return budget, Outbox(limit, account=budget.open(), size_of=len)


async def test_queued_bytes_are_counted_until_the_reader_has_written_them() -> None:
    budget, outbox = counting()
    outbox.post(b"four")
    outbox.post(b"seven..")
    assert budget.statistics().drawn == 11
    assert outbox.take_nowait() == [b"four", b"seven.."]
    assert budget.statistics().drawn == 11
    outbox.post(b"more")
    assert await outbox.take() == [b"more"]
    assert budget.statistics().drawn == 4
    outbox.written()
    assert budget.statistics().drawn == 0


async def test_a_reader_that_waits_has_written_what_it_took() -> None:
    budget, outbox = counting()
    outbox.post(b"four")
    outbox.take_nowait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.take)
        await wait_all_tasks_blocked()
        assert budget.statistics().drawn == 0
        outbox.close()


async def test_what_a_fixed_cost_covers_is_not_drawn_and_more_is_drawn_whole() -> None:
    budget, outbox = counting()
    outbox.prepaid = 6
    outbox.post(b"four")
    assert budget.statistics().drawn == 0
    outbox.take_nowait()
    outbox.post(b"two")  # while the first is still being written
    assert budget.statistics().drawn == 7
    outbox.written()
    assert budget.statistics().drawn == 0
    outbox.post(b"seven..")
    assert budget.statistics().drawn == 10
    outbox.take_nowait()
    outbox.written()
    assert budget.statistics().drawn == 0


async def test_an_item_that_is_sent_at_once_is_not_counted() -> None:
    budget, outbox = counting()
    outbox.on_ready, outbox.send_now = (lambda: None), (lambda _item: True)
    outbox.post(b"four")
    assert budget.statistics().drawn == 0


async def test_an_outbox_is_full_of_bytes_as_well_as_of_items() -> None:
    _, outbox = counting()
    outbox.post(b"x" * (MAX_QUEUED_BYTES - 1))
    assert not outbox.is_full
    outbox.post(b"x")
    assert outbox.is_full
    with trio.move_on_after(1) as scope:
        await outbox.wait_for_reader()
    assert scope.cancelled_caught
    outbox.take_nowait()
    assert not outbox.is_full


async def test_leaving_its_block_closes_an_outbox_and_gives_everything_back() -> None:
    budget, outbox = counting()
    with outbox:
        outbox.post(b"four")
        outbox.take_nowait()
        outbox.post(b"more")
    outbox.post(b"late")
    assert outbox.closed
    assert budget.statistics().drawn == 0
