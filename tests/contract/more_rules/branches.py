"""What a call makes of what its tool does wrong."""

from __future__ import annotations

from trio_mcp.testing.contract import ELICITS, Pair, rule
from trio_mcp.testing.contract.groups.peers import undisturbed
from trio_mcp.testing.contract.subjects.faults import SECRET


@rule("calls")
async def an_error_that_is_mixed_with_a_cancellation_of_the_tools_own_is_its_error(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        text = await (await peer.call("mixed")).failure()
        assert "internal error" in text, text
        assert SECRET not in text


@rule("calls")
async def a_nursery_that_a_tool_leaves_open_is_cancelled(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        await (await peer.call("leave_a_nursery")).result()
        await pair.stage.marked("lingerer finally")


@rule("calls")
async def a_branch_that_fails_cancels_its_siblings_and_its_error_is_the_error_of_the_call(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert await (await peer.call("split_and_fail")).failure() == "one branch failed"
        await pair.stage.marked("sibling finally")


@rule("calls", revisions=ELICITS, why="elicitation was added in 2025-06-18")
async def too_many_open_questions_are_rejected_and_the_limit_is_named(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert "1024 open questions" in await (await peer.call("ask_often", {"times": 1025})).failure()
