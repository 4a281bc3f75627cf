"""Threads for plain functions: abandoned by a cancel, counted while they go on, and refused when all are held that way."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from naming import naming, unnamed
from trio.testing import wait_all_tasks_blocked

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import ThreadLimiter, ThreadStatistics
from trio_mcp.runtime.threads import Job

SOON = 10.0


class Stuck:
    """A function that returns on request; it counts the calls that are in it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.free = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.entered.release()
        assert self.free.wait(SOON)
        return "free"

    async def reached(self, number: int) -> None:
        """That many calls are in it."""
        for _ in range(number):
            assert await trio.to_thread.run_sync(lambda: self.entered.acquire(timeout=SOON))


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.free.set()


async def settled(threads: ThreadLimiter, number: int) -> None:
    """That many threads are abandoned; those that have returned are noticed later."""
    with trio.fail_after(SOON):
        while threads.statistics().abandoned != number or threads.statistics().running != number:
            await trio.lowlevel.checkpoint()


async def abandon(
    threads: ThreadLimiter, fn: Callable[[], object], nursery: trio.Nursery, number: int, stuck: Stuck
) -> None:
    for _ in range(number):
        nursery.start_soon(threads.run, fn)
    await stuck.reached(number)
    nursery.cancel_scope.cancel()


async def test_the_value_comes_back_with_the_context_of_the_caller() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ana")
    assert await ThreadLimiter(1).run(lambda: (user.get(), threading.current_thread() is threading.main_thread())) == (
        "ana",
        False,
    )


async def test_an_error_comes_back_as_it_is() -> None:
    def breaks() -> None:
        raise KeyError("deep")

    threads = ThreadLimiter(1)
    with pytest.raises(KeyError, match="deep"):
        await threads.run(breaks)
    assert threads.statistics() == ThreadStatistics(running=0, abandoned=0, waiting=0, limit=1)


async def test_a_cancel_frees_the_caller_and_the_thread_is_counted_until_it_returns(stuck: Stuck) -> None:
    threads = ThreadLimiter(3)
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            await abandon(threads, stuck, nursery, 2, stuck)
    assert threads.statistics() == ThreadStatistics(running=2, abandoned=2, waiting=0, limit=3)
    assert await threads.run(lambda: "third") == "third"
    stuck.free.set()
    await settled(threads, 0)


async def test_when_all_are_abandoned_the_next_is_refused_at_once_by_name_of_the_limit(stuck: Stuck) -> None:
    threads = ThreadLimiter(2)
    async with trio.open_nursery() as nursery:
        await abandon(threads, stuck, nursery, 2, stuck)
    with pytest.raises(LimitExceeded, match=naming("2 threads", "2 of them", "abandoned")):
        threads.admit()
    with pytest.raises(LimitExceeded, match=naming("2 threads", "2 of them", "abandoned")):
        await threads.run(lambda: None)
    stuck.free.set()
    await settled(threads, 0)
    assert await threads.run(lambda: "again") == "again"


async def test_those_that_wait_for_a_thread_are_refused_when_the_last_is_abandoned(stuck: Stuck) -> None:
    threads = ThreadLimiter(1)
    refused: list[str] = []
    called: list[str] = []

    async def waits() -> None:
        try:
            await threads.run(lambda: called.append("called"))
        except LimitExceeded as error:
            refused.append(str(error))

    with trio.fail_after(SOON):
        async with trio.open_nursery() as everybody:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(threads.run, stuck)
                await stuck.reached(1)
                for _ in range(3):
                    everybody.start_soon(waits)
                await wait_all_tasks_blocked()
                assert threads.statistics().waiting == 3
                nursery.cancel_scope.cancel()
    assert len(refused) == 3
    assert called == []


async def test_one_that_merely_waits_is_not_refused_while_somebody_may_return(stuck: Stuck) -> None:
    threads = ThreadLimiter(2)
    free = threading.Event()
    with trio.fail_after(SOON):
        async with trio.open_nursery() as everybody:
            everybody.start_soon(threads.run, lambda: free.wait(SOON))
            async with trio.open_nursery() as nursery:
                await abandon(threads, stuck, nursery, 1, stuck)
            everybody.start_soon(threads.run, lambda: None)
            await wait_all_tasks_blocked()
            assert threads.statistics().waiting == 1
            free.set()


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_is_never_made(stuck: Stuck) -> None:
    threads = ThreadLimiter(1)
    called: list[str] = []
    with trio.fail_after(SOON):
        async with trio.open_nursery() as everybody:
            everybody.start_soon(threads.run, stuck)
            await stuck.reached(1)
            with trio.CancelScope() as scope:
                scope.cancel()
                await threads.run(lambda: called.append("called"))
            assert threads.statistics().abandoned == 0
            stuck.free.set()
    assert called == []


async def test_a_function_whose_caller_left_before_its_thread_began_is_not_called() -> None:
    called: list[str] = []
    returned: list[str] = []
    job = Job(lambda: called.append("called"), lambda: returned.append("returned"))
    assert not job.abandon()
    assert job() is None
    assert (called, returned) == ([], [])


def test_a_thread_that_outlived_its_loop_takes_no_place_in_the_next_one(stuck: Stuck) -> None:
    threads = ThreadLimiter(2)

    async def leave_one_behind() -> None:
        async with trio.open_nursery() as nursery:
            await abandon(threads, stuck, nursery, 1, stuck)
        assert threads.statistics() == ThreadStatistics(running=1, abandoned=1, waiting=0, limit=2)

    async def use_both() -> None:
        await settled(threads, 0)
        together = threading.Barrier(2)
        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(threads.run, lambda: together.wait(SOON))

    trio.run(leave_one_behind)
    assert threads.statistics() == ThreadStatistics(running=1, abandoned=1, waiting=0, limit=2)
    stuck.free.set()
    trio.run(use_both)


# callers


async def test_a_caller_with_half_of_the_threads_waits_and_another_is_served(stuck: Stuck) -> None:
    threads = ThreadLimiter(4)
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(threads.run, stuck, "alice")
            await stuck.reached(2)
            await wait_all_tasks_blocked()
            assert threads.statistics() == ThreadStatistics(running=2, abandoned=0, waiting=4, limit=4)
            assert await threads.run(lambda: "served", "bob") == "served"
            stuck.free.set()
    assert stuck.calls == 6
    assert threads.statistics() == ThreadStatistics(running=0, abandoned=0, waiting=0, limit=4)


async def test_abandoned_threads_count_for_their_caller_until_they_return(stuck: Stuck) -> None:
    threads = ThreadLimiter(4)
    refused: list[str] = []

    async def waits() -> None:
        with pytest.raises(LimitExceeded) as caught:
            await threads.run(lambda: None, "alice")
        refused.append(str(caught.value))

    with trio.fail_after(SOON):
        async with trio.open_nursery() as everybody:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(threads.run, stuck, "alice")
                await stuck.reached(2)
                everybody.start_soon(waits)
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        # The one that waited, and one that comes now.
        await waits()
        assert len(refused) == 2
        assert unnamed(refused[0] + refused[1], "4", "quarter", "abandoned") == []
        assert await threads.run(lambda: "served", "bob") == "served"
        stuck.free.set()
        await settled(threads, 0)
        assert await threads.run(lambda: "again", "alice") == "again"
