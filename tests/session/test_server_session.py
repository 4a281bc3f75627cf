"""The server's end of a conversation, driven with plain JSON in both eras."""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from naming import unnamed
from talk import DECLINE, DISMISS, ERAS, EVERYTHING, Json, Legacy, Talk, accept, log_level, modern_meta, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.errors import CapabilityError, LocalProtocolError, PeerError, ToolError
from trio_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    SERVER_BUSY,
    UNSUPPORTED_VERSION,
)
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, SUPPORTED
from trio_mcp.runtime import CancelReason, Limits
from trio_mcp.server import Accepted, Context, Server
from trio_mcp.session import ServiceOptions


@pytest.fixture
def server() -> Server:
    """A server with a tool that answers at once, one that never ends, and one that asks."""
    made = Server("tester", version="1")

    @made.tool
    async def add(a: int, b: int = 0) -> int:
        return a + b

    @made.tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    @made.tool
    async def ask(ctx: Context, reask: int = 2) -> str:
        answer = await ctx.elicit("How many?", int, reask=reask)
        return f"accept {answer.content!r}" if isinstance(answer, Accepted) else answer.action

    return made


@pytest.fixture(params=ERAS, ids=lambda era: era.era)
def era(request: pytest.FixtureRequest) -> type[Legacy]:
    return request.param


@asynccontextmanager
async def play(server: Server, era: type[Legacy], capabilities: Json = EVERYTHING) -> AsyncIterator[Legacy]:
    async with talk_to(server) as talk:
        yield era(talk, capabilities)


@asynccontextmanager
async def session(server: Server) -> AsyncIterator[Talk]:
    """A session of the handshake era that is open already."""
    async with talk_to(server) as talk:
        await talk.initialize()
        yield talk


# opening


@pytest.mark.parametrize("version", [version for version in SUPPORTED if version != MODERN])
async def test_initialize_agrees_on_the_revision_that_the_client_wants(server: Server, version: str) -> None:
    async with talk_to(server) as talk:
        result = await talk.initialize(version)
    assert version == result["protocolVersion"]
    assert result["serverInfo"] == {"name": "tester", "version": "1"}
    assert "tools" in result["capabilities"]


@pytest.mark.parametrize("version", ["1999-01-01", MODERN, ""])
async def test_initialize_offers_the_newest_legacy_revision_for_any_other(server: Server, version: str) -> None:
    async with talk_to(server) as talk:
        assert (await talk.initialize(version))["protocolVersion"] == NEWEST_LEGACY


async def test_a_second_initialize_is_refused_and_changes_nothing(server: Server) -> None:
    async with talk_to(server) as talk:
        await talk.initialize("2025-06-18")
        bare = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
        assert (await talk.error(talk.request("initialize", bare)))["code"] == INVALID_REQUEST
        call = talk.call("ask")
        talk.answer(await talk.question(), accept(value=3))  # the capabilities are still those of the first
        assert await talk.text(call) == "accept 3"


async def test_a_call_before_initialize_is_refused_and_the_session_can_still_be_opened(server: Server) -> None:
    async with talk_to(server) as talk:
        assert (await talk.error(talk.call("add", {"a": 1})))["code"] == INVALID_REQUEST
        await talk.initialize()
        assert "1" in await talk.text(talk.call("add", {"a": 1}))


async def test_a_broken_initialize_leaves_the_session_to_be_opened(server: Server) -> None:
    async with talk_to(server) as talk:
        assert (await talk.error(talk.request("initialize", {"protocolVersion": 1})))["code"] == INVALID_PARAMS
        await talk.initialize()


async def test_ping_is_answered_before_and_after_initialize(server: Server) -> None:
    async with talk_to(server) as talk:
        assert await talk.result(talk.request("ping")) == {}
        await talk.initialize()
        assert await talk.result(talk.request("ping")) == {}


async def test_a_modern_client_needs_no_opening_and_may_ask_what_the_server_is(server: Server) -> None:
    async with talk_to(server) as talk:
        result = await talk.result(talk.request("server/discover", {"_meta": modern_meta()}))
        assert list(SUPPORTED) == result["supportedVersions"]
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tester"
        assert "1" in await talk.text(talk.leg("add", {"a": 1}))


async def test_both_eras_may_share_a_connection(server: Server) -> None:
    async with session(server) as talk:
        old, new = talk.call("ask"), talk.leg("ask")
        question = await talk.question()
        asked = await talk.round(new)
        talk.answer(question, accept(value=1))
        assert await talk.text(old) == "accept 1"
        last = talk.leg("ask", state=asked.state, answers={asked.key: accept(value=2)})
        assert await talk.text(last) == "accept 2"


# refusing


@pytest.mark.parametrize("method", ["no/such/method", "prompts/list", "roots/list"])
async def test_a_method_that_is_not_offered_is_not_found(server: Server, method: str) -> None:
    async with session(server) as talk:
        error = await talk.error(talk.request(method))
        assert error["code"] == METHOD_NOT_FOUND
        assert method in error["message"]


async def test_an_unknown_tool_is_refused_by_name(server: Server, era: type[Legacy]) -> None:
    async with play(server, era) as player:
        await player.call("no_such_tool")
        error = await player.error()
        assert (error["code"], error["message"]) == (INVALID_PARAMS, "Unknown tool: no_such_tool")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"a": "many"}, "a: "), ({}, "a: "), ({"a": 1, "c": 2}, "c: "), ({"a": 1, "b": []}, "b: "), ({"a": None}, "a: ")],
)
async def test_wrong_arguments_are_an_error_result_that_names_them(
    server: Server, era: type[Legacy], arguments: Json, named: str
) -> None:
    async with play(server, era) as player:
        await player.call("add", arguments)
        text = await player.failure()
        assert unnamed(text, "add", named) == []


async def test_an_unsupported_version_is_refused_with_those_that_are(server: Server) -> None:
    async with talk_to(server) as talk:
        meta = modern_meta(more={"io.modelcontextprotocol/protocolVersion": "2030-01-01"})
        error = await talk.error(talk.request("tools/list", {"_meta": meta}))
        assert (UNSUPPORTED_VERSION, list(SUPPORTED)) == (error["code"], error["data"]["supported"])


async def test_bytes_that_are_no_message_are_answered_and_the_session_goes_on(server: Server) -> None:
    async with session(server) as talk:
        talk.send_bytes(b"{nonsense")
        message = await talk.receive()
        assert "id" not in message
        assert message["error"]["code"] == PARSE_ERROR
        assert await talk.result(talk.request("ping")) == {}


async def test_an_id_in_use_is_refused_and_the_first_request_is_still_served(server: Server) -> None:
    async with session(server) as talk:
        talk.call("ask", id="same")
        question = await talk.question()
        talk.call("add", {"a": 1}, id="same")
        assert (await talk.error("same"))["code"] == INVALID_REQUEST
        talk.answer(question, accept(value=1))
        assert await talk.text("same") == "accept 1"
        talk.call("add", {"a": 1}, id="same")
        assert "1" in await talk.text("same")


async def test_an_integer_id_and_the_same_digits_as_text_are_two_requests(server: Server) -> None:
    async with session(server) as talk:
        for request_id in (7, "7"):
            talk.call("wait", id=request_id)
        talk.cancel("7")
        await wait_all_tasks_blocked()
        (left,) = talk.service.supervisor.actors
        assert left.cancel_reason is None
        assert talk.listeners[7].request_id == 7
        assert not talk.listeners[7].finished


async def test_a_call_over_the_cap_is_refused_and_names_the_limit(era: type[Legacy]) -> None:
    server = Server("small", options=ServiceOptions(actors=Limits(actors=1)))

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    async with play(server, era) as player:
        await player.call("wait")
        await player.call("wait")
        error = await player.error()
        assert error["code"] == SERVER_BUSY
        assert "runs 1 calls" in error["message"]


# cancelling


async def test_a_cancelled_call_is_not_answered_and_its_clean_up_knows_why(era: type[Legacy]) -> None:
    server = Server("tester")
    unwound: list[CancelReason | None] = []

    @server.tool
    async def wait(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            unwound.append(ctx.cancel_reason)

    async with play(server, era) as player:
        request_id = await player.call("wait")
        await wait_all_tasks_blocked()
        player.talk.cancel(request_id)
        await player.talk.silence()
        assert unwound == [CancelReason.CLIENT]
        assert player.talk.service.supervisor.actors == ()
        assert not player.talk.session.busy


async def test_a_call_that_is_cancelled_before_its_first_step_is_not_answered(
    server: Server, era: type[Legacy]
) -> None:
    async with play(server, era) as player:
        player.talk.cancel(await player.call("wait"))
        await player.talk.silence()


async def test_a_call_that_ends_in_spite_of_a_cancel_is_not_answered_either(
    era: type[Legacy], autojump_clock: MockClock
) -> None:
    server = Server("tester")

    @server.tool
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return "done"

    async with play(server, era) as player:
        request_id = await player.call("stubborn")
        await wait_all_tasks_blocked()
        player.talk.cancel(request_id)
        await trio.sleep(2)
        assert player.talk.waiting() == []
        assert player.talk.service.supervisor.actors == ()


async def test_the_cancel_of_an_unknown_a_finished_or_the_opening_request_is_ignored(server: Server) -> None:
    async with session(server) as talk:
        done = talk.call("add", {"a": 1})
        await talk.result(done)
        for request_id in (done, 99, "unknown", 1):  # 1 was initialize
            talk.cancel(request_id)
        await talk.silence()
        assert await talk.result(talk.request("ping")) == {}


async def test_a_cancel_touches_no_other_sessions_call_of_the_same_id(server: Server) -> None:
    async with session(server) as talk:
        other = Talk(talk.service)
        await other.initialize()
        talk.call("wait", id=5)
        talk.cancel(5)
        other.call("ask", id=5)
        question = await other.question()
        talk.cancel(5)
        other.answer(question, accept(value=1))
        assert await other.text(5) == "accept 1"


async def test_a_cancelled_call_withdraws_the_question_it_waits_for(server: Server) -> None:
    async with session(server) as talk:
        call = talk.call("ask")
        question = await talk.question()
        talk.cancel(call)
        withdrawn = await talk.notification("notifications/cancelled")
        assert question["id"] == withdrawn["requestId"]
        await talk.silence()


async def test_a_tool_that_stops_waiting_withdraws_its_question_and_goes_on(autojump_clock: MockClock) -> None:
    server = Server("tester")

    @server.tool
    async def impatient(ctx: Context) -> str:
        with trio.move_on_after(3):
            await ctx.elicit("Quick?", bool)
        return "went on"

    async with session(server) as talk:
        call = talk.call("impatient")
        question = await talk.question()
        assert question["id"] == (await talk.notification("notifications/cancelled"))["requestId"]
        assert await talk.text(call) == "went on"


async def test_clean_up_that_asks_is_told_at_once_that_it_cannot_and_nothing_is_sent(era: type[Legacy]) -> None:
    server, told = Server("tester"), []

    @server.tool
    async def asks_at_the_end(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), pytest.raises(LocalProtocolError):
                await ctx.elicit("Really?", bool)
            told.append(ctx.cancel_reason)
            await ctx.elicit("Not even behind a shield?", bool)
            told.append(None)

    async with play(server, era) as player:
        call = await player.call("asks_at_the_end")
        await wait_all_tasks_blocked()
        player.talk.cancel(call)
        await player.talk.silence()
        assert player.talk.service.statistics().quiet
    assert told == [CancelReason.CLIENT]


async def test_nothing_is_sent_for_a_cancelled_modern_call_even_if_its_clean_up_asks(autojump_clock: MockClock) -> None:
    server = Server("tester")

    @server.tool
    async def asks_at_the_end(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(3, shield=True):
                await ctx.elicit("Really?", bool)

    async with talk_to(server) as talk:
        call = talk.leg("asks_at_the_end")
        await wait_all_tasks_blocked()
        talk.cancel(call)
        await trio.sleep(5)
        assert talk.waiting() == []
        assert talk.service.supervisor.actors == ()


async def test_a_closed_session_cancels_its_calls_and_says_why() -> None:
    server = Server("tester")
    unwound: list[CancelReason | None] = []

    @server.tool
    async def wait(ctx: Context) -> None:
        try:
            await ctx.elicit("Still there?", bool)
        finally:
            unwound.append(ctx.cancel_reason)

    async with session(server) as talk:
        talk.call("wait")
        await talk.question()
        talk.session.close(CancelReason.DISCONNECT)
        with trio.fail_after(1):
            await talk.session.idle()
        assert unwound == [CancelReason.DISCONNECT]
        await talk.silence()


async def test_shutting_down_answers_the_callers_of_running_calls(
    server: Server, era: type[Legacy], autojump_clock: MockClock
) -> None:
    async with play(server, era) as player:
        await player.call("wait")
        await player.talk.service.drain(1)
        error = await player.error()
        assert error["code"] == SERVER_BUSY
        assert "shutting down" in error["message"]
        await player.call("add", {"a": 1})
        assert "shutting down" in (await player.error())["message"]


# asking


@pytest.mark.parametrize(
    ("answer", "told"), [(accept(value=7), "accept 7"), (DECLINE, "decline"), (DISMISS, "cancel")], ids=str
)
async def test_what_the_user_chose_reaches_the_tool(server: Server, era: type[Legacy], answer: Json, told: str) -> None:
    async with play(server, era) as player:
        await player.call("ask")
        question = await player.question()
        assert question["message"] == "How many?"
        assert {"value"} == set(question["requestedSchema"]["properties"])
        await player.answer(answer)
        assert told == await player.text()


@pytest.mark.parametrize("content", [{"value": "many"}, {}, {"value": None}, {"value": 1.5}, {"other": 1}], ids=str)
async def test_an_answer_that_breaks_the_schema_is_asked_for_again_with_the_reason(
    server: Server, era: type[Legacy], content: Json
) -> None:
    async with play(server, era) as player:
        await player.call("ask")
        assert (await player.question())["message"] == "How many?"
        await player.answer(accept(**content))
        again = (await player.question())["message"]
        assert again.startswith("How many?")
        assert "value: " in again
        await player.answer(accept(value=7))
        assert await player.text() == "accept 7"


async def test_an_accepted_question_without_content_is_asked_again(server: Server, era: type[Legacy]) -> None:
    async with play(server, era) as player:
        await player.call("ask")
        await player.question()
        await player.answer({"action": "accept"})
        assert "value: " in (await player.question())["message"]


@pytest.mark.parametrize("reask", [0, 2])
async def test_after_the_last_attempt_an_invalid_answer_is_an_error_result(
    server: Server, era: type[Legacy], reask: int
) -> None:
    async with play(server, era) as player:
        await player.call("ask", {"reask": reask})
        for _ in range(reask + 1):
            await player.question()
            await player.answer(accept(value="many"))
        text = await player.failure()
        assert "How many?" in text
        assert unnamed(text, f"{reask + 1} attempts") == []


async def test_a_client_that_cannot_ask_its_user_gets_the_eras_error_and_no_question(
    server: Server, era: type[Legacy]
) -> None:
    async with play(server, era, {"sampling": {}}) as player:
        await player.call("ask")
        error = await player.error()
        assert (MISSING_CAPABILITY if era.era == "modern" else INVALID_REQUEST) == error["code"]
        assert error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}
        assert "elicitation" in error["message"]
        await player.talk.silence()


async def test_a_tool_may_go_on_without_a_capability_that_is_missing(era: type[Legacy]) -> None:
    server = Server("tester")

    @server.tool
    async def copes(ctx: Context) -> str:
        try:
            return (await ctx.sample("A line, please")).text
        except CapabilityError as error:
            return f"without {', '.join(error.required)}"

    async with play(server, era, {}) as player:
        await player.call("copes")
        assert await player.text() == "without sampling"


async def test_a_client_that_can_only_open_pages_is_asked_no_form(server: Server, era: type[Legacy]) -> None:
    async with play(server, era, {"elicitation": {"url": {}}}) as player:
        await player.call("ask")
        assert "elicitation" in (await player.error())["message"]


async def test_a_sample_and_the_roots_reach_the_tool(era: type[Legacy]) -> None:
    server = Server("tester")

    @server.tool
    async def gather(ctx: Context) -> str:
        sampled = await ctx.sample("A line", max_tokens=5)
        roots = await ctx.roots()
        return f"{sampled.text} {sampled.model} {sampled.stop_reason} {roots[0].uri}"

    async with play(server, era) as player:
        await player.call("gather")
        question = await player.question()
        assert (question["maxTokens"], question["messages"][0]["content"]["text"]) == (5, "A line")
        sample = {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m", "stopReason": "endTurn"}
        await player.answer(sample)
        await player.question()
        await player.answer({"roots": [{"uri": "file:///tmp"}]})
        assert await player.text() == "ok m endTurn file:///tmp"


async def test_a_duplicate_answer_is_ignored(server: Server) -> None:
    async with session(server) as talk:
        call = talk.call("ask")
        question = await talk.question()
        talk.answer(question, accept(value=1))
        talk.answer(question, accept(value=2))
        assert await talk.text(call) == "accept 1"
        talk.answer(question, accept(value=3))
        await talk.silence()


async def test_an_answer_from_another_session_is_ignored(server: Server) -> None:
    async with session(server) as talk:
        other = Talk(talk.service)
        await other.initialize()
        call = talk.call("ask")
        question = await talk.question()
        other.answer(question, accept(value=666))
        await wait_all_tasks_blocked()
        talk.answer(question, accept(value=1))
        assert await talk.text(call) == "accept 1"


async def test_a_late_answer_is_ignored_and_the_next_question_is_not_confused_by_it(autojump_clock: MockClock) -> None:
    server = Server("tester")

    @server.tool
    async def twice(ctx: Context) -> str:
        with trio.move_on_after(3):
            await ctx.elicit("First?", int)
        second = await ctx.elicit("Second?", int)
        return f"{second.content}" if isinstance(second, Accepted) else "no"

    async with session(server) as talk:
        call = talk.call("twice")
        late = await talk.question()
        await talk.notification("notifications/cancelled")
        second = await talk.question()
        talk.answer(late, accept(value=1))
        talk.answer(second, accept(value=2))
        assert await talk.text(call) == "2"


async def test_an_error_instead_of_an_answer_reaches_the_tool_as_the_peers_own() -> None:
    server = Server("tester")

    @server.tool
    async def copes(ctx: Context) -> str:
        try:
            await ctx.elicit("Well?", bool)
        except PeerError as error:
            return f"{error.code} {error.message}"
        return "answered"

    async with session(server) as talk:
        call = talk.call("copes")
        question = await talk.question()
        talk.send({"id": question["id"], "error": {"code": -1, "message": "rejected"}})
        assert await talk.text(call) == "-1 rejected"


@pytest.mark.parametrize("wrong", [{}, {"action": "maybe"}, {"roots": []}, {"action": "accept", "content": [1]}])
async def test_an_answer_of_the_wrong_kind_fails_the_call_that_asked_and_nothing_else(
    server: Server, wrong: Json
) -> None:
    async with session(server) as talk:
        call = talk.call("ask")
        talk.answer(await talk.question(), wrong)
        reply = await talk.reply(call)
        assert "error" in reply or reply["result"]["isError"]
        assert "1" in await talk.text(talk.call("add", {"a": 1}))


async def test_more_open_questions_than_a_call_may_have_are_refused_and_leave_nothing_behind() -> None:
    server = Server("tester")

    @server.tool
    async def floods(ctx: Context) -> str:
        await ctx.branch_all(*[lambda c: c.elicit("?", bool)] * 1025)
        return "asked"

    async with session(server) as talk:
        call = talk.call("floods")
        await wait_all_tasks_blocked()
        while (message := await talk.receive()).get("id") != call or "method" in message:
            pass
        assert "1024 open questions" in str(message)
        assert "asked=0" in repr(talk.session)


# telling


async def test_legacy_log_messages_pass_the_level_that_was_set_and_no_lower_one() -> None:
    server = log_server()
    async with session(server) as talk:
        assert await talk.result(talk.request("logging/setLevel", {"level": "error"})) == {}
        call = talk.call("logs")
        levels = [(await talk.notification("notifications/message"))["level"] for _ in range(4)]
        assert levels == ["error", "critical", "alert", "emergency"]
        assert await talk.text(call) == "done"


async def test_the_level_of_one_session_is_not_that_of_another() -> None:
    async with session(log_server()) as talk:
        other = Talk(talk.service)
        await other.initialize()
        await talk.result(talk.request("logging/setLevel", {"level": "emergency"}))
        await other.result(other.request("logging/setLevel", {"level": "alert"}))
        for each, count in ((talk, 1), (other, 2)):
            call = each.call("logs")
            for _ in range(count):
                await each.notification("notifications/message")
            await each.text(call)


async def test_an_unknown_log_level_is_refused() -> None:
    async with session(log_server()) as talk:
        error = await talk.error(talk.request("logging/setLevel", {"level": "loud"}))
        assert error["code"] == INVALID_PARAMS


async def test_a_bad_value_is_named_with_its_place(server: Server) -> None:
    """In either era, and cut to what an error can show."""
    async with talk_to(server) as talk:
        modern = await talk.error(talk.leg("hello", meta=log_level("loud")))
        await talk.initialize()
        legacy = await talk.error(talk.request("logging/setLevel", {"level": "loud" * 1000}))
        number = await talk.error(talk.request("tools/call", {"name": 7}))
    assert (modern["code"], legacy["code"], number["code"]) == (-32602, -32602, -32602)
    assert "logLevel" in modern["message"]
    assert modern["message"].endswith(", not 'loud'")
    assert legacy["message"].startswith("params.level: ")
    assert legacy["message"].endswith(f", not {'loud' * 16!r}")
    assert number["message"].endswith(", not 7")


async def test_modern_log_messages_follow_the_level_of_their_own_request() -> None:
    async with talk_to(log_server()) as talk:
        assert await talk.text(talk.leg("logs")) == "done"  # no level: none at all
        call = talk.leg("logs", meta=log_level("alert"))
        levels = [(await talk.notification("notifications/message"))["level"] for _ in range(2)]
        assert levels == ["alert", "emergency"]
        assert await talk.text(call) == "done"


def log_server() -> Server:
    server = Server("tester")

    @server.tool
    async def logs(ctx: Context) -> str:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await ctx.log(level, {"at": level}, logger="tests")
        return "done"

    return server


async def test_a_log_message_carries_its_data_and_its_logger() -> None:
    async with session(log_server()) as talk:
        await talk.result(talk.request("logging/setLevel", {"level": "emergency"}))
        talk.call("logs")
        message = await talk.notification("notifications/message")
        assert message == {"level": "emergency", "data": {"at": "emergency"}, "logger": "tests"}


async def test_progress_is_sent_only_to_who_asked_for_it(era: type[Legacy]) -> None:
    async with play(progress_server(), era) as player:
        await player.call("steps", {"values": [1, 2]})
        assert await player.text() == "done"
        await player.call("steps", {"values": [1, 2.5]}, meta={"progressToken": "p"})
        for value in (1, 2.5):
            params = await player.talk.notification("notifications/progress")
            assert {"progressToken": "p", "progress": value, "total": 3, "message": "going"} == params
        assert await player.text() == "done"


@pytest.mark.parametrize("values", [[2, 1], [1, 1], [math.nan], [math.inf], [-math.inf]], ids=str)
async def test_progress_that_does_not_rise_is_refused_in_the_tool(era: type[Legacy], values: list[float]) -> None:
    server = Server("tester")

    @server.tool
    async def steps(ctx: Context) -> str:
        for value in values:
            await ctx.progress(value)
        return "done"

    async with play(server, era) as player:
        call = await player.call("steps", meta={"progressToken": "p"})
        messages = [await player.talk.receive()]
        while messages[-1].get("id") != call:
            messages.append(await player.talk.receive())
        assert "progress must rise" in str(messages[-1])
        assert len(values) - 1 == len(messages) - 1  # what was right before it was sent


def progress_server() -> Server:
    server = Server("tester")

    @server.tool
    async def steps(values: list[float], ctx: Context) -> str:
        for value in values:
            await ctx.progress(value, 3, "going")
        return "done"

    return server


async def test_nothing_is_sent_about_a_call_after_its_reply(era: type[Legacy]) -> None:
    server = Server("tester")
    kept: list[Context] = []

    @server.tool
    async def keeps(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    async with play(server, era) as player:
        await player.call("keeps", meta={"progressToken": "p", **(log_level("debug") if era.era == "modern" else {})})
        assert await player.text() == "done"
        await kept[0].progress(1)
        await kept[0].log("emergency", "late")
        await player.talk.silence()


async def test_a_slow_reader_holds_up_the_tool_that_talks_and_nobody_else() -> None:
    server = Server("tester")
    told: list[int] = []

    @server.tool
    async def chatters(ctx: Context) -> str:
        for number in range(1000):
            await ctx.log("emergency", number)
            told.append(number)
        return "done"

    @server.tool
    async def quiet() -> str:
        return "quick"

    async with session(server) as talk:
        slow = talk.call("chatters")
        await wait_all_tasks_blocked()
        assert len(told) == 256  # as much as the outbox holds
        other = Talk(talk.service)
        await other.initialize()
        assert await other.text(other.call("quiet")) == "quick"
        for _ in range(1000):
            await talk.notification("notifications/message")
        assert await talk.text(slow) == "done"


# failing


async def test_an_unexpected_exception_is_an_error_result_with_a_reference_and_no_internals(
    era: type[Legacy], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tester")

    @server.tool
    async def breaks() -> str:
        raise LookupError("the password is hunter2")

    with caplog.at_level(logging.ERROR):
        async with play(server, era) as player:
            await player.call("breaks")
            text = await player.failure()
    assert "hunter2" not in text
    assert "LookupError" not in text
    assert "breaks failed with an internal error" in text
    reference = text.rstrip(".").rsplit(" ", 1)[-1]
    assert reference in caplog.text
    assert "hunter2" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        ExceptionGroup("two", [ValueError("hunter2"), OSError("hunter2")]),
        BaseExceptionGroup("mixed", [SystemExit(1), ValueError("hunter2")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_tool_raises_the_session_serves_the_next_call(
    era: type[Legacy], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tester")

    @server.tool
    async def breaks(wrong: bool) -> str:
        if wrong:
            raise error
        return "fine"

    async with play(server, era) as player:
        await player.call("breaks", {"wrong": True})
        assert "hunter2" not in await player.failure()
        await player.call("breaks", {"wrong": False})
        assert await player.text() == "fine"


@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "alone in a group"])
async def test_a_tool_error_is_an_error_result_with_its_own_text(era: type[Legacy], wrap: bool) -> None:
    server = Server("tester")

    @server.tool
    async def refuses() -> str:
        error = ToolError("There are no flights on Sundays.")
        raise ExceptionGroup("from a nursery", [ExceptionGroup("inner", [error])]) if wrap else error

    async with play(server, era) as player:
        await player.call("refuses")
        assert await player.failure() == "There are no flights on Sundays."


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"price": math.nan}, "result.price"),
        ({"prices": [1.0, math.inf]}, "result.prices[1]"),
        ({"name": "\ud800"}, "result.name"),
    ],
    ids=["NaN", "infinity in a list", "lone surrogate"],
)
async def test_a_result_that_json_cannot_say_is_an_error_result_that_names_the_path(
    era: type[Legacy], value: Json, path: str
) -> None:
    server = Server("tester")

    @server.tool
    async def broken() -> dict[str, object]:
        return value

    @server.tool
    async def fine() -> str:
        return "fine"

    async with play(server, era) as player:
        await player.call("broken")
        assert path in await player.failure()
        await player.call("fine")
        assert await player.text() == "fine"


async def test_a_text_that_json_cannot_say_is_an_error_result(era: type[Legacy]) -> None:
    server = Server("tester")

    @server.tool
    async def broken() -> str:
        return "half a pair: \ud800"

    async with play(server, era) as player:
        await player.call("broken")
        assert "content" in await player.failure()


async def test_a_question_that_json_cannot_say_fails_its_own_call_and_nothing_else(era: type[Legacy]) -> None:
    server = Server("tester")

    @server.tool
    async def ask(message: str, ctx: Context) -> str:
        await ctx.elicit(message + "\ud800" if message == "broken" else message, bool)
        return "asked"

    async with play(server, era) as player:
        call = await player.call("ask", {"message": "broken"})
        reply = await player.talk.reply(call)
        assert "error" in reply or reply["result"]["isError"]
        await wait_all_tasks_blocked()
        assert player.talk.service.supervisor.actors == ()
        await player.call("ask", {"message": "fine"})
        await player.question()
        await player.answer(accept(value=True))
        assert await player.text() == "asked"


async def test_the_caller_of_a_tool_that_ignores_its_deadline_is_answered_after_a_grace(
    era: type[Legacy], autojump_clock: MockClock
) -> None:
    server = Server("tester", options=ServiceOptions(cancel_grace=2))

    @server.tool(timeout=1)
    async def stuck() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)
        return "too late"

    async with play(server, era) as player:
        await player.call("stuck")
        with trio.move_on_after(60):
            assert "did not finish within 1 seconds" in await player.failure()
        assert trio.current_time() < 60


# keeping calls apart


async def test_context_variables_do_not_bleed_from_call_to_call(era: type[Legacy]) -> None:
    server = Server("tester")
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    @server.tool
    async def whoami(name: str) -> str:
        before = user.get()
        user.set(name)
        await trio.lowlevel.checkpoint()
        return before

    async with play(server, era) as player:
        for name in ("ana", "ben"):
            await player.call("whoami", {"name": name})
            assert await player.text() == "nobody"


async def test_a_hundred_calls_at_once_get_their_own_answers(server: Server) -> None:
    async with session(server) as talk:
        ids = [talk.call("ask") for _ in range(100)]
        for _ in ids:
            question = await talk.question()
            talk.answer(question, accept(value=question["id"]))
        answers = [await talk.receive() for _ in ids]
        assert sorted(ids) == sorted(message["id"] for message in answers)
        assert len({message["result"]["content"][0]["text"] for message in answers}) == 100


async def test_the_repr_shows_the_client_and_what_runs(server: Server) -> None:
    async with session(server) as talk:
        talk.call("wait")
        assert repr(talk.session).startswith("<ServerSession with tester calls=1 <Connection open ")
