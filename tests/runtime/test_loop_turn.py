"""What is done for all peers together is cut into turns; between two of them every other task runs."""

from __future__ import annotations

import trio

from trio_mcp.runtime.loop_turn import TURN, LoopTurn


async def works_by_turn(pieces: int, cost: int) -> list[int]:
    """Let that many tasks do a piece of work each, all at the same time; return how many were done in each turn of the loop."""
    turn, done = LoopTurn(), [0]

    async def bystander() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            done.append(0)

    async def work() -> None:
        if turn.is_over:
            await turn.pass_on()
        turn.spent += cost
        done[-1] += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as working:
            for _ in range(pieces):
                working.start_soon(work)
        nursery.cancel_scope.cancel()
    assert sum(done) == pieces
    return done


async def test_tasks_that_become_ready_together_share_the_turns() -> None:
    assert max(await works_by_turn(100, TURN // 2 + 1)) <= 2


async def test_work_that_fits_into_a_turn_does_not_wait() -> None:
    # Trio runs the tasks of a turn in any order, so that the bystander may come between them.
    assert sum(done > 0 for done in await works_by_turn(10, TURN // 10)) <= 2


async def test_a_task_that_is_cancelled_before_its_turn_does_not_hold_up_the_next() -> None:
    turn, passed, waits = LoopTurn(), list[str](), trio.Event()
    turn.spent = TURN + 1

    async def wait(name: str) -> None:
        waits.set()
        await turn.pass_on()
        passed.append(name)

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "first")
            await waits.wait()
            with trio.CancelScope() as scope:
                scope.cancel()
                await wait("cancelled")
            nursery.start_soon(wait, "last")
    assert passed == ["first", "last"]


async def test_a_cancel_does_not_end_a_turn_without_waiters() -> None:
    turn = LoopTurn()
    turn.spent = TURN + 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await turn.pass_on()
    assert not turn.is_over


def test_on_asyncio_a_turn_is_not_over_if_trio_has_had_one_meanwhile() -> None:
    turn, turns = LoopTurn(), [0]
    turn.turns_of_trio = lambda: turns[0]
    turn.spent = TURN + 1
    assert turn.is_over
    turns[0] += 1
    assert not turn.is_over
    assert turn.spent == 0
    turn.spent = TURN + 1
    assert turn.is_over
