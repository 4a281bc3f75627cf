"""Actors that do not end when they are cancelled: answered for after a grace, and left alone."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import weakref
from collections.abc import Generator

import pytest
import trio
from actors import Ended, forever, quick
from naming import naming
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.errors import Disconnected, LimitExceeded
from trio_mcp.runtime import Actor, ActorState, Cancelled, CancelReason, Limits, Supervisor, open_supervisor

GRACE = 5.0
FREED = 1000.0
"""Seconds after which a body that no cancel reaches ends by itself, so that a test can end."""


async def deaf(_actor: Actor) -> str:
    """A body that no cancel reaches."""
    with trio.CancelScope(shield=True):
        await trio.sleep_until(FREED)
    return "too late"


def counted(supervisor: Supervisor) -> tuple[int, int, int]:
    statistics = supervisor.statistics()
    return statistics.running, statistics.parked, statistics.stuck


# when


@pytest.mark.parametrize("reason", list(CancelReason))
async def test_a_body_that_ignores_its_cancel_is_reported_after_the_grace_period(reason: CancelReason) -> None:
    ended = Ended()
    async with open_supervisor(grace=GRACE) as supervisor:
        actor = supervisor.start(deaf, ended)
        await trio.sleep(10)
        actor.cancel(reason)
        assert await ended.first() == (10 + GRACE, Cancelled(reason))
        assert actor.state is ActorState.STUCK
        assert counted(supervisor) == (0, 0, 1)


async def test_the_earlier_of_cancel_and_deadline_counts_and_a_second_cancel_gives_no_more_time() -> None:
    ended = Ended()
    async with open_supervisor(grace=GRACE) as supervisor:
        actor = supervisor.start(deaf, ended, deadline=20)
        await trio.sleep(1)
        actor.cancel(CancelReason.CLIENT)
        await trio.sleep(3)
        actor.cancel(CancelReason.SHUTDOWN)
        assert await ended.first() == (1 + GRACE, Cancelled(CancelReason.CLIENT))


async def test_bodies_that_ignore_their_deadlines_are_each_reported_after_the_grace_period() -> None:
    ended = Ended()
    times = [7, 3, 5, 3, 11, 2]
    async with open_supervisor(grace=GRACE) as supervisor:
        for time in times:
            supervisor.start(deaf, ended, deadline=time)
        await trio.sleep(100)
        late = Cancelled(CancelReason.DEADLINE)
        assert ended.outcomes == [(time + GRACE, late) for time in sorted(times)]
        assert counted(supervisor) == (0, 0, len(times))


async def test_a_body_that_cleans_up_within_the_grace_is_not_stuck() -> None:
    ended = Ended()

    async def tidy(_actor: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(GRACE - 0.5)

    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(tidy, ended).cancel(CancelReason.CLIENT)
        assert await ended.first() == (GRACE - 0.5, Cancelled(CancelReason.CLIENT))
        await trio.sleep(100)
        assert supervisor.statistics().ever_stuck == 0


async def test_an_actor_that_had_the_time_but_no_turn_of_the_loop_is_not_stuck(mock_clock: MockClock) -> None:
    async def unwinding(_actor: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for _ in range(3):
                await trio.lowlevel.cancel_shielded_checkpoint()

    ended = Ended()
    async with open_supervisor(grace=GRACE) as supervisor:
        actors = [supervisor.start(unwinding, ended) for _ in range(10)]
        await wait_all_tasks_blocked()
        for actor in actors:
            actor.cancel(CancelReason.DISCONNECT)
        mock_clock.jump(2 * GRACE)  # as when a crowd that leaves keeps the loop busy for so long in one turn
        await wait_all_tasks_blocked()
        assert (counted(supervisor), supervisor.statistics().ever_stuck) == ((0, 0, 0), 0)


async def test_an_actor_that_always_swallows_its_cancel_is_stuck_too() -> None:
    ended = Ended()

    async def swallows(_actor: Actor) -> None:
        while trio.current_time() < FREED:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.5)
            with contextlib.suppress(trio.Cancelled):
                await trio.lowlevel.checkpoint()

    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(swallows, ended).cancel(CancelReason.CLIENT)
        assert await ended.first() == (GRACE, Cancelled(CancelReason.CLIENT))


async def test_a_parked_actor_that_ignores_its_expiry_is_given_up() -> None:
    ended = Ended()
    async with open_supervisor(Limits(park_ttl=60), grace=GRACE) as supervisor:
        actor = supervisor.start(deaf, ended)
        supervisor.park(actor)
        assert await ended.first() == (60 + GRACE, Cancelled(CancelReason.EXPIRED))
        assert counted(supervisor) == (0, 0, 1)


async def test_an_actor_that_is_cancelled_when_its_parking_is_nearly_over_has_its_whole_grace_period() -> None:
    ended = Ended()
    async with open_supervisor(Limits(park_ttl=60), grace=GRACE) as supervisor:
        actor = supervisor.start(deaf, ended)
        supervisor.park(actor)
        await trio.sleep(59)
        actor.cancel(CancelReason.CLIENT)
        assert await ended.first() == (59 + GRACE, Cancelled(CancelReason.CLIENT))


@pytest.mark.parametrize(
    ("deadline", "reason", "at"), [(50, CancelReason.DEADLINE, 50), (61, CancelReason.EXPIRED, 60)]
)
async def test_the_earlier_of_its_deadline_and_the_end_of_its_parking_cancels_an_actor(
    deadline: float, reason: CancelReason, at: float
) -> None:
    ended = Ended()
    async with open_supervisor(Limits(park_ttl=60), grace=GRACE) as supervisor:
        actor = supervisor.start(deaf, ended, deadline=deadline)
        supervisor.park(actor)
        assert await ended.first() == (at + GRACE, Cancelled(reason))


# what becomes of it


async def test_a_stuck_actor_has_one_outcome_whatever_it_does_in_the_end() -> None:
    ended = Ended()

    async def raises(actor: Actor) -> None:
        await deaf(actor)
        raise OSError

    async with open_supervisor(grace=GRACE) as supervisor:
        for body in (deaf, raises, deaf):
            supervisor.start(body, ended).cancel(CancelReason.DEADLINE)
        await trio.sleep(GRACE + 1)
        assert counted(supervisor) == (0, 0, 3)
        assert len(supervisor.actors) == 3
        await trio.sleep_until(FREED + 1)
        assert [Cancelled(CancelReason.DEADLINE)] * 3 == [outcome for _, outcome in ended.outcomes]
        assert (counted(supervisor), supervisor.actors) == ((0, 0, 0), ())
        statistics = supervisor.statistics()
        assert (statistics.returned, statistics.raised, statistics.ever_stuck) == (0, 0, 3)
        assert statistics.cancelled == {CancelReason.DEADLINE: 3}


async def test_a_stuck_actor_counts_against_the_caps() -> None:
    async with open_supervisor(Limits(actors=1), grace=GRACE) as supervisor:
        supervisor.start(deaf, Ended()).cancel(CancelReason.CLIENT)
        await trio.sleep(GRACE + 1)
        with pytest.raises(LimitExceeded, match=naming("1 calls")):
            supervisor.start(forever, Ended())
        await trio.sleep_until(FREED + 1)
        supervisor.start(forever, Ended())


async def test_no_answer_reaches_a_stuck_actor_and_its_questions_fail() -> None:
    """A clean-up that asks, behind a shield, would never end."""
    ended = Ended()
    failures: list[Exception] = []

    async def asks(actor: Actor) -> None:
        with trio.CancelScope(shield=True):
            for key in ("before", "after"):
                try:
                    await actor.mailbox.open(key, str).take()
                except Disconnected as error:
                    failures.append(error)

    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(asks, ended).cancel(CancelReason.DISCONNECT)
        await ended.first()
        await wait_all_tasks_blocked()
        assert ["the call is over" in str(failure) for failure in failures] == [True, True]
        assert supervisor.actors == ()


async def test_its_stack_shows_what_runs_behind_an_awaitable_object(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf:
        def __await__(self) -> Generator[object, None, str]:
            return deaf(actor).__await__()

    async def body(_actor: Actor) -> None:
        await Deaf()

    async with open_supervisor(grace=GRACE) as supervisor:
        actor = supervisor.start(body, Ended())
        actor.cancel(CancelReason.CLIENT)
        await trio.sleep(100)
    (stuck,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "await Deaf()" in stuck.getMessage()
    assert "await trio.sleep_until(FREED)" in stuck.getMessage()


async def test_it_is_logged_once_with_the_stacks_of_its_tasks(caplog: pytest.LogCaptureFixture) -> None:
    async def waits_behind_a_shield() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_until(FREED)

    async def body(_actor: Actor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits_behind_a_shield)

    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(body, Ended(), label="pump").cancel(CancelReason.CLIENT)
        await trio.sleep(100)
    (stuck,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert stuck.getMessage().startswith("pump-1 is stuck")
    assert "async with trio.open_nursery()" in stuck.getMessage()
    assert "await trio.sleep_until(FREED)" in stuck.getMessage()
    (ended,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "pump-1" in ended.getMessage()


# who no longer waits for it


async def test_a_drain_waits_no_longer_for_a_stuck_actor() -> None:
    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(deaf, Ended()).cancel(CancelReason.CLIENT)
        await trio.sleep(GRACE + 1)
        before = trio.current_time()
        await supervisor.drain(60, clean_up=60)
        assert trio.current_time() == before


async def test_a_drain_that_has_begun_goes_on_when_the_last_actor_is_stuck() -> None:
    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(deaf, Ended()).cancel(CancelReason.CLIENT)
        await supervisor.drain(60)
        assert trio.current_time() == GRACE


async def test_actors_that_a_drain_leaves_behind_are_reported() -> None:
    ended = Ended()
    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(deaf, ended)
        await supervisor.drain(10, clean_up=2)
        assert ended.outcomes == [(12, Cancelled(CancelReason.SHUTDOWN))]


async def test_actors_that_are_stuck_when_the_block_ends_are_reported_too() -> None:
    ended = Ended()
    async with open_supervisor(grace=GRACE) as supervisor:
        supervisor.start(deaf, ended)
        await trio.sleep(1)
    assert ended.outcomes == [(1 + GRACE, Cancelled(CancelReason.SHUTDOWN))]
    assert trio.current_time() == FREED


# what it costs


async def test_a_call_without_a_deadline_or_a_cancel_starts_no_task() -> None:
    async with open_supervisor() as supervisor:
        before = trio.lowlevel.current_statistics().tasks_living
        supervisor.start(forever, Ended())
        assert trio.lowlevel.current_statistics().tasks_living == before + 1


async def test_one_task_waits_for_all_and_an_ended_call_leaves_no_time_behind() -> None:
    async def quick(_actor: Actor) -> None:
        await trio.sleep(1)

    async with open_supervisor() as supervisor:
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(1000):
            supervisor.start(quick, Ended(), deadline=trio.current_time() + 300)
        assert trio.lowlevel.current_statistics().tasks_living == before + 1001
        await trio.sleep(2)
        assert trio.lowlevel.current_statistics().tasks_living == before + 1
        assert math.inf == trio.lowlevel.current_statistics().seconds_to_next_deadline


async def test_a_call_that_was_parked_leaves_no_time_behind_either() -> None:
    go_on = trio.Event()

    async def waits(_actor: Actor) -> None:
        await go_on.wait()

    async with open_supervisor(Limits(park_ttl=60)) as supervisor:
        actor = supervisor.start(waits, Ended(), deadline=trio.current_time() + 300)
        supervisor.park(actor)
        supervisor.resume(actor)  # which makes it overdue when it was at first
        go_on.set()
        await trio.sleep(1)
        assert math.inf == trio.lowlevel.current_statistics().seconds_to_next_deadline


async def test_a_time_that_has_not_come_keeps_no_ended_actor_alive() -> None:
    async with open_supervisor() as supervisor:
        supervisor.start(forever, Ended(), deadline=trio.current_time() + 100)
        ended = weakref.ref(supervisor.start(quick, Ended(), deadline=trio.current_time() + 200))
        await trio.sleep(1)
        gc.collect()
        assert ended() is None
