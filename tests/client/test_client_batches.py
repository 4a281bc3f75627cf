"""A client that is sent batches (2025-03-26): what it takes from them, and how it answers."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import trio
from scripted import Json, as_legacy, calling, conversation, said
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

as_batching = partial(as_legacy, version="2025-03-26")
ROOTS: Json = {"id": "r", "method": "roots/list"}
HANDLERS = 4
"""Of a client, at once."""
PING: Json = {"id": "p", "method": "ping"}


def cancel(id: object) -> Json:
    return {"method": "notifications/cancelled", "params": {"requestId": id}}


async def test_answers_that_come_in_a_batch_are_those_of_their_requests() -> None:
    async with conversation(as_batching) as (client, wire, start):
        calls = [start(client.call_tool, name) for name in ("a", "b")]
        requests = [await wire.request("tools/call") for _ in calls]
        await wire.send_batch(*({"id": each["id"], "result": said(each["params"]["name"])} for each in requests))
        assert [(await call.result()).text for call in calls] == ["a", "b"]


async def test_progress_and_the_answer_may_come_in_one_batch() -> None:
    reports: list[float] = []
    async with calling(as_batching, on_progress=lambda report: reports.append(report.progress)) as (
        wire,
        call,
        request,
    ):
        token = request["params"]["_meta"]["progressToken"]
        progress = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        await wire.send_batch(progress, {"id": request["id"], "result": said("a")})
        assert (await call.result()).text == "a"
        assert reports == [1]


async def test_questions_of_a_batch_are_answered_in_one_array_when_the_last_answer_is_there() -> None:
    answered = trio.Event()

    async def roots() -> list[str]:
        await answered.wait()
        return []

    async with conversation(as_batching, on_roots=roots) as (_client, wire, _start):
        await wire.send_batch(ROOTS, PING, {"id": "x", "method": "no/such"})
        await wait_all_tasks_blocked()
        answered.set()
        answers = await wire.answers()
        assert set(answers) == {"r", "p", "x"}
        assert answers["r"]["result"] == {"roots": []}
        assert "error" in answers["x"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_ping_is_answered_however_much_is_asked_at_once(version: str) -> None:
    opening = partial(as_legacy, version=version)
    async with conversation(opening, on_roots=trio.sleep_forever, max_handlers=HANDLERS) as (_client, wire, _start):
        for number in range(HANDLERS):
            await wire.ask(number, "roots/list", {})
        await wire.ask("alive?", "ping", {})
        assert (await wire.answer("alive?"))["result"] == {}


async def test_a_question_that_the_server_cancels_is_missing_from_the_array() -> None:
    async with conversation(as_batching, on_roots=trio.sleep_forever, max_handlers=HANDLERS) as (_client, wire, _start):
        await wire.send_batch(ROOTS, PING)
        await wait_all_tasks_blocked()
        await wire.send(cancel("r"))
        assert list(await wire.answers()) == ["p"]
        await wire.send_batch(ROOTS, cancel("r"))
        await wire.silence()


async def test_questions_over_the_limit_are_refused_within_the_array() -> None:
    ids = itertools.count()
    async with conversation(as_batching, on_roots=trio.sleep_forever, max_handlers=HANDLERS) as (_client, wire, _start):
        await wire.send_batch(*({"id": next(ids), "method": "roots/list"} for _ in range(HANDLERS + 2)))
        await wait_all_tasks_blocked()
        await wire.send_batch(*map(cancel, range(HANDLERS)))
        answers = await wire.answers()
        assert [(id, answer["error"]["code"]) for id, answer in answers.items()] == [
            (HANDLERS, SERVER_BUSY),
            (HANDLERS + 1, SERVER_BUSY),
        ]
