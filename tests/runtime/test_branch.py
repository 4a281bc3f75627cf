"""Branches: child lanes that end before their parent goes on."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Actor, Branches, Lane, run_branch
from trio_mcp.runtime.branch import MAX_BRANCHES, MAX_DEPTH


@pytest.fixture
def lane() -> Lane:
    return Actor("actor-1", None, math.inf).root


async def path_of(lane: Lane) -> str:
    await trio.lowlevel.checkpoint()
    return lane.path


async def fail(_lane: Lane) -> str:
    await trio.lowlevel.checkpoint()
    raise LookupError("no flights")


async def test_values_are_there_after_the_block(lane: Lane) -> None:
    async with Branches(lane) as branches:
        first, second = branches.start(path_of), branches.start(path_of)
    assert ("/1", "/2") == (first.value, second.value)


async def test_a_branch_of_a_branch_has_a_path_below_it(lane: Lane) -> None:
    await run_branch(lane, path_of)

    async def nests(child: Lane) -> str:
        return await run_branch(child, path_of)

    assert "/2/1" == await run_branch(lane, nests)


async def test_a_result_is_awaited_inside_the_block(lane: Lane) -> None:
    async with Branches(lane) as branches:
        first = branches.start(path_of)
        assert "/1" == await first.result()
        assert "/1" == await first.result()


async def test_a_branch_has_no_value_before_it_ends(lane: Lane) -> None:
    async with Branches(lane) as branches:
        branch = branches.start(path_of)
        with pytest.raises(RuntimeError, match=r"<Branch /1 running> has no value"):
            _ = branch.value
    assert "<Branch /1 ended>" == repr(branch)


async def test_the_block_ends_only_when_every_branch_has(lane: Lane, autojump_clock: MockClock) -> None:
    async def slow(_lane: Lane) -> None:
        await trio.sleep(3)

    async with Branches(lane) as branches:
        branches.start(slow)
    assert 3 == trio.current_time()


async def test_the_first_failure_cancels_the_siblings_and_comes_out_in_a_group(
    lane: Lane, autojump_clock: MockClock
) -> None:
    ended: list[str] = []

    async def sibling(_lane: Lane) -> None:
        try:
            await trio.sleep(60)
        finally:
            ended.append("sibling")

    with pytest.RaisesGroup(LookupError):
        async with Branches(lane) as branches:
            branches.start(sibling)
            branches.start(fail)
    assert ["sibling"] == ended
    assert 0 == trio.current_time()
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_lone_branch_raises_its_exception_bare(lane: Lane) -> None:
    with pytest.raises(LookupError, match="no flights"):
        await run_branch(lane, fail)
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_failing_body_cancels_its_branches_and_counts_right(lane: Lane) -> None:
    with pytest.RaisesGroup(KeyError):
        async with Branches(lane) as branches:
            branches.start(lambda _lane: trio.sleep_forever())
            raise KeyError
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_cancel_ends_the_branches_of_one_group_only(lane: Lane, autojump_clock: MockClock) -> None:
    async with Branches(lane) as outer:
        kept = outer.start(path_of)
        async with Branches(lane) as inner:
            inner.start(lambda _lane: trio.sleep_forever())
            inner.cancel()
    assert "/1" == kept.value
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_branch_that_is_cancelled_before_its_first_step_is_counted_off(lane: Lane) -> None:
    with trio.CancelScope() as scope:
        async with Branches(lane) as branches:
            branches.start(path_of)
            scope.cancel()
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_branch_is_refused_before_the_block_and_nothing_is_counted(lane: Lane) -> None:
    branches = Branches(lane)
    with pytest.raises(RuntimeError, match="inside `async with`"):
        branches.start(path_of)
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_branch_is_refused_after_the_block_and_nothing_is_counted(lane: Lane) -> None:
    async with Branches(lane) as branches:
        pass
    with pytest.raises(RuntimeError, match="inside `async with`"):
        branches.start(path_of)
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_branch_may_start_another_one_in_the_group_that_is_being_joined(lane: Lane) -> None:
    paths: list[str] = []

    async with Branches(lane) as branches:

        async def starts_another(_lane: Lane) -> None:
            await wait_all_tasks_blocked()  # the parent has come to the end of its block
            paths.append(await branches.start(path_of).result())

        branches.start(starts_another)
    assert ["/2"] == paths
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_branches_nest_as_deep_as_the_limit_and_no_deeper(lane: Lane) -> None:
    async def nests(child: Lane) -> str:
        return await run_branch(child, nests)

    with pytest.raises(LimitExceeded, match=f"may nest {MAX_DEPTH} deep"):
        await run_branch(lane, nests)
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_a_branch_over_the_limit_is_refused_and_names_the_limit(lane: Lane) -> None:
    lane.actor.branches = MAX_BRANCHES
    async with Branches(lane) as branches:
        with pytest.raises(LimitExceeded, match=f"already runs {MAX_BRANCHES} branches"):
            branches.start(path_of)
    with pytest.raises(LimitExceeded):
        await run_branch(lane, path_of)
    assert 1 == lane.actor.busy


async def test_ten_thousand_branches_of_one_actor_run_and_end(lane: Lane) -> None:
    async with Branches(lane) as branches:
        handles = [branches.start(path_of) for _ in range(10_000)]
    assert "/10000" == handles[-1].value
    assert (1, 0) == (lane.actor.busy, lane.actor.branches)


async def test_the_repr_shows_how_many_run(lane: Lane) -> None:
    async with Branches(lane) as branches:
        branches.start(path_of)
        assert "<Branches of <Lane body busy> running=1>" == repr(branches)
