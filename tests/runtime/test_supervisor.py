"""The supervisor: caps, parking, draining, and the wall round every actor."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar

import pytest
import trio
from actors import Ended, forever, quick
from naming import naming
from trio.testing import wait_all_tasks_blocked

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import (
    Actor,
    ActorState,
    Cancelled,
    CancelReason,
    Limits,
    MemoryBudget,
    Outcome,
    Raised,
    Returned,
    Supervisor,
    SupervisorStatistics,
    open_supervisor,
)

Body = Callable[[Actor], Awaitable[object]]
PLACE: ContextVar[str] = ContextVar("PLACE", default="elsewhere")


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    async with open_supervisor() as opened:
        yield opened


async def outcome_of(supervisor: Supervisor, body: Body, deadline: float = math.inf) -> Outcome:
    ended = Ended()
    supervisor.start(body, ended, deadline=deadline)
    return await ended.wait()


# starting


async def test_a_body_that_returns_has_its_value_as_outcome(supervisor: Supervisor) -> None:
    assert Returned("done") == await outcome_of(supervisor, quick)


async def test_the_outcome_is_reported_after_the_actor_has_ended(supervisor: Supervisor) -> None:
    seen: list[tuple[int, ActorState]] = []
    done = trio.Event()

    def on_done(actor: Actor, _outcome: Outcome) -> None:
        seen.append((len(supervisor.actors), actor.state))
        done.set()

    supervisor.start(quick, on_done)
    await done.wait()
    assert seen == [(0, ActorState.DONE)]


async def test_a_delayed_body_runs_once_it_is_woken(supervisor: Supervisor) -> None:
    ended = Ended()
    actor = supervisor.start(quick, ended, delayed=True)
    await wait_all_tasks_blocked()
    assert supervisor.actors == (actor,)
    actor.wake()
    actor.wake()
    assert await ended.wait() == Returned("done")


async def test_a_delayed_body_has_the_context_of_its_start(supervisor: Supervisor) -> None:
    async def read(_actor: Actor) -> str:
        return PLACE.get()

    ended = Ended()
    token = PLACE.set("start")
    actor = supervisor.start(read, ended, delayed=True)
    PLACE.reset(token)
    actor.wake()
    assert await ended.wait() == Returned("start")


async def test_a_cancel_starts_a_delayed_body_which_is_cancelled(supervisor: Supervisor) -> None:
    ended = Ended()
    supervisor.start(forever, ended, delayed=True).cancel(CancelReason.CLIENT)
    assert await ended.wait() == Cancelled(CancelReason.CLIENT)


async def test_the_deadline_of_a_delayed_body_holds(supervisor: Supervisor) -> None:
    ended = Ended()
    supervisor.start(forever, ended, delayed=True, deadline=trio.current_time())
    assert await ended.wait() == Cancelled(CancelReason.DEADLINE)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_delayed_actor_ends_in_one_step_with_what_a_function_returns_or_raises(
    supervisor: Supervisor, *, fails: bool
) -> None:
    outcomes: list[Outcome] = []
    error = ValueError()

    def work() -> str:
        if fails:
            raise error
        return "done"

    actor = supervisor.start(forever, lambda _actor, outcome: outcomes.append(outcome), delayed=True)
    supervisor.end(actor, work)
    assert (outcomes, supervisor.actors) == ([Raised(error) if fails else Returned("done")], ())


async def test_starting_over_the_cap_is_refused_and_allocates_nothing() -> None:
    async with open_supervisor(Limits(actors=2)) as supervisor:
        for _ in range(2):
            supervisor.start(forever, Ended())
        before, tasks = supervisor.actors, trio.lowlevel.current_statistics().tasks_living
        for _ in range(100):
            with pytest.raises(LimitExceeded, match=naming("2 calls")):
                supervisor.start(forever, Ended())
        assert before == supervisor.actors
        assert tasks == trio.lowlevel.current_statistics().tasks_living
        assert (supervisor.statistics().started, supervisor.statistics().refused) == (2, 100)


async def test_what_is_held_for_an_actor_is_given_back_at_its_end_and_if_it_is_refused() -> None:
    budget = MemoryBudget(1000)
    with budget.open("a", "ana") as connection:
        async with open_supervisor(Limits(actors_per_principal=1)) as supervisor:
            actor = supervisor.start(forever, Ended(), account=connection.open(100))
            with pytest.raises(LimitExceeded, match="1 of your calls"):
                supervisor.start(forever, Ended(), account=connection.open(200))
            assert (actor.caller, budget.statistics().drawn) == ("ana", 100)
        assert budget.statistics().drawn == 0


async def test_the_cap_of_one_principal_does_not_touch_another() -> None:
    async with open_supervisor(Limits(actors_per_principal=1)) as supervisor:
        supervisor.start(forever, Ended(), principal="ana")
        with pytest.raises(LimitExceeded, match="1 of your calls"):
            supervisor.start(forever, Ended(), principal="ana")
        supervisor.start(forever, Ended(), principal="ben")


async def test_an_ended_actor_makes_room_for_the_next() -> None:
    async with open_supervisor(Limits(actors=1, actors_per_principal=1)) as supervisor:
        for _ in range(3):
            ended = Ended()
            supervisor.start(forever, ended, principal="ana").cancel(CancelReason.CLIENT)
            await ended.wait()


# cancelling


def test_a_cancel_reason_is_its_text() -> None:
    """In a format, in JSON and in a comparison, without `.value`."""
    assert f"{CancelReason.DISCONNECT}" == json.dumps(CancelReason.DISCONNECT).strip('"') == "disconnect"
    assert CancelReason("disconnect") is CancelReason.DISCONNECT
    assert isinstance(CancelReason.DISCONNECT, str)


async def test_the_first_cancel_reason_stands(supervisor: Supervisor) -> None:
    ended = Ended()
    unwound: list[CancelReason | None] = []

    async def body(actor: Actor) -> None:
        try:
            await trio.sleep_forever()
        finally:
            unwound.append(actor.cancel_reason)

    actor = supervisor.start(body, ended)
    await wait_all_tasks_blocked()
    actor.cancel(CancelReason.CLIENT)
    actor.cancel(CancelReason.SHUTDOWN)
    assert Cancelled(CancelReason.CLIENT) == await ended.wait()
    assert unwound == [CancelReason.CLIENT]


async def test_a_body_that_returns_in_spite_of_a_cancel_has_returned(supervisor: Supervisor) -> None:
    async def returns_at_once(_actor: Actor) -> str:
        return "done"

    ended = Ended()
    supervisor.start(returns_at_once, ended).cancel(CancelReason.CLIENT)
    assert Returned("done") == await ended.wait()


async def test_a_cancel_after_the_end_changes_nothing(supervisor: Supervisor) -> None:
    ended = Ended()
    actor = supervisor.start(quick, ended)
    await ended.wait()
    actor.cancel(CancelReason.CLIENT)
    await wait_all_tasks_blocked()
    assert await ended.wait() == Returned("done")


# parking


async def test_a_resumed_actor_has_all_the_time_of_its_deadline() -> None:
    ended = Ended()
    async with open_supervisor(Limits(park_ttl=10)) as supervisor:
        actor = supervisor.start(forever, ended, deadline=trio.current_time() + 100)
        supervisor.park(actor)
        assert ActorState.PARKED is actor.state
        await trio.sleep(9)
        supervisor.resume(actor)
        assert ActorState.RUNNING is actor.state
        assert Cancelled(CancelReason.DEADLINE) == await ended.wait()
    assert trio.current_time() == 100


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -1])
def test_a_call_is_parked_for_a_finite_time(seconds: float) -> None:
    with pytest.raises(ValueError, match=naming("park_ttl")):
        Limits(park_ttl=seconds)


@pytest.mark.parametrize(
    ("limits", "text"),
    [(Limits(parked=1), "1 calls"), (Limits(parked_per_principal=1), "1 of your calls")],
    ids=["in all", "per principal"],
)
async def test_parking_over_a_cap_is_refused_and_the_actor_still_runs(limits: Limits, text: str) -> None:
    async with open_supervisor(limits) as supervisor:
        first, second = supervisor.start(forever, Ended()), supervisor.start(forever, Ended())
        supervisor.park(first)
        with pytest.raises(LimitExceeded, match=text):
            supervisor.park(second)
        assert ActorState.RUNNING is second.state
        assert (supervisor.statistics().parked, supervisor.statistics().running) == (1, 1)
        supervisor.resume(first)
        supervisor.park(second)


async def test_parked_actors_of_one_principal_do_not_count_for_another() -> None:
    async with open_supervisor(Limits(parked_per_principal=1)) as supervisor:
        for principal in ("ana", "ben"):
            supervisor.park(supervisor.start(forever, Ended(), principal=principal))
        assert supervisor.statistics().parked == 2


# draining


async def naps(_actor: Actor) -> str:
    await trio.sleep(3)
    return "done"


@pytest.mark.parametrize(
    ("body", "ended_at", "outcome"),
    [(naps, 3, Returned("done")), (forever, 10, Cancelled(CancelReason.SHUTDOWN))],
    ids=["ends in its time", "does not"],
)
async def test_a_drain_cancels_an_actor_that_does_not_end_in_its_time(
    supervisor: Supervisor, body: Body, ended_at: float, outcome: Outcome
) -> None:
    ended = Ended()
    supervisor.start(body, ended)
    await supervisor.drain(10)
    assert ended.outcomes == [(ended_at, outcome)]


@pytest.mark.parametrize("seconds", [0, 1], ids=["before", "during"])
async def test_a_drain_cancels_an_actor_at_once_that_parks_before_or_during_it(
    supervisor: Supervisor, seconds: float
) -> None:
    async def parks(actor: Actor) -> None:
        await trio.sleep(seconds)
        supervisor.park(actor)
        await trio.sleep_forever()

    ended = Ended()
    supervisor.start(parks, ended)
    if seconds == 0:
        await wait_all_tasks_blocked()
    await supervisor.drain(10)
    assert ended.outcomes == [(seconds, Cancelled(CancelReason.SHUTDOWN))]


async def test_a_draining_supervisor_refuses_new_actors(supervisor: Supervisor) -> None:
    await supervisor.drain(0)
    with pytest.raises(LimitExceeded, match="shutting down"):
        supervisor.start(forever, Ended())


async def test_leaving_the_block_cancels_everything_with_the_reason_shutdown() -> None:
    ended = Ended()
    async with open_supervisor() as supervisor:
        supervisor.start(forever, ended)
        await wait_all_tasks_blocked()
    assert await ended.wait() == Cancelled(CancelReason.SHUTDOWN)


# the wall


class Rogue(BaseException):
    """An exception that no code expects."""


ERRORS = [
    ValueError("plain"),
    MemoryError(),
    RecursionError(),
    StopIteration(),
    StopAsyncIteration(),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    Rogue(),
    ExceptionGroup("group", [ValueError("in a group")]),
    BaseExceptionGroup("base group", [SystemExit(1), KeyboardInterrupt()]),
    ExceptionGroup("nested", [ExceptionGroup("inner", [KeyError("deep")]), OSError("beside")]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__ + str(error.args[:1]))
async def test_whatever_a_body_raises_is_contained_and_its_neighbours_live(
    supervisor: Supervisor, error: BaseException
) -> None:
    neighbour = Ended()
    go_on = trio.Event()

    async def streams(_actor: Actor) -> str:
        await go_on.wait()
        return "alive"

    async def raises(_actor: Actor) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    supervisor.start(streams, neighbour)
    outcome = await outcome_of(supervisor, raises)
    go_on.set()
    assert Returned("alive") == await neighbour.wait()
    assert isinstance(outcome, Raised)
    if isinstance(error, StopIteration):
        assert outcome.error.__cause__ is error  # a coroutine cannot raise it; Python wraps it
    else:
        assert outcome.error is error


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Rogue()], ids=repr)
async def test_what_a_task_of_a_body_raises_is_contained_too(supervisor: Supervisor, error: BaseException) -> None:
    async def raises() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    async def body(_actor: Actor) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(raises)

    outcome = await outcome_of(supervisor, body)
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, BaseExceptionGroup)
    assert (error,) == outcome.error.exceptions


async def breaks_in_clean_up() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise OSError("disk full")


async def cleans_up(_actor: Actor) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(breaks_in_clean_up)
        nursery.start_soon(trio.sleep_forever)


async def test_an_error_in_a_clean_up_comes_out_without_the_cancel_it_was_mixed_with(supervisor: Supervisor) -> None:
    ended = Ended()
    actor = supervisor.start(cleans_up, ended)
    await wait_all_tasks_blocked()
    actor.cancel(CancelReason.CLIENT)
    outcome = await ended.wait()
    assert isinstance(outcome, Raised)
    assert isinstance(outcome.error, BaseExceptionGroup)
    assert [OSError] == [type(error) for error in outcome.error.exceptions]
    assert outcome.error.subgroup(trio.Cancelled) is None


async def test_a_cancel_from_outside_wins_over_the_error_it_is_mixed_with() -> None:
    ended = Ended()
    with trio.move_on_after(1) as scope:
        async with open_supervisor() as supervisor:
            supervisor.start(cleans_up, ended)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert len(ended.outcomes) == 1


# showing


async def test_statistics_tell_what_runs_and_how_actors_ended(supervisor: Supervisor) -> None:
    async def raises(_actor: Actor) -> None:
        raise ValueError

    for body in (quick, raises):
        await outcome_of(supervisor, body)
    ended = Ended()
    supervisor.start(forever, ended).cancel(CancelReason.CLIENT)
    await ended.wait()
    parked = supervisor.start(forever, Ended())
    supervisor.park(parked)
    supervisor.start(forever, Ended())
    ended_as = {"returned": 1, "raised": 1, "cancelled": {CancelReason.CLIENT: 1}, "refused": 0}
    assert supervisor.statistics() == SupervisorStatistics(running=1, parked=1, started=5, **ended_as)
    assert repr(supervisor) == "<Supervisor running=1 parked=1 started=5>"


async def test_actors_are_named_by_their_label_and_a_number_and_listed_oldest_first(supervisor: Supervisor) -> None:
    for label in ("book", "search"):
        supervisor.start(forever, Ended(), label=label)
    assert [actor.name for actor in supervisor.actors] == ["book-1", "search-2"]


async def test_an_actor_shows_its_state(supervisor: Supervisor) -> None:
    actor = supervisor.start(forever, Ended(), label="book")
    supervisor.park(actor)
    assert repr(actor).startswith("<Actor book-1 parked busy=1 ")
    actor.cancel(CancelReason.CLIENT)
    assert repr(actor).endswith("cancelled=client>")
    assert (actor.state, actor.busy, actor.branches) == (ActorState.PARKED, 1, 0)
    assert CancelReason.CLIENT is actor.cancel_reason


async def test_an_error_of_the_block_is_in_no_group() -> None:
    with pytest.raises(LimitExceeded):
        async with open_supervisor():
            raise LimitExceeded("of the block")
