"""Group `calls`: what a call, its tool and its cancellation may do (docs/internals/reliability.md, rows 63 to 85)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....errors import RequestTimeout
from ....types import JsonObject
from ..makers import Trait
from ..pair import Pair
from ..peer import INFO, Peer
from ..rules import LEGACY, rule
from ..stage import BOUND
from ..subjects.faults import MISHAPS, SECRET
from .peers import LIVE, ONE_ROUND, never_marked, said, undisturbed

NO_HANDSHAKE = "modern revisions have no handshake"
OPENS_ANOTHER = "an initialize without a session id opens another session"


# cancelling


@rule("calls")
async def a_cancel_right_behind_its_request_prevents_an_answer(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("wait", {"name": "early"})
        await call.cancel()
        await peer.ping()
        assert replies_to(peer, call.id) == 0
        await never_marked(pair, "early ended")


@rule("calls")
async def a_cancel_at_the_very_end_allows_at_most_one_answer(pair: Pair) -> None:
    async with pair.peer() as peer:
        for number in range(5):
            name = f"end {number}"
            call = await peer.call("wait", {"name": name})
            await pair.stage.marked(f"{name} began")
            await pair.stage.open(name)
            await call.cancel()
            await pair.stage.marked(f"{name} finally")
            await peer.ping()
            assert replies_to(peer, call.id) <= 1


@rule("calls")
async def a_cancel_of_something_else_ends_nothing(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("echo", {"text": "done"})
        await call.text()
        await call.cancel()
        for request_id in ("never", 1, 99_999):
            await peer.cancel(request_id)
        await peer.ping()
        assert peer.unread() == []


@rule("calls", needs=(Trait.SERVES_MANY,))
async def a_cancel_from_another_connection_touches_nothing(pair: Pair) -> None:
    async with pair.peer() as peer, pair.peer() as other:
        await peer.request("tools/call", {"name": "wait", "arguments": {}}, id="mine")
        await pair.stage.marked("wait began")
        await other.cancel("mine")
        await other.ping()
        await pair.stage.open("wait")
        assert "wait" in str(await peer.result("mine"))


@rule("calls", revisions=LIVE, why=ONE_ROUND)
async def a_question_of_a_branch_is_withdrawn_when_its_call_is_cancelled(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("ask_in_a_branch")
        question = await call.question()
        await call.cancel()
        notice = await peer.message("notifications/cancelled")
        assert notice["params"]["requestId"] == question.key  # type: ignore[index, call-overload]
        await pair.stage.marked("asker finally")


@rule("calls", options={"max_seconds": 0.5})
async def the_shortest_of_three_deadlines_ends_a_call_and_is_named(pair: Pair) -> None:
    async with pair.client() as client:
        assert "0.3 seconds" in (await client.call_tool("slow", timeout=BOUND)).text  # the tool's own
        assert "0.5 seconds" in (await client.call_tool("wait", timeout=BOUND)).text  # the server's
        with expected(RequestTimeout, "0.1 seconds"):
            await client.call_tool("slow", timeout=0.1)
        await pair.stage.marked("slow finally", 2)
        await pair.stage.marked("wait finally")


@rule("calls", options={"cancel_grace": 0.2})
async def a_call_that_ignores_its_deadline_is_abandoned_and_its_caller_answered(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert "0.2 seconds" in await (await peer.call("ignore_the_deadline")).failure()
        assert (await pair.stage.gauges())["stuck"] == 1
        assert await (await peer.call("echo", {"text": "meanwhile"})).text() == "meanwhile"
        await pair.stage.open("ignored")


@rule("calls", threads=True)
async def a_thread_whose_call_was_cancelled_blocks_no_other_call_and_is_counted(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        call = await peer.call("hold_a_thread")
        await pair.stage.marked("thread held")
        await call.cancel()
        await peer.ping()
        assert (await pair.stage.gauges())["threads"] == 1
        assert await (await peer.call("free_the_threads")).text() == "free"


# saying


@rule("calls")
async def a_reply_never_overtakes_earlier_messages(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("progress", {"n": 200}, progress="steps")
        done = [0]
        while "method" in (message := await peer.receive()):
            done.append(message["params"]["progress"])  # type: ignore[index, call-overload, arg-type]
        assert message["id"] == call.id
        assert done == list(range(201))


@rule("calls")
async def progress_that_does_not_increase_is_dropped(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for values in ([1, 1], [2, 1], [None]):
            call = await peer.call("wrong_progress", {"values": list(values)}, progress="steps")
            assert await call.text() == "done"
        assert len([message for message in peer.unread() if "method" in message]) == 2


@rule("calls")
async def no_message_about_a_call_follows_its_reply(pair: Pair) -> None:
    async with pair.peer() as peer:
        await (await peer.call("keep", progress="kept")).text()
        assert len(peer.unread()) == 1
        await (await peer.call("speak_for_another")).text()
        await peer.ping()
        assert peer.unread() == []


@rule("calls")
async def half_of_a_character_in_a_text_arrives_as_a_replacement_character(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        assert await (await peer.call("cut_character", {"whole": "ab"})).text() == "ab\ufffd"


# raising


@rule("calls")
async def any_exception_of_a_tool_fails_its_own_call_and_reveals_no_internals(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        for kind in MISHAPS:
            text = await (await peer.call("misbehave", {"kind": kind})).failure()
            assert "internal error" in text, text
            assert SECRET not in text
        assert await (await peer.call("echo", {"text": "after"})).text() == "after"


# returning


@rule("calls")
async def no_data_of_one_call_is_visible_in_another(pair: Pair) -> None:
    async with pair.peer() as peer:
        calls = [await peer.call("canary", {"text": f"bird {number}"}) for number in range(20)]
        await pair.stage.marked("canary", 20)
        await pair.stage.open("canary")
        for number, call in enumerate(calls):
            assert await call.text() == f"none bird {number}"


@rule("calls")
async def a_running_call_keeps_a_tool_that_is_removed(pair: Pair) -> None:
    async with pair.peer() as peer:
        call = await peer.call("retiree")
        await pair.stage.marked("retiree began")
        await (await peer.call("retire")).text()
        assert "retiree" in str((await (await peer.call("retiree")).error())["message"])
        await pair.stage.open("retiree")
        assert await call.text() == "to the end"


# opening


@rule("calls", revisions=LEGACY, why=NO_HANDSHAKE, needs={Trait.SHARED: OPENS_ANOTHER})
async def an_equal_second_handshake_is_answered_again_and_changes_nothing(pair: Pair) -> None:
    async with pair.unopened() as peer:
        first = await peer.open()
        async with undisturbed(pair, peer):
            call = await peer.call("ask_model", {"prompt": "still declared?"})
            question = await call.question()
            # What `_meta` says belongs to the request and not to the session.
            again = await peer.request("initialize", handshake(peer), progress="another")
            assert await peer.result(again) == first
            assert question.method == "sampling/createMessage"
            await call.answer(question, said("yes"))
            assert await call.text() == "yes"


@rule("calls", revisions=LEGACY, why=NO_HANDSHAKE, needs={Trait.SHARED: OPENS_ANOTHER})
async def a_different_second_handshake_is_rejected_and_changes_nothing(pair: Pair) -> None:
    async with pair.peer() as peer, undisturbed(pair, peer):
        changes: list[JsonObject] = [
            {"protocolVersion": "1999-01-01"},
            {"capabilities": {}},
            {"clientInfo": {**INFO, "version": "2"}},
        ]
        for change in changes:
            request = await peer.request("initialize", {**handshake(peer), **change})
            assert (await peer.error(request))["code"] == -32600
        call = await peer.call("ask_model", {"prompt": "still declared?"})
        question = await call.question()
        assert question.method == "sampling/createMessage"
        await call.cancel()
        await pair.stage.marked("ask_model finally client")


def handshake(peer: Peer) -> JsonObject:
    """Return the params with which the peer opened its session."""
    return {"protocolVersion": peer.revision, "capabilities": peer.capabilities, "clientInfo": INFO}


@contextmanager
def expected(error: type[Exception], text: str) -> Iterator[None]:
    """Check that the block raises this error, with this in its text."""
    raised = None
    try:
        yield
    except error as caught:
        raised = caught
    assert text in str(raised), f"{raised!r} says nothing of {text}"


def replies_to(peer: Peer, request_id: object) -> int:
    """Take all the messages that have arrived; return how many of them reply to this request."""
    return len(
        [message for message in peer.unread() if message.get("id") == request_id and "unanswered" not in message]
    )
