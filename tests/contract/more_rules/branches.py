"""Branches, time limits and results of a tool: what a call makes of its own parts."""

from __future__ import annotations

from trio_mcp.testing.contract import ELICITS, LEGACY, Pair, rule
from trio_mcp.testing.contract.expecting import nothing_more_of
from trio_mcp.testing.contract.groups.peers import never_marked, undisturbed
from trio_mcp.testing.contract.groups.structured import ROUNDS, withdrawn
from trio_mcp.testing.contract.subjects.faults import SECRET


@rule("D")
async def the_first_branch_to_end_a_race_cancels_the_others(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("race")
        await pair.stage.marked("loser began")
        await pair.stage.open("win")
        assert await call.text() == "the first"
    assert pair.stage.count("loser finally sibling") == 1


@rule("D")
async def a_call_is_answered_after_all_its_branches(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("leave_behind")
        await pair.stage.marked("branch began")
        await nothing_more_of(peer, call)
        await pair.stage.open("branch")
        assert await call.text() == "after its branch"
    assert pair.stage.count("branch ended") == 1


@rule("D")
async def a_call_that_times_out_ends_with_its_branches_and_its_caller_gets_an_error(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("too_slow")
        assert "0.2 seconds" in await call.failure()
    await pair.stage.marked("too_slow finally deadline")
    assert pair.stage.count("too_slow's branch finally") == 1
    assert pair.stage.count("too_slow finally deadline") == 1


@rule("D")
async def a_branch_that_times_out_ends_and_its_call_continues(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("hurried_branch", {"seconds": 0.05})
        text = await call.text()
        assert text.startswith("given up:")
        assert "0.05" in text
    await pair.stage.marked("hurried_branch finally done")
    assert pair.stage.count("hurried branch finally deadline") == 1
    assert pair.stage.count("hurried_branch finally done") == 1


@rule("D")
async def a_cancel_is_never_taken_for_the_timeout_of_a_branch(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("hurried_branch", {"seconds": 1000})
        await pair.stage.marked("hurried branch began")
        await call.cancel()
        await pair.stage.at_rest()
        await nothing_more_of(peer, call)
    assert pair.stage.count("hurried branch finally deadline") == 0


@rule("D", revisions=LEGACY, why=ROUNDS)
async def a_question_that_times_out_is_withdrawn_and_its_call_continues(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("hurried_question")
        question = await call.question()
        assert await withdrawn(peer) == question.key
        assert "0.1 seconds" in await call.text()


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


@rule("calls")
async def no_branch_outlives_the_call_that_started_it(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert await (await peer.call("unjoined")).failure() == "the parent failed"
        await pair.stage.marked("branch finally")


@rule("calls")
async def branches_that_nest_too_deep_are_rejected_and_the_limit_is_named(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert "32" in await (await peer.call("nest", {"depth": 40})).failure()
        await never_marked(pair, "nest began")


@rule("calls", revisions=ELICITS, why="elicitation was added in 2025-06-18")
async def too_many_open_questions_are_rejected_and_the_limit_is_named(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert "1024 open questions" in await (await peer.call("ask_often", {"times": 1025})).failure()


@rule("calls")
async def a_result_that_does_not_match_its_schema_is_an_error_that_names_the_location(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert "seats" in await (await peer.call("promise", {"seats": "some"})).failure()


@rule("calls")
async def a_result_that_cannot_be_serialized_is_an_error_that_names_the_location(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for kind in ("number", "long"):
            assert "list" in await (await peer.call("unsayable", {"kind": kind})).failure()
