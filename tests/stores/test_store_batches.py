"""The threads of stores: what waits shares a batch, and a server that does not answer fails all that wait for it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from outcome import Value
from waiting import until

from trio_mcp.stores import StoreError, StoreTimeout
from trio_mcp.stores.batches import Batches, Outcomes

BOUND = 20


class Gate:
    """Holds the batches up until it is opened, and notes them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = threading.Event()
        self.error: Exception | None = None
        self.is_closed = False

    def work(self, items: Sequence[int]) -> Outcomes:
        self.batches.append(list(items))
        assert self.open.wait(BOUND)
        if self.error is not None:
            raise self.error
        return [Value(item * 2) for item in items]

    def close(self) -> None:
        self.is_closed = True


@asynccontextmanager
async def running(batches: Batches[int]) -> AsyncIterator[None]:
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(batches.run)
            yield
            batches.stop()


async def add(batches: Batches[int], item: int, into: dict[int, object], size: int = 0) -> None:
    try:
        into[item] = await batches.add(item, size)
    except StoreError as error:
        into[item] = type(error)


@asynccontextmanager
async def held(gate: Gate, batches: Batches[int], into: dict[int, object], *sizes: int) -> AsyncIterator[None]:
    """Start an item, hold it up, and let others wait behind it, which have these sizes."""
    async with running(batches), trio.open_nursery() as nursery:
        nursery.start_soon(add, batches, 0, into)
        await until(lambda: bool(gate.batches))
        for item, size in enumerate(sizes, 1):
            nursery.start_soon(add, batches, item, into, size)
            # Tasks that are started together begin in any order.
            await trio.testing.wait_all_tasks_blocked()
        yield
        gate.open.set()


async def test_what_waits_is_one_batch_in_the_order_of_the_calls() -> None:
    gate, found = Gate(), dict[int, object]()
    batches = Batches("here", gate.work, gate.close, most=3)
    async with held(gate, batches, found, 0, 0, 0, 0):
        pass
    assert gate.batches == [[0], [1, 2, 3], [4]]
    assert found == {item: item * 2 for item in range(5)}
    assert gate.is_closed


async def test_a_batch_has_a_largest_size_and_one_item_may_be_larger() -> None:
    gate, found = Gate(), dict[int, object]()
    batches = Batches("here", gate.work, gate.close, most_bytes=10)
    async with held(gate, batches, found, 6, 4, 1, 50, 1):
        pass
    assert gate.batches == [[0], [1, 2], [3], [4], [5]]


async def test_a_server_that_does_not_answer_fails_what_waits_behind_it_too() -> None:
    gate, found = Gate(), dict[int, object]()
    batches = Batches("here", gate.work, gate.close)
    async with running(batches):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(add, batches, 0, found)
            await until(lambda: bool(gate.batches))
            for item in (1, 2):
                nursery.start_soon(add, batches, item, found)
            await trio.testing.wait_all_tasks_blocked()
            gate.error = StoreTimeout("no answer")
            gate.open.set()
        assert gate.batches == [[0]]
        assert found == dict.fromkeys(range(3), StoreTimeout)
        gate.error = None
        assert await batches.add(7) == 14


async def test_an_unexpected_error_fails_its_batch_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gate, found = Gate(), dict[int, object]()
    gate.error = KeyError("a bug")
    batches = Batches("here", gate.work, gate.close)
    async with held(gate, batches, found, 0):
        pass
    assert found == {0: StoreError, 1: StoreError}
    assert "here" in caplog.text
    assert "a bug" in caplog.text


async def test_a_cancelled_caller_leaves_the_batch_alone() -> None:
    gate, found = Gate(), dict[int, object]()
    batches = Batches("here", gate.work, gate.close)
    async with running(batches), trio.open_nursery() as nursery:
        with trio.move_on_after(0.01):
            await batches.add(0)
        nursery.start_soon(add, batches, 1, found)
        gate.open.set()
    assert gate.batches == [[0], [1]]
    assert found == {1: 2}


async def test_upkeep_runs_when_its_time_has_come_and_after_each_batch() -> None:
    gate, kept_up = Gate(), list[int]()
    gate.open.set()

    def keep_up() -> float:
        kept_up.append(len(gate.batches))
        return 0.01 if len(kept_up) < 3 else 1000

    batches = Batches("here", gate.work, gate.close, keep_up)
    async with running(batches):
        await until(lambda: len(kept_up) == 3)
        await batches.add(1)
        await until(lambda: len(kept_up) == 4)
    assert kept_up == [0, 0, 0, 1]


async def test_a_batch_that_hangs_is_abandoned_by_a_cancel_and_its_items_fail() -> None:
    gate, found = Gate(), dict[int, object]()
    batches = Batches("here", gate.work, gate.close)
    async with trio.open_nursery() as nursery:
        running = trio.CancelScope()

        async def run() -> None:
            with running:
                await batches.run()

        nursery.start_soon(run)
        nursery.start_soon(add, batches, 0, found)
        await until(lambda: bool(gate.batches))
        running.cancel()
    assert found == {0: StoreError}
    gate.open.set()
    await until(lambda: gate.is_closed)
