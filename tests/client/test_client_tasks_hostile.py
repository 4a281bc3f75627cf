"""Servers that say of tasks what they should not: the client stays bounded, and believes an end (L-TSK-5, M-TSK-4, M-TSK-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from peer import json_of
from scripted import FORM_QUESTION, HINTS, OFFERS, Json, Start, Thinker, Wire, as_legacy, conversation, discovered, said
from wire_terms import SUBSCRIPTION_ID, TASKS_EXTENSION

from trio_mcp.client import Client, accept
from trio_mcp.errors import LimitExceeded, PeerError, RemoteProtocolError, RequestTimeout, TaskCancelled

NO_STREAM = {"error": {"code": -32601, "message": "no such method"}}
INTERIM: Json = {"resultType": "input_required", "requestState": "s"}
LEGACY_TASKS: Json = {**OFFERS, "tasks": {"requests": {"tools": {"call": {}}}, "list": {}, "cancel": {}}}


def task(status: str = "working", task_id: str = "t", **more: Any) -> Json:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {"taskId": task_id, "status": status, **times, "ttlMs": None, "pollIntervalMs": 1000, **more}


def created(**more: Any) -> Json:
    return {"resultType": "task", **task(**more)}


def completed(text: str = "done", **more: Any) -> Json:
    return task("completed", result={"resultType": "complete", **said(text)}, **more)


async def as_task_server(wire: Wire) -> None:
    found = discovered()
    found["capabilities"] = {**OFFERS, "extensions": {TASKS_EXTENSION: {}}}
    await wire.reply("server/discover", found)


async def as_legacy_tasks(wire: Wire) -> None:
    await as_legacy(wire, capabilities=LEGACY_TASKS)


class Answers:
    """A server that answers each method with the next of its answers, and then repeats the last one.

    Attributes:
        seen: the requests that came, by method.
    """

    def __init__(self, **answers: list[Json]) -> None:
        self._answers = {name.replace("_", "/"): list(each) for name, each in answers.items()}
        self.seen: dict[str, list[Json]] = {}

    async def serve(self, wire: Wire) -> None:
        while True:
            # Not `wire.receive`, whose patience ends: a client may poll rarely.
            request = json_of((await wire.channel.receive()).message)
            method = request.get("method")
            if method is None or "id" not in request:
                continue
            self.seen.setdefault(method, []).append(request)
            answers = self._answers.get(method, [NO_STREAM])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            body = (
                answer
                if "error" in answer and "taskId" not in answer
                else {"result": {"resultType": "complete", **answer}}
            )
            await wire.send({"id": request["id"], **body})


@asynccontextmanager
async def against(
    answers: Answers, opening: Callable[[Wire], Awaitable[None]] = as_task_server, **handlers: Any
) -> AsyncIterator[tuple[Client, Start]]:
    async with conversation(opening, **handlers) as (client, wire, start):
        start(answers.serve, wire)
        with trio.fail_after(10_000):
            yield client, start


async def test_the_state_of_another_task_is_no_answer() -> None:
    answers = Answers(tools_call=[created()], tasks_get=[completed(task_id="other")], tasks_cancel=[{}])
    async with against(answers) as (client, _):
        with pytest.raises(RemoteProtocolError, match="other"):
            await client.call_tool("book")
    # The server was notified that the task is no longer needed.
    assert [request["params"]["taskId"] for request in answers.seen["tasks/cancel"]] == ["t"]


# time


async def test_a_task_that_never_ends_is_cancelled_with_the_timeout() -> None:
    answers = Answers(tools_call=[created()], tasks_get=[task()], tasks_cancel=[{}])
    async with against(answers) as (client, _):
        with pytest.raises(RequestTimeout):
            await client.call_tool("book", timeout=100)
    assert len(answers.seen["tasks/cancel"]) == 1
    assert 95 <= len(answers.seen["tasks/get"]) <= 101


async def test_a_server_that_does_not_answer_the_cancel_delays_the_caller_little() -> None:
    async with conversation(as_task_server) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=5)
        await wire.reply("tools/call", created())
        began = trio.current_time()
        await call.fails(RequestTimeout)
        assert trio.current_time() - began == pytest.approx(5 + 2)


@pytest.mark.parametrize(("interval", "most"), [(0, 606), (-5, 606), (10**12, 2), (None, 61)])
async def test_the_interval_of_polls_is_bounded(interval: int | None, most: int) -> None:
    said_interval = {} if interval is None else {"pollIntervalMs": interval}
    state = {name: value for name, value in task().items() if name != "pollIntervalMs"} | said_interval
    answers = Answers(tools_call=[{**state, "resultType": "task"}], tasks_get=[state], tasks_cancel=[{}])
    async with against(answers) as (client, _):
        with pytest.raises(RequestTimeout):
            await client.call_tool("book", timeout=60.5)
    assert 1 <= len(answers.seen["tasks/get"]) <= most


@pytest.mark.parametrize(
    ("first", "states"),
    [(created(ttlMs=None), [task(ttlMs=None), completed(ttlMs=None)]), (created(status="completed"), [completed()])],
    ids=["it has no end of its life", "it is over when it is created"],
)
async def test_a_task_is_asked_for_its_outcome(first: Json, states: list[Json]) -> None:
    async with against(Answers(tools_call=[first], tasks_get=states)) as (client, _):
        assert (await client.call_tool("book")).text == "done"


# states


async def test_a_task_that_was_over_does_not_work_again() -> None:
    answers = Answers(tools_call=[created()], tasks_get=[completed("first"), task(), completed("second")])
    async with against(answers) as (client, _):
        handle = await client.start_tool("book")
        assert (await handle.result()).text == "first"
        assert (await handle.status()).status == "completed"
        assert (await handle.result()).text == "first"
    assert len(answers.seen["tasks/get"]) == 1


async def test_a_task_that_failed_raises_its_error() -> None:
    failed = task("failed", error={"code": -32050, "message": "no more", "data": [1]})
    async with against(Answers(tools_call=[created()], tasks_get=[failed])) as (client, _):
        with pytest.raises(PeerError) as raised:
            await client.call_tool("book")
    assert (raised.value.code, raised.value.message, raised.value.data) == (-32050, "no more", [1])


@pytest.mark.parametrize(
    ("first", "state", "kind", "named"),
    [
        *((created(task_id=odd), {}, RemoteProtocolError, "1024") for odd in ("x" * 1_000_000, "", "x" * 1025)),
        (created(), task("failed"), RemoteProtocolError, "failed"),
        (created(), task("completed"), RemoteProtocolError, "completed"),
        (created(), task("completed", result={"content": 3}), RemoteProtocolError, None),
        (created(), task("completed", result={"resultType": "task"}), RemoteProtocolError, None),
        (created(), task("completed", result=INTERIM), RemoteProtocolError, None),
        (created(), task("cancelled", statusMessage="by the owner"), TaskCancelled, "by the owner"),
    ],
    ids=["long", "empty", "too long", "failed", "completed", "no content", "a task", "a round", "cancelled elsewhere"],
)
async def test_an_odd_id_or_an_end_without_a_result_is_an_error(
    first: Json, state: Json, kind: type[Exception], named: str | None
) -> None:
    async with against(Answers(tools_call=[first], tasks_get=[state])) as (client, _):
        with pytest.raises(kind, match=named):
            await client.call_tool("book")


async def test_a_cancel_that_is_refused_because_the_task_is_over_is_no_error() -> None:
    refused = {"error": {"code": -32602, "message": "it is over"}}
    answers = Answers(tools_call=[created()], tasks_get=[task(), completed()], tasks_cancel=[refused])
    async with against(answers) as (client, _):
        handle = await client.start_tool("book")
        with pytest.raises(PeerError):
            await handle.cancel()
        await handle.cancel()
        assert (await handle.status()).status == "completed"


# questions


def asks(*keys: str) -> Json:
    return task("input_required", inputRequests=dict.fromkeys(keys, FORM_QUESTION))


async def test_each_question_is_answered_once() -> None:
    asked: list[object] = []

    def on_elicit(params: object) -> Any:
        asked.append(params)
        return accept()

    states = [asks("a"), asks("a"), asks("a", "b"), asks("b"), completed()]
    answers = Answers(tools_call=[created()], tasks_get=states, tasks_update=[{}])
    async with against(answers, on_elicit=on_elicit) as (client, _):
        assert (await client.call_tool("book")).text == "done"
    assert len(asked) == 2
    updates = [request["params"]["inputResponses"] for request in answers.seen["tasks/update"]]
    assert [list(each) for each in updates] == [["a"], ["b"]]


async def test_the_number_of_questions_has_a_limit() -> None:
    many = asks(*map(str, range(2_000)))
    answers = Answers(tools_call=[created()], tasks_get=[many], tasks_cancel=[{}])
    async with against(answers, on_elicit=lambda _params: accept()) as (client, _):
        with pytest.raises(LimitExceeded, match="2000 questions"):
            await client.call_tool("book")
    assert "tasks/update" not in answers.seen


async def test_a_task_that_asks_endlessly_is_ended_by_the_limit_of_rounds() -> None:
    answers = Answers(
        tools_call=[created()],
        tasks_get=[asks(str(number)) for number in range(100)],
        tasks_update=[{}],
        tasks_cancel=[{}],
    )
    async with against(answers, on_elicit=lambda _params: accept()) as (client, _):
        with pytest.raises(LimitExceeded, match="max_rounds"):
            await client.call_tool("book")
    assert len(answers.seen["tasks/update"]) == 10


async def test_a_question_that_is_withdrawn_leaves_the_screen() -> None:
    cancelled = trio.Event()

    async def on_elicit(_params: object) -> Any:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    answers = Answers(tools_call=[created()], tasks_get=[asks("a"), asks("a"), completed()])
    async with against(answers, on_elicit=on_elicit) as (client, _):
        assert (await client.call_tool("book")).text == "done"
    assert cancelled.is_set()


async def test_an_answer_whose_request_was_lost_is_sent_again_and_not_asked_for_again() -> None:
    asked: list[object] = []
    busy = {"error": {"code": -32000, "message": "busy"}}
    states = [asks("a"), asks("a"), asks("a"), asks("a"), completed()]
    answers = Answers(tools_call=[created()], tasks_get=states, tasks_update=[busy, busy, {}])

    def on_elicit(params: object) -> Any:
        asked.append(params)
        return accept()

    async with against(answers, on_elicit=on_elicit) as (client, _):
        assert (await client.call_tool("book")).text == "done"
    assert len(asked) == 1


# the stream


async def acknowledged(wire: Wire, **honoured: list[str]) -> Json:
    """Answer the request for the changes of a task; return the members of what is announced."""
    stream = await wire.request("subscriptions/listen")
    assert stream["params"]["notifications"] == {"taskIds": ["t"]}
    meta: Json = {"_meta": {SUBSCRIPTION_ID: stream["id"]}}
    await wire.notify("notifications/subscriptions/acknowledged", {**meta, "notifications": honoured})
    return meta


async def test_the_outcome_on_the_stream_ends_the_wait_without_a_poll() -> None:
    async with conversation(as_task_server) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", created())
        meta = await acknowledged(wire, taskIds=["t"])
        await wire.reply("tasks/get", task())
        await wire.silence(20)
        await wire.notify("notifications/tasks", {**meta, **completed("other", task_id="u")})
        await wire.notify("notifications/tasks", {**meta, **completed()})
        assert (await call.result()).text == "done"


async def test_an_answer_does_not_undo_what_was_announced_while_it_was_on_its_way() -> None:
    thinks = Thinker()
    async with conversation(as_task_server, on_elicit=thinks) as (client, wire, start):
        start(client.call_tool, "book")
        await wire.reply("tools/call", created())
        meta = await acknowledged(wire, taskIds=["t"])
        older = await wire.request("tasks/get")
        await wire.notify("notifications/tasks", {**meta, **asks("a")})
        await thinks.asked.wait()
        await wire.respond(older, {"resultType": "complete", **task()})
        await wire.request("tasks/get")  # once more
        assert not thinks.cancelled


async def test_a_stream_that_leaves_the_task_out_is_given_up() -> None:
    async with conversation(as_task_server) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", created())
        await acknowledged(wire)
        await wire.notification("notifications/cancelled")
        await wire.reply("tasks/get", {"resultType": "complete", **task(), **HINTS})
        await wire.reply("tasks/get", {"resultType": "complete", **completed()})
        assert (await call.result()).text == "done"


# 2025-11-25


def old(status: str = "working", **more: Any) -> Json:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {"taskId": "t", "status": status, **times, "ttl": None, "pollInterval": 1000, **more}


TASK_TOOLS: Json = {
    "tools": [{"name": "book", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}]
}


async def test_a_question_stays_open_while_its_task_is_announced_anew() -> None:
    thinks = Thinker()

    async def follow(handle: Any) -> None:
        async for _ in handle:
            pass

    async with conversation(as_legacy_tasks, on_elicit=thinks) as (client, wire, start):
        starting = start(client.start_tool, "book")
        await wire.reply("tools/list", TASK_TOOLS)
        await wire.reply("tools/call", {"task": old("input_required")})
        start(follow, await starting.result())
        await wire.request("tasks/result")
        await wire.reply("tasks/get", old("input_required"))
        await wire.send({"id": "q", **FORM_QUESTION})
        await thinks.asked.wait()
        await wire.notify("notifications/tasks/status", old("input_required", statusMessage="still"))
        await wire.request("tasks/get")  # and no cancel of the request on whose stream it asks
        assert not thinks.cancelled


async def test_a_result_that_does_not_come_after_the_end_is_a_timeout() -> None:
    async with conversation(as_legacy_tasks) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/list", TASK_TOOLS)
        assert (await wire.reply("tools/call", {"task": old()}))["params"]["task"] == {}
        await wire.request("tasks/result")
        await wire.reply("tasks/get", old("completed"))
        await wire.silence(30)
        await wire.silence(29)
        await wire.notification("notifications/cancelled")
        await call.fails(RequestTimeout)


async def test_a_server_that_does_not_wait_in_tasks_result_is_polled() -> None:
    refused = {"error": {"code": -32603, "message": "not yet"}}
    answers = Answers(
        tools_list=[TASK_TOOLS],
        tools_call=[{"task": old()}],
        tasks_result=[refused, said("done")],
        tasks_get=[old(), old(), old("completed")],
    )
    async with against(answers, as_legacy_tasks) as (client, _):
        assert (await client.call_tool("book")).text == "done"


async def test_a_tool_that_became_a_task_since_it_was_listed_is_called_as_one() -> None:
    plain = {"tools": [{"name": "book", "inputSchema": {"type": "object"}}]}
    answers = Answers(
        tools_list=[plain, TASK_TOOLS],
        tools_call=[{"error": {"code": -32601, "message": "only as a task"}}, {"task": old()}],
        tasks_result=[said("done")],
        tasks_get=[old()],
    )
    async with against(answers, as_legacy_tasks) as (client, _):
        assert (await client.call_tool("book")).text == "done"
    assert ["task" in request["params"] for request in answers.seen["tools/call"]] == [False, True]


async def test_the_list_of_tasks_ends() -> None:
    answers = Answers(tasks_list=[{"tasks": [old()], "nextCursor": "again"}])
    async with against(answers, as_legacy_tasks) as (client, _):
        with pytest.raises(LimitExceeded, match="pages"):
            async for _ in client.tasks():
                pass


async def test_a_call_that_asked_for_a_task_is_withdrawn_by_the_id_of_the_task() -> None:
    # No notification may cancel a request that becomes a task (L-CAN-1b).
    async with conversation(as_legacy_tasks) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=5)
        await wire.reply("tools/list", TASK_TOOLS)
        request = await wire.request("tools/call")
        await call.fails(RequestTimeout)
        await wire.silence()
        await wire.respond(request, {"task": old()})
        assert (await wire.reply("tasks/cancel", old("cancelled")))["params"]["taskId"] == "t"
        await wire.silence()


@pytest.mark.parametrize("answer", [{"task": old(taskId="x" * 2000)}, {"task": 3}, said("no task")])
async def test_a_late_answer_that_is_not_a_task_is_dropped(answer: Json) -> None:
    async with conversation(as_legacy_tasks) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=5)
        await wire.reply("tools/list", TASK_TOOLS)
        request = await wire.request("tools/call")
        await call.fails(RequestTimeout)
        await wire.respond(request, answer)
        await wire.silence()
