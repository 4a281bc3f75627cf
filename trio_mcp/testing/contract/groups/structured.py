"""Group D: structured concurrency. What a cancellation or a lost connection does to a call, and what it leaves."""

from __future__ import annotations

from ..makers import Trait
from ..pair import Pair
from ..peer import accepted
from ..rules import ELICITS, rule


@rule("D")
async def a_cancelled_sleep_ends_and_is_not_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("wait")
        await pair.stage.marked("wait began")
        await call.cancel()
        await pair.stage.marked("wait finally")
        await peer.ping()
        assert [message for message in peer.unread() if message.get("id") == call.id and "result" in message] == []
    assert pair.stage.count("wait ended") == 0


@rule("D")
async def a_cancel_reaches_branches_of_branches(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("nest", {"depth": 3})
        await pair.stage.marked("nest began")
        await call.cancel()
        for level in range(4):
            await pair.stage.marked(f"nest finally {level}")


@rule("D")
async def a_call_ends_when_its_connection_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.cut()
        await pair.stage.marked("wait finally")


@rule("D", needs=(Trait.SERVES_MANY,))
async def a_lost_connection_does_not_disturb_a_later_one(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.call("wait")
        await pair.stage.marked("wait began")
        await pair.cut()
    async with pair.client() as client:
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"


@rule("D", revisions=ELICITS, why="elicitation came with 2025-06-18")
async def a_question_is_answered_in_the_middle_of_a_call(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        question = await call.question()
        assert question.method == "elicitation/create"
        await call.answer(question, accepted(row=3))
        assert await call.text() == "row 3"
    assert pair.stage.count("ask finally done") == 1
