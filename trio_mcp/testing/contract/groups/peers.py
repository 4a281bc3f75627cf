"""Group `peers`: what the other end of a connection may do wrong (docs/internals/reliability.md, rows 32 to 62)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ....errors import Disconnected
from ....types import JsonObject
from ..makers import Trait
from ..pair import Pair
from ..peer import Peer, accepted
from ..rules import ELICITS, LEGACY, MODERN, rule
from ..stage import BOUND

LIVE = tuple(name for name in ELICITS if name in LEGACY)
"""The revisions in which a user is asked by a request of the server's own."""

LONG_TOKEN = "talk" * 64
"""A token by which progress fills what a network keeps also in 2024-11-05, where progress has no message."""

NO_ANSWERS = "a modern client sends answers only with a request"
NO_ELICITATION = "elicitation was added in 2025-06-18"
ONE_ROUND = f"{NO_ELICITATION}, and modern questions end their request"


@asynccontextmanager
async def undisturbed(pair: Pair, peer: Peer) -> AsyncIterator[None]:
    """Keep a call of this peer open during the block, and check that it is answered afterwards."""
    call = await peer.call("wait", {"name": "bystander"})
    await pair.stage.marked("bystander began")
    yield
    await pair.stage.open("bystander")
    assert await call.text() == "bystander"


@rule("peers", needs=(Trait.SERVES_MANY,))
async def a_client_that_disconnects_does_not_disturb_another(pair: Pair) -> None:
    async with pair.peer() as stays, undisturbed(pair, stays):
        async with pair.peer() as leaves:
            await leaves.call("wait")
            await leaves.call("nest", {"depth": 1})
            await pair.stage.marked("wait began")
            await pair.stage.marked("nest began")
        await pair.stage.marked("wait finally")
        await pair.stage.marked("nest finally 1")


@rule("peers", revisions=LIVE, why=ONE_ROUND)
async def a_connection_that_is_lost_with_an_open_question_leaves_nothing_behind(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask")
        await call.question()
        await pair.cut()
        await pair.stage.marked("ask finally disconnect")


@rule("peers")
async def a_tool_that_sends_waits_for_a_client_that_does_not_read_and_nothing_is_lost(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("talk_until_held", progress=LONG_TOKEN)
        await pair.stage.marked("talker held")
        said = int(await call.text())
        heard = [message for message in peer.unread() if message.get("method") == "notifications/progress"]
        assert len(heard) == said


@rule("peers", needs=(Trait.SERVES_MANY,))
async def a_client_that_does_not_read_blocks_no_other_client(pair: Pair) -> None:
    async with pair.peer() as stays:
        async with pair.peer() as deaf:
            await deaf.call("talk_until_held", progress=LONG_TOKEN)
            await pair.stage.marked("talker held")
            assert await (await stays.call("echo", {"text": "hello"})).text() == "hello"
        await pair.stage.marked("talker finally")


@rule("peers")
async def a_rejected_request_leaves_nothing_behind(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        before = await pair.stage.gauges()
        for _ in range(5):
            await peer.error(await peer.request("no/such"))
            await peer.error(await peer.request("tools/call", {"name": "no_such", "arguments": {}}))
            await peer.error(await peer.request("tools/call", {"arguments": {}}))
            await (await peer.call("echo", {"texts": "?"})).failure()
        assert await pair.stage.gauges() == before


@rule("peers")
async def a_number_and_the_same_digits_as_text_are_different_ids(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.request("tools/call", {"name": "wait", "arguments": {"name": "number"}}, id=7000)
        await peer.request("tools/call", {"name": "wait", "arguments": {"name": "digits"}}, id="7000")
        await pair.stage.open("digits")
        assert "digits" in str(await peer.result("7000"))
        await pair.stage.open("number")
        assert "number" in str(await peer.result(7000))


@rule("peers")
async def an_id_may_be_reused_after_its_answer(pair: Pair) -> None:
    async with pair.peer() as peer:
        for number in range(50):
            params: JsonObject = {"name": "echo", "arguments": {"text": f"turn {number}"}}
            assert f"turn {number}" in str(await peer.result(await peer.request("tools/call", params, id="one")))


@rule("peers", revisions=LEGACY, why=NO_ANSWERS)
async def a_stray_answer_reaches_no_call_and_ends_nothing(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for question_id in ("unknown", 1, 99_999):
            await peer.answer(question_id, accepted(value=1))
        await peer.send({"id": "unknown", "error": {"code": -1, "message": "no"}})
        await peer.ping()
        assert [message for message in peer.unread() if "error" in message] == []


@rule("peers", revisions=ELICITS, why=NO_ELICITATION)
async def a_late_answer_reaches_no_other_question(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_briefly")
        late = await call.question()
        await pair.stage.open("impatient")
        await pair.stage.marked("gave up")
        if not peer.modern:
            await peer.message("notifications/cancelled")
        await call.answer(late, accepted(value=1))
        await call.answer(await call.question(), accepted(value=2))
        assert "2" in await call.text()


@rule("peers", revisions=LIVE, why=ONE_ROUND)
async def the_first_answer_counts(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("ask_two_numbers")
        first = await call.question()
        await call.answer(first, accepted(value=1))
        await call.answer(first, accepted(value=9))
        await call.answer(await call.question(), accepted(value=2))
        text = await call.text()
        assert "9" not in text, text


@rule("peers", revisions=LIVE, why=ONE_ROUND)
async def an_answer_of_another_kind_fails_the_call_that_asked_and_no_other(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for answer in WRONG_ANSWERS:
            call = await peer.call("ask")
            await call.answer(await call.question(), answer)
            assert "action" in await call.failure()


@rule("peers", revisions=MODERN, why="a legacy answer of this kind fails its call")
async def an_answer_of_another_kind_in_a_round_is_rejected_by_its_key_and_may_be_sent_again(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for answer in WRONG_ANSWERS:
            call = await peer.call("ask")
            question = await call.question()
            await call.answer(question, answer)
            error = await call.error()
            assert error["code"] == -32602
            assert str(question.key) in str(error["message"])
            await call.answer(question, accepted(row=1))
            assert await call.text() == "row 1"


@rule("peers", revisions=LIVE, why=ONE_ROUND, needs=(Trait.SERVES_MANY,))
async def an_answer_from_another_connection_is_discarded(pair: Pair) -> None:
    async with pair.peer() as peer, pair.peer() as other:
        call = await peer.call("ask")
        question = await call.question()
        await other.answer(question.key, accepted(row=66))
        await other.ping()
        await call.answer(question, accepted(row=1))
        assert await call.text() == "row 1"


@rule("peers", revisions=LEGACY, why="a modern client cannot answer a question with an error")
async def an_error_instead_of_an_answer_is_raised_in_the_tool_that_asked(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("ask_model", {"prompt": "?"})
        question = await call.question()
        await peer.refuse(question.key, -1, "User rejected sampling request")
        assert "User rejected sampling request" in await call.failure()
        await pair.stage.marked("ask_model finally done")


@rule("peers")
async def a_large_answer_arrives_complete(pair: Pair) -> None:
    text = "a" * 1024 * 1024
    async with pair.peer() as peer:
        call = await peer.call("ask_model", {"prompt": "?"})
        await call.answer(await call.question(), said(text))
        assert await call.text() == text


@rule("peers", revisions=LIVE, why=ONE_ROUND)
async def an_unanswered_question_is_withdrawn_at_the_deadline_of_its_call(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("ask_in_time")
        question = await call.question()
        notice = await peer.message("notifications/cancelled")
        assert notice["params"]["requestId"] == question.key  # type: ignore[index, call-overload]
        assert "0.3 seconds" in await call.failure()


@rule("peers", revisions=MODERN, why="in a legacy session the question is withdrawn and the call answered")
async def a_round_after_the_deadline_receives_the_error_of_the_deadline(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("ask_in_time")
        question = await call.question()
        await pair.stage.marked("ask_in_time finally")
        await call.answer(question, accepted(value=1))
        assert "0.3 seconds" in await call.failure()


@rule("peers", revisions=ELICITS, why=NO_ELICITATION)
async def a_client_that_cannot_answer_receives_the_missing_capability_and_no_question(pair: Pair) -> None:
    async with pair.peer({"roots": {}}) as peer, undisturbed(pair, peer):
        await (await peer.call("ask")).lacks(elicitation={"form": {}})
        await (await peer.call("ask_model", {"prompt": "?"})).lacks(sampling={})
        assert [message for message in peer.unread() if "method" in message] == []


@rule("peers", needs=(Trait.SHARED,))
async def a_call_whose_connection_is_lost_fails_immediately(pair: Pair) -> None:
    await lose_a_call(pair)


@rule("peers", revisions=MODERN, why="a legacy client resumes the stream", needs=(Trait.STREAMS,))
async def a_call_whose_stream_is_lost_fails_immediately(pair: Pair) -> None:
    await lose_a_call(pair)


async def never_marked(pair: Pair, name: str) -> None:
    """Check that this mark was not made; reading the gauges first delivers every earlier mark."""
    await pair.stage.gauges()
    assert pair.stage.count(name) == 0, name


async def lose_a_call(pair: Pair) -> None:
    async with pair.client() as client, trio.open_nursery() as nursery:

        async def call() -> None:
            try:
                await client.call_tool("wait", timeout=BOUND)
            except Disconnected:
                pair.stage.mark("failed at once")

        nursery.start_soon(call)
        await pair.stage.marked("wait began")
        await pair.cut()
        await pair.stage.marked("failed at once")


@rule("peers")
async def a_flood_of_reports_does_not_block_other_calls(pair: Pair) -> None:
    async with pair.client() as client, trio.open_nursery() as nursery:
        heard: list[float] = []

        async def flood() -> None:
            await client.call_tool("progress", {"n": 1000}, on_progress=lambda report: heard.append(report.progress))

        nursery.start_soon(flood)
        for number in range(20):
            assert (await client.call_tool("echo", {"text": str(number)})).text == str(number)
    assert heard == sorted(set(heard))
    assert len(heard) == 1000


def said(text: str) -> JsonObject:
    """Return the answer of a model."""
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


WRONG_ANSWERS: tuple[JsonObject, ...] = (said("hello"), {"roots": []}, {"action": "perhaps"}, {"action": 1}, {})
"""None of them says what became of a question to the user."""
