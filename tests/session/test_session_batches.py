"""A server that is sent batches: each request is served as if it had come alone, and their answers go back together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from peer import arrived, encoded, text_of
from talk import Json, Talk, offering, session_with
from trio.testing import wait_all_tasks_blocked
from wire_terms import INVALID_REQUEST, LEGACY_REVISIONS, METHOD_NOT_FOUND

from trio_mcp import CancelReason, Context, ToolError
from trio_mcp.session import OpenBatch

BATCHING = "2025-03-26"
PING: Json = {"id": "p", "method": "ping"}


class Stage:
    """A server whose tools wait until the test lets them go on."""

    def __init__(self) -> None:
        self.gates: dict[str, trio.Event] = {}
        self.reasons: list[CancelReason | None] = []
        self.runs: list[str] = []
        self.server = offering(self.echo, self.wait, self.fail, self.report, self.ask)

    def gate(self, name: str) -> trio.Event:
        return self.gates.setdefault(name, trio.Event())

    async def echo(self, text: str) -> str:
        self.runs.append(text)
        return text

    async def wait(self, name: str, ctx: Context) -> str:
        self.runs.append(name)
        try:
            await self.gate(name).wait()
        except trio.Cancelled:
            self.reasons.append(ctx.cancel_reason)
            raise
        return name

    async def fail(self) -> str:
        raise ToolError("no such luck")

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2)
        await self.gate("report").wait()
        return "reported"

    async def ask(self, ctx: Context) -> str:
        return str(len(await ctx.roots()))


def call(id: object, tool: str, meta: Json | None = None, **arguments: object) -> Json:
    params: Json = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"id": id, "method": "tools/call", "params": params}


def cancel(id: object) -> Json:
    return {"method": "notifications/cancelled", "params": {"requestId": id, "reason": "not needed"}}


def text(answer: Json) -> str:
    return text_of(answer["result"])


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def talk(stage: Stage) -> AsyncIterator[Talk]:
    """A session of the revision that has batches."""
    async with session_with(stage.server, BATCHING) as talk:
        yield talk


# answers


async def test_the_answers_of_a_batch_go_out_together_when_the_last_one_is_there(stage: Stage, talk: Talk) -> None:
    talk.send_batch(PING, call(1, "wait", name="a"), call(2, "wait", name="b"), call(3, "echo", text="hi"))
    await talk.silence()
    stage.gate("b").set()
    await talk.silence()
    stage.gate("a").set()
    answers = await talk.answers()
    assert set(answers) == {"p", 1, 2, 3}
    assert [text(answers[id]) for id in (1, 2, 3)] == ["a", "b", "hi"]
    assert not talk.session.busy


async def test_a_batch_without_requests_is_not_answered(stage: Stage, talk: Talk) -> None:
    assert talk.send_batch(cancel(9), {"method": "notifications/roots/list_changed"}) is None
    await talk.silence()


async def test_what_a_request_of_a_batch_says_on_its_way_goes_out_at_once(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "report", {"progressToken": "t"}), PING)
    assert (await talk.notification("notifications/progress"))["progressToken"] == "t"
    await talk.silence()
    stage.gate("report").set()
    assert set(await talk.answers()) == {1, "p"}


async def test_questions_of_a_batch_go_out_at_once_and_are_answered_in_a_batch(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "ask"), call(2, "ask"))
    questions = [await talk.question("roots/list") for _ in range(2)]
    roots = {"roots": [{"uri": "file:///a"}]}
    assert talk.send_batch(*({"id": question["id"], "result": roots} for question in questions)) is None
    assert [text(answer) for answer in (await talk.answers()).values()] == ["1", "1"]


async def test_errors_stand_among_the_results(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "fail"), call(2, "nowhere"), {"id": 3, "method": "no/such"}, call(4, "echo", text="hi"))
    answers = await talk.answers()
    assert answers[1]["result"]["isError"]
    assert "error" in answers[2]
    assert answers[3]["error"]["code"] == METHOD_NOT_FOUND
    assert text(answers[4]) == "hi"


async def test_a_batch_of_refused_messages_alone_is_answered_at_once(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "echo", text="a"), call(1, "echo", text="b"))
    answers = await talk.receive()
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, INVALID_REQUEST)] * 2
    await wait_all_tasks_blocked()
    assert stage.runs == []


# what is refused


@pytest.mark.parametrize("version", [each for each in LEGACY_REVISIONS if each != BATCHING])
async def test_nothing_of_a_batch_is_executed_in_another_revision(stage: Stage, version: str) -> None:
    async with session_with(stage.server, version) as talk:
        rejected = talk.send_batch(call(1, "echo", text="a"), call(2, "echo", text="b"))
        assert rejected.error.code == INVALID_REQUEST
        message = await talk.receive()
        assert (message["error"]["code"], message.get("id")) == (INVALID_REQUEST, None)
        await talk.silence()
        assert stage.runs == []


# ids


async def test_an_id_is_in_use_until_its_own_call_has_ended_not_the_whole_batch(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "echo", text="a"), call(2, "wait", name="b"))
    await talk.silence()
    assert "in use" in (await talk.error(talk.call("echo", {"text": "x"}, id=2)))["message"]
    assert await talk.text(talk.call("echo", {"text": "x"}, id=1)) == "x"
    stage.gate("b").set()
    assert set(await talk.answers()) == {1, 2}


# cancelled and left


async def test_cancelling_the_last_open_call_sends_the_answers_that_are_there(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "wait", name="a"), call(2, "echo", text="b"))
    await talk.silence()
    talk.cancel(1)
    assert set(await talk.answers()) == {2}


async def test_a_batch_that_is_cancelled_call_by_call_is_not_answered(stage: Stage, talk: Talk) -> None:
    batch = talk.send_batch(call(1, "wait", name="a"), call(2, "wait", name="b"))
    await wait_all_tasks_blocked()
    talk.send_batch(cancel(1), cancel(2))
    await talk.silence()
    assert isinstance(batch, OpenBatch)
    assert batch.finished
    assert not talk.session.busy


async def test_a_call_is_cancelled_by_its_own_batch(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "wait", name="a"), cancel(1), call(2, "echo", text="b"))
    assert set(await talk.answers()) == {2}
    talk.send_batch(call(1, "wait", name="c"), cancel(1))
    await talk.silence()
    assert not talk.session.busy


async def exclusive(talk: Talk, *messages: Json) -> tuple[OpenBatch, Any]:
    """A batch with a separate outbox, as over HTTP."""
    outbox = talk.service.open_outbox()
    batch = talk.session.receive(arrived(encoded(*messages, batch=True)), outbox, owns_outbox=True)
    assert isinstance(batch, OpenBatch)
    await wait_all_tasks_blocked()
    return batch, outbox


async def test_a_separate_outbox_is_closed_with_the_last_answer(stage: Stage, talk: Talk) -> None:
    batch, outbox = await exclusive(talk, call(1, "wait", name="a"), PING)
    assert not batch.finished
    assert not outbox.closed
    stage.gate("a").set()
    await wait_all_tasks_blocked()
    assert batch.finished
    assert outbox.closed
    assert len(outbox.take_nowait()) == 1


async def test_a_separate_outbox_is_closed_empty_when_every_call_was_cancelled(stage: Stage, talk: Talk) -> None:
    batch, outbox = await exclusive(talk, call(1, "wait", name="a"))
    talk.cancel(1)
    await wait_all_tasks_blocked()
    assert batch.finished
    assert (outbox.closed, len(outbox.items)) == (True, 0)


async def test_who_leaves_a_batch_cancels_what_still_runs_of_it(stage: Stage, talk: Talk) -> None:
    batch, _ = await exclusive(talk, call(1, "echo", text="a"), call(2, "wait", name="b"), call(3, "wait", name="c"))
    talk.call("wait", {"name": "other"}, id=1)  # an id that the batch no longer uses
    await wait_all_tasks_blocked()
    talk.session.disconnect(batch)
    await wait_all_tasks_blocked()
    assert stage.reasons == [CancelReason.DISCONNECT] * 2
    assert talk.session.busy  # the other call runs on, under its id
    assert "in use" in (await talk.error(talk.request("ping", id=1)))["message"]


async def test_a_shutdown_answers_every_call_of_a_batch(stage: Stage, talk: Talk) -> None:
    talk.send_batch(call(1, "wait", name="a"), call(2, "echo", text="b"))
    await wait_all_tasks_blocked()
    await talk.service.drain(0, 1)
    answers = await talk.answers()
    assert set(answers) == {1, 2}
    assert text(answers[2]) == "b"
