"""The client as the one that runs a task: questions of a 2025-11-25 server (L-TSK-1, L-TSK-3 to L-TSK-9)."""

from __future__ import annotations

import pytest
import trio
from scripted import FORM, ROOTS_QUESTION, SAMPLE, Json, Thinker, Wire, as_legacy, conversation
from wire_terms import INVALID_PARAMS, RELATED_TASK, SERVER_BUSY

from trio_mcp.client import accept
from trio_mcp.session import received_tasks, server_requests

NEWS = "notifications/tasks/status"
AS_TASK: Json = {"method": "elicitation/create", "params": {**FORM, "task": {"ttl": 60_000}}}
SAMPLE_AS_TASK: Json = {"method": "sampling/createMessage", "params": {**SAMPLE, "task": {}}}


def about(method: str, task_id: str) -> Json:
    return {"method": f"tasks/{method}", "params": {"taskId": task_id}}


async def created(wire: Wire, question: Json = AS_TASK) -> Json:
    task: Json = (await wire.answer_to(question))["result"]["task"]
    return task


async def test_a_question_as_a_task_is_answered_at_once_and_its_result_is_fetched() -> None:
    async with conversation(as_legacy, on_elicit=lambda _form: accept()) as (_client, wire, _start):
        task = await created(wire)
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        assert (await wire.notification(NEWS))["status"] == "completed"
        result = (await wire.answer_to(about("result", task["taskId"])))["result"]
        assert result["action"] == "accept"
        assert result["_meta"][RELATED_TASK] == {"taskId": task["taskId"]}


async def test_a_sample_runs_as_a_task_too() -> None:
    async with conversation(as_legacy, on_sample=lambda _asked: "hello") as (_client, wire, _start):
        task = await created(wire, SAMPLE_AS_TASK)
        await wire.notification(NEWS)
        assert (await wire.answer_to(about("result", task["taskId"])))["result"]["content"]["text"] == "hello"


async def test_a_result_waits_for_the_end_and_a_cancelled_task_stays_so() -> None:
    thinks = Thinker()
    async with conversation(as_legacy, on_elicit=thinks) as (_client, wire, _start):
        task_id = (await created(wire))["taskId"]
        await thinks.asked.wait()
        await wire.send({"id": "r", **about("result", task_id)})
        await wire.silence()
        await wire.send({"id": "c", **about("cancel", task_id)})
        assert (await wire.notification(NEWS))["status"] == "cancelled"
        answers = [await wire.receive(), await wire.receive()]
        assert next(answer for answer in answers if answer["id"] == "c")["result"]["status"] == "cancelled"
        assert "error" in next(answer for answer in answers if answer["id"] == "r")
        assert thinks.cancelled
        assert (await wire.answer_to(about("cancel", task_id)))["error"]["code"] == INVALID_PARAMS
        assert (await wire.answer_to(about("get", task_id)))["result"]["status"] == "cancelled"


@pytest.mark.parametrize("method", ["get", "result", "cancel"])
async def test_an_unknown_task_is_wrong_params(method: str) -> None:
    async with conversation(as_legacy, on_elicit=lambda _form: accept()) as (_client, wire, _start):
        assert (await wire.answer_to(about(method, "none")))["error"]["code"] == INVALID_PARAMS


async def test_what_can_be_got_is_listed_and_an_unknown_cursor_is_wrong_params() -> None:
    async with conversation(as_legacy, on_elicit=Thinker()) as (_client, wire, _start):
        task = await created(wire)
        listed = await wire.answer_to({"method": "tasks/list", "params": {}})
        assert [each["taskId"] for each in listed["result"]["tasks"]] == [task["taskId"]]
        wrong = await wire.answer_to({"method": "tasks/list", "params": {"cursor": "x"}})
        assert wrong["error"]["code"] == INVALID_PARAMS


async def test_the_ttl_ends_the_work_and_the_task() -> None:
    thinks = Thinker()
    async with conversation(as_legacy, on_elicit=thinks) as (_client, wire, _start):
        question = {**AS_TASK, "params": {**FORM, "task": {"ttl": 1000}}}
        task_id = (await created(wire, question))["taskId"]
        assert (await wire.notification(NEWS))["status"] == "failed"
        assert thinks.cancelled
        await trio.testing.wait_all_tasks_blocked()
        assert (await wire.answer_to(about("get", task_id)))["error"]["code"] == INVALID_PARAMS


async def test_a_task_over_the_limit_is_refused_and_nothing_of_it_remains() -> None:
    async with conversation(as_legacy, on_elicit=Thinker(), max_handlers=1) as (_client, wire, _start):
        task = await created(wire)
        refused = (await wire.answer_to(AS_TASK))["error"]
        assert refused["code"] == SERVER_BUSY
        assert "max_handlers" in refused["message"]
        listed = await wire.answer_to({"method": "tasks/list", "params": {}})
        assert [each["taskId"] for each in listed["result"]["tasks"]] == [task["taskId"]]


async def test_waiting_for_results_holds_up_nothing_else_and_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "MAX_WAITING", 3)
    async with conversation(as_legacy, on_elicit=Thinker(), on_roots=list, max_handlers=2) as (_client, wire, _start):
        task_id = (await created(wire))["taskId"]
        for number in range(3):
            await wire.send({"id": f"waits {number}", **about("result", task_id)})
        await wire.silence()
        refused = (await wire.answer_to(about("result", task_id)))["error"]
        assert refused["code"] == SERVER_BUSY
        assert "MAX_WAITING" in refused["message"]
        assert (await wire.answer_to(ROOTS_QUESTION))["result"] == {"roots": []}
        assert (await wire.answer_to(about("get", task_id)))["result"]["status"] == "working"
        await wire.send({"id": "c", **about("cancel", task_id)})
        await wire.notification(NEWS)
        answers = [await wire.receive() for _ in range(4)]
        assert {answer["id"] for answer in answers if "error" in answer} == {"waits 0", "waits 1", "waits 2"}


async def test_results_over_the_limit_of_bytes_fail_their_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_tasks, "MAX_RESULT_BYTES", 10)
    async with conversation(as_legacy, on_elicit=lambda _form: accept()) as (_client, wire, _start):
        task = await created(wire)
        await wire.notification(NEWS)
        assert "MAX_RESULT_BYTES" in (await wire.answer_to(about("result", task["taskId"])))["error"]["message"]


async def test_the_end_of_the_connection_cancels_every_task() -> None:
    thinks = Thinker()
    async with conversation(as_legacy, on_elicit=thinks) as (_client, wire, _start):
        await created(wire)
        await thinks.asked.wait()
    assert thinks.cancelled


async def test_a_question_that_cannot_be_a_task_is_answered_as_ever() -> None:
    async with conversation(as_legacy, on_roots=list) as (_client, wire, _start):
        asked = {**ROOTS_QUESTION, "params": {"task": {}}}
        assert (await wire.answer_to(asked))["result"]["roots"] == []
