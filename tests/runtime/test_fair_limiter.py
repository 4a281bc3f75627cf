"""Places that callers share by waiting: one over its share lets others overtake, and has its turn again."""

from __future__ import annotations

import pytest
import trio
from actors import CUPS
from trio.testing import wait_all_tasks_blocked

from trio_mcp.runtime.quota import Quota
from trio_mcp.runtime.threads import FairLimiter

SECONDS = 10.0


class Turns:
    """Notes who gets a place, in order; names begin with the caller."""

    def __init__(self, limiter: FairLimiter, nursery: trio.Nursery) -> None:
        self.limiter, self.nursery = limiter, nursery
        self.got: list[str] = []

    async def ask(self, *names: str, ahead: bool = False) -> None:
        for name in names:
            self.nursery.start_soon(self._acquire, name, ahead)
            await wait_all_tasks_blocked()

    async def _acquire(self, name: str, ahead: bool) -> None:
        await self.limiter.acquire(name[0], ahead=ahead)
        self.got.append(name)

    async def release(self, caller: str) -> list[str]:
        """Give a place back; return who has got one by it."""
        before = len(self.got)
        self.limiter.release(caller)
        await wait_all_tasks_blocked()
        return self.got[before:]


@pytest.mark.parametrize("limit", [2, 3, 4, 5, 8])
async def test_whatever_one_caller_takes_and_waits_for_another_gets_a_place_at_once(limit: int) -> None:
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            turns = Turns(FairLimiter(CUPS, limit), nursery)
            await turns.ask(*(f"a{number}" for number in range(2 * limit)))
            assert len(turns.got) == (limit + 1) // 2
            await turns.ask("b")
            assert turns.got[-1] == "b"
            assert len(turns.got) <= limit
            nursery.cancel_scope.cancel()
    assert turns.limiter.waiting == 0


async def test_one_that_waits_alone_has_its_turn_whenever_a_place_is_given_back() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(FairLimiter(CUPS, 4), nursery)
        await turns.ask("a1", "a2", "a3", "a4", "a5")
        assert turns.got == ["a1", "a2"]
        assert [await turns.release("a") for _ in range(3)] == [["a3"], ["a4"], ["a5"]]


async def test_one_place_that_is_given_back_can_be_room_for_two_callers() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(FairLimiter(CUPS, 8), nursery)
        await turns.ask("a1", "a2", "b1", "b2", "a3", "b3")
        assert turns.got == ["a1", "a2", "b1", "b2"]
        # Less than half is in use, so the first is next; and bob has less than a quarter.
        assert sorted(await turns.release("b")) == ["a3", "b3"]


async def test_who_waits_ahead_is_next_before_who_has_waited_longer_and_only_the_others_fill_the_queue() -> None:
    async with trio.open_nursery() as nursery:
        queue = Quota(CUPS, 4)
        turns = Turns(FairLimiter(CUPS, 1, queue), nursery)
        await turns.ask("a", "b")
        await turns.ask("c", ahead=True)
        assert (turns.limiter.waiting, queue.in_use) == (2, 1)
        assert await turns.release("a") == ["c"]
        assert await turns.release("c") == ["b"]
        assert queue.in_use == 0


async def test_a_cancelled_wait_takes_nothing_and_one_that_got_its_place_keeps_it() -> None:
    async with trio.open_nursery() as nursery:
        turns = Turns(FairLimiter(CUPS, 1), nursery)
        await turns.ask("a")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as waiting:
                others = Turns(turns.limiter, waiting)
                await others.ask("b", "c")
                turns.limiter.release("a")
                scope.cancel()
        # The place of the first was counted before the cancel; the other waits no longer.
        assert others.got == ["b"]
        assert (turns.limiter.held.in_use, turns.limiter.waiting) == (1, 0)
        assert await turns.release("b") == []
        assert turns.limiter.held.in_use == 0
