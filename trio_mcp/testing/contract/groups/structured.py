"""Group D: structured concurrency: what a cancellation or a lost connection does to a call, and what it leaves."""

from __future__ import annotations

import trio

from ....errors import Disconnected, RequestTimeout
from ....types import JsonObject
from ..expecting import failure, nothing_more_of
from ..pair import Pair
from ..peer import Peer, accepted
from ..rules import ELICITS, LEGACY, rule

ELICITS_LIVE = tuple(name for name in LEGACY if name in ELICITS)
PARKED = "a modern call that asks is parked: there is no request to cancel"
ROUNDS = "a modern server asks in rounds: there is no open request to withdraw"
SPOKEN: JsonObject = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}


# a client that cancels


@rule("D")
async def a_cancelled_sleep_ends_and_is_not_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("wait")
        await pair.stage.marked("wait began")
        await call.cancel()
        await pair.stage.marked("wait finally")
        await nothing_more_of(peer, call)
    assert pair.stage.count("wait ended") == 0


@rule("D", revisions=ELICITS_LIVE, why=PARKED)
async def a_cancelled_elicit_is_withdrawn_and_not_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        question = await call.question()
        await call.cancel()
        assert await withdrawn(peer) == question.key
        await pair.stage.marked("ask finally client")
        await nothing_more_of(peer, call)


@rule("D", revisions=LEGACY, why=PARKED)
async def a_cancelled_sample_is_withdrawn_and_not_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_model", {"prompt": "hello"})
        question = await call.question()
        await call.cancel()
        assert await withdrawn(peer) == question.key
        await pair.stage.marked("ask_model finally client")
        await nothing_more_of(peer, call)


@rule("D", revisions=LEGACY, why=ROUNDS)
async def every_open_question_of_a_cancelled_call_is_withdrawn(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("sample_all", {"n": 5})
        asked = {(await call.question()).key for _ in range(5)}
        await call.cancel()
        assert {await withdrawn(peer) for _ in range(5)} == asked
        await pair.stage.marked("sample_all finally client")


@rule("D", revisions=LEGACY, why=PARKED)
async def code_after_a_cancelled_question_does_not_run(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("steps")
        await call.question()
        await call.cancel()
        await pair.stage.marked("steps finally")
        await peer.ping()
    assert (pair.stage.count("before"), pair.stage.count("after")) == (1, 0)


@rule("D")
async def a_cancel_ends_a_call_that_asks_in_one_branch_and_works_in_another(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_and_work")
        await asks_and_works(pair)
        await call.cancel()
        await pair.stage.marked("asker finally")
        await pair.stage.marked("worker finally")
        await peer.ping()
        assert call.replies_in(peer.unread()) == []


@rule("D")
async def a_cancel_reaches_branches_of_branches(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("nest", {"depth": 3})
        await pair.stage.marked("nest began")
        await call.cancel()
        for level in range(4):
            await pair.stage.marked(f"nest finally {level}")


@rule("D")
async def a_cancel_ends_one_call_and_no_other(pair: Pair) -> None:
    async with pair.peer() as peer:
        gone = await peer.call("wait", {"name": "gone"})
        stays = await peer.call("wait", {"name": "stays"})
        await pair.stage.marked("gone began")
        await pair.stage.marked("stays began")
        await gone.cancel()
        await pair.stage.marked("gone finally")
        await pair.stage.open("stays")
        assert await stays.text() == "stays"


@rule("D")
async def a_second_cancel_has_no_effect(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("clean_up")
        await pair.stage.marked("clean_up began")
        await call.cancel()
        await pair.stage.marked("clean-up began")
        await call.cancel()
        await peer.ping()
        await pair.stage.open("clean-up")
        await pair.stage.at_rest()
        assert pair.stage.count("clean-up ended client") + pair.stage.count("clean-up ended disconnect") == 1


@rule("D")
async def a_shielded_clean_up_may_finish_and_sends_nothing(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("clean_up", progress="token", logs="debug")
        await pair.stage.marked("clean_up began")
        await call.cancel()
        await pair.stage.marked("clean-up began")
        assert (await pair.stage.gauges())["running"] == 1
        await pair.stage.open("clean-up")
        await pair.stage.at_rest()
        await nothing_more_of(peer, call)


@rule("D", options={"cancel_grace": 0.1})
async def a_clean_up_that_does_not_end_is_stuck_and_blocks_no_other_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("clean_up")
        await pair.stage.marked("clean_up began")
        await call.cancel()
        await pair.stage.marked("clean-up began")
        await pair.stage.measured("stuck", 1)
        assert await (await peer.call("echo", {"text": "meanwhile"})).text() == "meanwhile"
        await pair.stage.open("clean-up")
        await pair.stage.at_rest()


@rule("D")
async def our_client_cancels_a_call_whose_scope_is_cancelled(pair: Pair) -> None:
    async with pair.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "wait")
        await pair.stage.marked("wait began")
        nursery.cancel_scope.cancel()
    await pair.stage.marked("wait finally")


@rule("D")
async def our_client_cancels_a_call_that_times_out(pair: Pair) -> None:
    async with pair.client() as client:
        error = await failure(RequestTimeout, client.call_tool("wait", timeout=0.1))
        assert "0.1" in str(error)
        await pair.stage.at_rest()
        await client.ping()
    assert pair.stage.count("wait ended") == 0


@rule("D")
async def a_client_that_is_closed_leaves_no_call_behind(pair: Pair) -> None:
    async with pair.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(failure, Disconnected, client.call_tool("wait"))
        await pair.stage.marked("wait began")
        await client.aclose()
        await pair.stage.marked("wait finally")


# answers, also those that come too late or from somebody else


@rule("D", revisions=ELICITS, why="elicitation was added in 2025-06-18")
async def a_question_is_answered_in_the_middle_of_a_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        question = await call.question()
        assert question.method == "elicitation/create"
        await call.answer(question, accepted(row=3))
        assert await call.text() == "row 3"
        await pair.stage.marked("ask finally done")
    assert pair.stage.count("ask finally done") == 1


@rule("D", revisions=LEGACY, why=ROUNDS)
async def a_late_answer_is_discarded(pair: Pair) -> None:
    async with pair.peer() as peer:
        first = await peer.call("ask_model", {"prompt": "first"})
        late = await first.question()
        await first.cancel()
        await pair.stage.marked("ask_model finally client")
        second = await peer.call("ask_model", {"prompt": "second"})
        question = await second.question()
        assert question.key != late.key
        await peer.answer(late.key, SPOKEN)
        await peer.ping()
        assert pair.stage.count("ask_model finally done") == 0
        await peer.answer(question.key, SPOKEN)
        assert await second.text() == "yes"


# steps of the rules


async def asks_and_works(pair: Pair) -> None:
    """Wait until both branches of `ask_and_work` run."""
    await pair.stage.marked("asker asks")
    await pair.stage.marked("worker works")


async def withdrawn(peer: Peer) -> object:
    """Return the id of the next question that the server withdraws."""
    params = (await peer.message("notifications/cancelled"))["params"]
    assert isinstance(params, dict)
    return params["requestId"]
