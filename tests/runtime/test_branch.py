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
        with pytest.raises(RuntimeError, match=r"<Branch /1 running> has no value"):
            _ = branch.value
    assert repr(branch) == "<Branch /1 ended>"


async def test_the_block_ends_only_when_every_branch_has(lane: Lane, autojump_clock: MockClock) -> None:
    async def slow(_lane: Lane) -> None:
        await trio.sleep(3)

    async with Branches(lane) as branches:
        branches.start(slow)
    assert trio.current_time() == 3


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
    assert ended == ["sibling"]
    assert trio.current_time() == 0
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_lone_branch_raises_its_exception_bare(lane: Lane) -> None:
    with pytest.raises(LookupError, match="no flights"):
        await run_branch(lane, fail)
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_failing_body_cancels_its_branches_and_counts_right(lane: Lane) -> None:
    with pytest.RaisesGroup(KeyError):
        async with Branches(lane) as branches:
            branches.start(endless)
            raise KeyError
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_cancel_ends_the_branches_of_one_group_only(lane: Lane, autojump_clock: MockClock) -> None:
    async with Branches(lane) as outer:
        kept = outer.start(path_of)
        async with Branches(lane) as inner:
            inner.start(endless)
            inner.cancel()
    assert kept.value == "/1"
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_branch_that_is_cancelled_before_its_first_step_is_counted_off(lane: Lane) -> None:
    with trio.CancelScope() as scope:
        async with Branches(lane) as branches:
            branches.start(path_of)
            scope.cancel()
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_branch_is_refused_before_the_block_and_nothing_is_counted(lane: Lane) -> None:
    branches = Branches(lane)
    with pytest.raises(RuntimeError, match="inside `async with`"):
        branches.start(path_of)
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_branch_is_refused_after_the_block_and_nothing_is_counted(lane: Lane) -> None:
    async with Branches(lane) as branches:
        pass
    with pytest.raises(RuntimeError, match="inside `async with`"):
        branches.start(path_of)
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_branch_may_start_another_one_in_the_group_that_is_being_joined(lane: Lane) -> None:
    paths: list[str] = []

    async with Branches(lane) as branches:

        async def starts_another(_lane: Lane) -> None:
            await wait_all_tasks_blocked()  # the parent has come to the end of its block
            paths.append(await branches.start(path_of).result())

        branches.start(starts_another)
    assert paths == ["/2"]
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_branches_nest_as_deep_as_the_limit_and_no_deeper(lane: Lane) -> None:
    async def nests(child: Lane) -> str:
        return await run_branch(child, nests)

    with pytest.raises(LimitExceeded, match=f"may nest {MAX_DEPTH} deep"):
        await run_branch(lane, nests)
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_a_branch_over_the_limit_is_refused_and_names_the_limit(lane: Lane) -> None:
    lane.actor.branches = MAX_BRANCHES
    async with Branches(lane) as branches:
        with pytest.raises(LimitExceeded, match=f"already runs {MAX_BRANCHES} branches"):
            branches.start(path_of)
    with pytest.raises(LimitExceeded):
        await run_branch(lane, path_of)
    assert lane.actor.busy == 1


async def test_ten_thousand_branches_of_one_actor_run_and_end(lane: Lane) -> None:
    async with Branches(lane) as branches:
        handles = [branches.start(path_of) for _ in range(10_000)]
    assert handles[-1].value == "/10000"
    assert (lane.actor.busy, lane.actor.branches) == (1, 0)


async def test_the_repr_shows_how_many_run(lane: Lane) -> None:
    async with Branches(lane) as branches:
        branches.start(path_of)
        assert repr(branches) == "<Branches of <Lane body busy> running=1>"
