"""Branches: child lanes that end before their parent goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio
from log_limits import SHOWN
from naming import naming
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.errors import BranchLimit
from trio_mcp.runtime import MAX_DEPTH, Actor, Branch, Branches, CancelReason, Lane, branch, race, run_branch
from trio_mcp.runtime.branch import MAX_BRANCHES


@pytest.fixture
def lane() -> Iterator[Lane]:
    """The lane of a body. Whatever a test does with branches, in the end none is counted and the body is busy."""
    made = Lane(Actor("actor-1", None, math.inf))
    yield made
    assert (made.actor.busy, made.actor.branches) == (1, 0)


async def path_of(lane: Lane) -> str:
    await trio.lowlevel.checkpoint()
    return lane.path


async def endless(_lane: Lane) -> None:
    await trio.sleep_forever()


async def fail(_lane: Lane) -> str:
    await trio.lowlevel.checkpoint()
    raise LookupError("no flights")


async def test_values_are_there_after_the_block(lane: Lane) -> None:
    async with Branches(lane) as branches:
        first, second = branches.start(path_of), branches.start(path_of)
    assert (first.value, second.value) == ("/1", "/2")


async def test_a_branch_of_a_branch_has_a_path_below_it(lane: Lane) -> None:
    await run_branch(lane, path_of)

    async def nests(child: Lane) -> str:
        return await run_branch(child, path_of)

    assert await run_branch(lane, nests) == "/2/1"


async def test_a_result_is_awaited_inside_the_block(lane: Lane) -> None:
    async with Branches(lane) as branches:
        first = branches.start(path_of)
        assert await first.result() == "/1"
        assert await first.result() == "/1"


async def test_a_branch_has_no_value_before_it_ends(lane: Lane) -> None:
    async with Branches(lane) as branches:
        branch = branches.start(path_of)
        with pytest.raises(RuntimeError, match=naming("<Branch /1 running>", "await handle.result()")):
            _ = branch.value
    assert repr(branch) == "<Branch /1 ended>"


async def test_the_block_ends_only_when_every_branch_has(lane: Lane) -> None:
    async def slow(_lane: Lane) -> None:
        await trio.sleep(3)

    async with Branches(lane) as branches:
        branches.start(slow)
    assert trio.current_time() == 3


async def test_a_lone_branch_raises_its_exception_bare(lane: Lane) -> None:
    with pytest.raises(LookupError, match="no flights"):
        await run_branch(lane, fail)


async def test_cancel_ends_the_branches_of_one_group_only(lane: Lane) -> None:
    async with Branches(lane) as outer:
        kept = outer.start(path_of)
        async with Branches(lane) as inner:
            inner.start(endless)
            inner.cancel()
    assert kept.value == "/1"


async def test_a_branch_that_is_cancelled_before_its_first_step_is_counted_off(lane: Lane) -> None:
    with trio.CancelScope() as scope:
        async with Branches(lane) as branches:
            branches.start(path_of)
            scope.cancel()


async def test_a_branch_is_refused_before_and_after_the_block(lane: Lane) -> None:
    branches = Branches(lane)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="inside `async with`"):
            branches.start(path_of)
        async with branches:
            pass


async def test_a_branch_is_refused_while_the_block_is_being_left(lane: Lane) -> None:
    refused: list[str] = []

    async def too_late(group: Branches, last: Branch[str]) -> None:
        while "ended" not in repr(last):
            await trio.lowlevel.checkpoint()
        try:
            group.start(path_of)
        except RuntimeError as error:
            refused.append(str(error))

    async with trio.open_nursery() as nursery:
        for _ in range(20):  # any task may leave the block first
            async with Branches(lane) as group:
                nursery.start_soon(too_late, group, group.start(path_of))
    assert refused


async def test_a_branch_may_start_another_one_in_the_group_that_is_being_joined(lane: Lane) -> None:
    paths: list[str] = []

    async with Branches(lane) as branches:

        async def starts_another(_lane: Lane) -> None:
            await wait_all_tasks_blocked()  # the parent has come to the end of its block
            paths.append(await branches.start(path_of).result())

        branches.start(starts_another)
    assert paths == ["/2"]


# limits


async def test_branches_nest_as_deep_as_the_limit_and_no_deeper(lane: Lane) -> None:
    depths: list[int] = []

    async def nests(child: Lane) -> str:
        depths.append(child.depth)
        return await run_branch(child, nests)

    with pytest.raises(BranchLimit, match=naming(MAX_DEPTH, MAX_DEPTH + 1)) as caught:
        await run_branch(lane, nests)
    assert (caught.value.kind, caught.value.limit, caught.value.used) == ("depth", MAX_DEPTH, MAX_DEPTH + 1)
    assert depths == list(range(1, MAX_DEPTH + 1))


async def test_a_branch_that_is_too_deep_is_refused_before_it_runs_and_takes_no_place_among_its_siblings(
    lane: Lane,
) -> None:
    async with Branches(lane) as branches:
        with pytest.raises(BranchLimit):
            branches.start(fail, max_depth=0)
        assert lane.actor.busy == 1
        assert await branches.start(path_of).result() == "/1"


async def test_a_branch_over_the_limit_is_refused_and_names_the_limit(lane: Lane) -> None:
    lane.actor.branches = MAX_BRANCHES
    async with Branches(lane) as branches:
        with pytest.raises(BranchLimit, match=naming(MAX_BRANCHES)) as caught:
            branches.start(path_of)
    assert (caught.value.kind, caught.value.limit) == ("branches", MAX_BRANCHES)
    with pytest.raises(BranchLimit):
        await run_branch(lane, path_of)
    lane.actor.branches = 0


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
async def test_many_branches_of_one_actor_run_and_end(lane: Lane, count: int) -> None:
    async with Branches(lane) as branches:
        handles = [branches.start(path_of) for _ in range(count)]
    assert handles[-1].value == f"/{count}"


# waiting for one branch


async def test_who_waits_for_a_branch_that_fails_adds_no_error_to_it(lane: Lane) -> None:
    with pytest.RaisesGroup(LookupError):
        async with Branches(lane) as branches:
            await branches.start(fail).result()


async def test_a_sibling_that_waits_for_a_branch_that_has_failed_adds_no_error_to_it(lane: Lane) -> None:
    with pytest.RaisesGroup(LookupError):
        async with Branches(lane) as branches:
            failing = branches.start(fail)

            async def waits(_lane: Lane) -> None:
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                assert repr(failing) == "<Branch /1 failed>"
                await failing.result()

            branches.start(waits)


async def test_the_result_of_a_failed_branch_is_an_error_outside_of_its_group(lane: Lane) -> None:
    with pytest.RaisesGroup(LookupError):
        async with Branches(lane) as branches:
            branch = branches.start(fail)
    with pytest.raises(RuntimeError, match="<Branch /1 failed> has no value"):
        await branch.result()


# a separate timeout


Start = Callable[[Lane, Callable[[Lane], Awaitable[object]], float], Awaitable[object]]


async def alone(lane: Lane, fn: Callable[[Lane], Awaitable[object]], timeout: float) -> object:
    return await run_branch(lane, fn, timeout=timeout)


async def in_a_group(lane: Lane, fn: Callable[[Lane], Awaitable[object]], timeout: float) -> object:
    try:
        async with Branches(lane) as branches:
            branch = branches.start(fn, timeout=timeout)
    except* BranchLimit as group:
        (limit,) = group.exceptions
        raise limit from None
    return branch.value


both_ways = pytest.mark.parametrize("start", [alone, in_a_group])


@both_ways
async def test_a_branch_that_is_over_its_time_has_unwound_when_it_fails(lane: Lane, start: Start) -> None:
    ended: list[object] = []

    async def slow(child: Lane) -> None:
        async def inner(grandchild: Lane) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(2)
                ended.append(grandchild.reason)

        async with Branches(child) as branches:
            branches.start(inner)

    with pytest.raises((BranchLimit, ExceptionGroup)) as caught:
        await start(lane, slow, 3)
    found = caught.value
    while isinstance(found, ExceptionGroup):
        (found,) = found.exceptions
    assert isinstance(found, BranchLimit)
    assert str(found) == "a branch of this call did not end within 3 seconds"
    assert (found.kind, found.limit, found.used) == ("time", 3, 5)
    assert ended == [CancelReason.DEADLINE]


@both_ways
async def test_a_branch_that_ends_in_time_gives_its_value(lane: Lane, start: Start) -> None:
    async def slow(child: Lane) -> str:
        await trio.sleep(2)
        return child.path

    assert await start(lane, slow, 3) == "/1"


@both_ways
@pytest.mark.parametrize("outer", [2, 3, 4], ids=["before", "together", "while the branch unwinds"])
async def test_a_deadline_from_outside_is_never_taken_for_the_branches_own(
    lane: Lane, start: Start, outer: float
) -> None:
    async def slow(_lane: Lane) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    with trio.move_on_after(outer) as scope:
        await start(lane, slow, 3)
    assert scope.cancelled_caught


async def test_a_cancel_that_comes_in_the_moment_in_which_an_expired_branch_ends_wins(
    lane: Lane, mock_clock: MockClock
) -> None:
    scope = trio.CancelScope()

    async def slow(_lane: Lane) -> None:
        try:
            await trio.sleep_forever()
        finally:
            scope.deadline = trio.current_time()  # which the run loop only sees in its next turn

    with scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_and_jump, mock_clock)
            await run_branch(lane, slow, timeout=3)
    assert scope.cancelled_caught


async def wait_and_jump(clock: MockClock) -> None:
    await wait_all_tasks_blocked()
    clock.jump(4)


# the first to end


def after(seconds: float, value: str) -> Callable[[Lane], Awaitable[str]]:
    async def branch(_lane: Lane) -> str:
        await trio.sleep(seconds)
        return value

    return branch


async def test_the_first_branch_of_a_race_to_end_gives_the_value_and_the_others_have_unwound(lane: Lane) -> None:
    ended: list[object] = []

    async def loses(child: Lane) -> str:
        try:
            await trio.sleep(60)
        finally:
            ended.append(child.reason)
        return "late"

    assert await race(lane, loses, after(2, "second"), after(1, "first")) == "first"
    assert ended == [CancelReason.SIBLING]
    assert trio.current_time() == 1


@pytest.mark.parametrize("attempt", range(8))
async def test_of_two_branches_that_end_in_the_same_moment_the_one_that_runs_first_decides(
    lane: Lane, attempt: int
) -> None:
    """Trio runs the tasks of one turn in any order."""
    at_once = trio.Event()
    order: list[str] = []

    async def returns(_lane: Lane) -> str:
        await at_once.wait()
        order.append("returns")
        return "value"

    async def raises(_lane: Lane) -> str:
        await at_once.wait()
        order.append("raises")
        raise LookupError

    async def ends(_lane: Lane) -> str:
        await wait_all_tasks_blocked()
        at_once.set()
        await trio.sleep_forever()
        raise AssertionError

    try:
        value = await race(lane, returns, raises, ends)
    except* LookupError:
        assert order[0] == "raises"
    else:
        assert (value, order[0]) == ("value", "returns")


async def breaks_in_clean_up(_lane: Lane) -> str:
    try:
        await trio.sleep_forever()
    finally:
        raise LookupError("clean-up")


async def breaks_beside_a_cancel(lane: Lane) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(breaks_in_clean_up, lane)
        nursery.start_soon(trio.sleep_forever)
    return "never"


@pytest.mark.parametrize("breaks", [breaks_in_clean_up, breaks_beside_a_cancel])
async def test_what_goes_wrong_in_a_branch_that_has_lost_is_logged(
    lane: Lane,
    breaks: Callable[[Lane], Awaitable[str]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(branch, "failures", type(branch.failures)())
    with caplog.at_level(logging.WARNING):
        assert await race(lane, breaks, path_of) == "/2"
    (record,) = caplog.records
    assert record.getMessage() == "the branch /1 failed after it had lost its race"


async def test_many_branches_that_fail_after_they_have_lost_log_few_tracebacks(
    lane: Lane, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Callers can cause it, and must not fill the log.
    monkeypatch.setattr(branch, "failures", type(branch.failures)())
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * SHOWN):
            assert "/" in await race(lane, breaks_in_clean_up, path_of)
    assert len(caplog.records) == 2 * SHOWN
    assert sum(record.exc_info is not None for record in caplog.records) == SHOWN


async def test_what_a_branch_raises_in_its_clean_up_is_what_comes_out(lane: Lane) -> None:
    with pytest.raises(LookupError, match="clean-up"):
        await run_branch(lane, breaks_in_clean_up, timeout=3)


async def test_what_ends_a_process_is_no_lost_race(lane: Lane) -> None:
    async def exits(_lane: Lane) -> str:
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(3)

    with pytest.raises(BaseExceptionGroup) as caught:
        await race(lane, exits, path_of)
    assert caught.group_contains(SystemExit)


# why it was cancelled


async def test_a_lane_that_was_not_cancelled_has_no_reason(lane: Lane) -> None:
    async with Branches(lane) as branches:
        assert await branches.start(path_of, timeout=5).result() == "/1"
    assert (lane.reason, branches.failed_at) == (None, math.inf)


async def unwinds(lane: Lane, seen: list[CancelReason | None], seconds: float = 0) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
        seen.append(lane.reason)


async def test_a_failing_sibling_is_the_reason_below_it_too_and_not_above(lane: Lane) -> None:
    seen: list[CancelReason | None] = []

    async def nests(child: Lane) -> None:
        await run_branch(child, lambda grandchild: unwinds(grandchild, seen))

    async def late(_lane: Lane) -> str:
        await trio.sleep(1)
        raise LookupError

    with pytest.RaisesGroup(LookupError):
        async with Branches(lane) as branches:
            branches.start(nests)
            branches.start(late)
    assert seen == [CancelReason.SIBLING]
    assert lane.reason is None


async def test_a_body_that_fails_is_a_sibling_to_its_branches(lane: Lane) -> None:
    seen: list[CancelReason | None] = []
    with pytest.RaisesGroup(KeyError):
        async with Branches(lane) as branches:
            branches.start(lambda child: unwinds(child, seen))
            await wait_all_tasks_blocked()
            raise KeyError
    assert seen == [CancelReason.SIBLING]


async def test_a_scope_of_the_authors_own_is_no_reason(lane: Lane) -> None:
    seen: list[CancelReason | None] = []
    with trio.move_on_after(1):
        async with Branches(lane) as branches:
            branches.start(lambda child: unwinds(child, seen))
            branches.start(lambda child: unwinds(child, seen, 1))
    assert seen == [None, None]


async def cancelled_actor(lane: Lane, after: float, body: Callable[[], Awaitable[object]]) -> None:
    """Run a body inside its actor, whose client cancels it after some seconds."""

    async def cancel() -> None:
        await trio.sleep(after)
        lane.actor.cancel(CancelReason.CLIENT)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        with lane.actor.scope:
            await body()


@pytest.mark.parametrize(("client", "reason"), [(1, CancelReason.CLIENT), (4, CancelReason.DEADLINE)])
async def test_the_first_of_a_deadline_and_a_cancel_is_the_reason_for_good(
    lane: Lane, client: float, reason: CancelReason
) -> None:
    """The clean-up takes so long that both have come when it looks."""
    seen: list[CancelReason | None] = []
    await cancelled_actor(lane, client, lambda: run_branch(lane, lambda child: unwinds(child, seen, 9), timeout=3))
    assert seen == [reason]


@pytest.mark.parametrize(
    ("sibling", "reason"),
    [(breaks_in_clean_up, CancelReason.CLIENT), (fail, CancelReason.SIBLING)],
    ids=["the call was cancelled before", "the sibling failed before"],
)
async def test_the_first_of_a_cancel_and_a_failing_sibling_is_the_reason_for_good(
    lane: Lane, sibling: Callable[[Lane], Awaitable[str]], reason: CancelReason
) -> None:
    seen: list[CancelReason | None] = []

    async def body() -> None:
        async with Branches(lane) as branches:
            branches.start(sibling)
            branches.start(lambda child: unwinds(child, seen, 9))

    with pytest.RaisesGroup(pytest.RaisesGroup(LookupError)):
        await cancelled_actor(lane, 1, body)
    assert seen == [reason]


async def test_an_actor_whose_time_is_up_is_the_reason_of_its_branches() -> None:
    actor = Actor("actor-1", None, trio.current_time() + 3)
    # As `Supervisor.start` does.
    actor.scope.deadline = actor.deadline
    lane = Lane(actor)
    seen: list[CancelReason | None] = []
    with lane.actor.scope:
        await run_branch(lane, lambda child: unwinds(child, seen, 9), timeout=4)
    assert seen == [CancelReason.DEADLINE]
    assert lane.actor.cancellation is not None
    assert lane.actor.cancellation.at == 3
