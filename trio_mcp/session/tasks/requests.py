"""The requests about tasks, of both eras: what a caller may ask of a task that it has the id of.

An id that is unknown, somebody else's, or whose time is over gets one and the same answer (L-TSK-9, M-TSK-8).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

import trio

from ...errors import LimitExceeded, RemoteProtocolError
from ...protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Encoded
from ...runtime import Actor, Lane
from ...types import (
    EmptyResult,
    ListTasksResult,
    Model,
    PaginatedRequestParams,
    TaskRequestParams,
    UpdateTaskRequestParams,
)
from ..calls.asks_rounds import decoded_answer
from ..calls.call import Body, Call, Plan, Route
from ..calls.facts import RequestFacts, ResumeMode
from .elsewhere import AskedElsewhere, answer_elsewhere, cancel_elsewhere
from .open_task import OpenTask
from .questions import ask_until_over, leave_to
from .record import TaskOutcome
from .tasks import SeenTask, Tasks, found

PAGE: Final = 100
"""Tasks on a page of `tasks/list`."""

CATCH_UP_SECONDS: Final = 10.0
"""Seconds for which an answer waits for its question, after a restart."""

P = TypeVar("P", bound=Model)
TaskBody: TypeAlias = Callable[[Tasks, P, Call, Actor | Lane], Awaitable[Model | Encoded]]


def task_routes(tasks: Tasks) -> Mapping[str, Route]:
    """Return the functions that serve the requests about tasks, by method."""
    return {
        "tasks/get": partial(get, tasks),
        "tasks/result": partial(served, tasks, TaskRequestParams, run_result),
        "tasks/list": partial(served, tasks, PaginatedRequestParams, run_list),
        "tasks/cancel": partial(served, tasks, TaskRequestParams, run_cancel),
        "tasks/update": partial(served, tasks, UpdateTaskRequestParams, run_update),
    }


def served(tasks: Tasks, kind: type[P], body: TaskBody[P], facts: RequestFacts, params: Model) -> Plan:
    """Return how to serve a request about tasks: some of it may have to be read from the store.

    Raises:
        CapabilityError: the client does not declare the extension in this request.
    """
    assert isinstance(params, kind)
    facts.terms.codec.check_declared(facts.method, params, facts.client_capabilities)
    return planned(partial(body, tasks, params), facts)


def planned(body: Callable[[Call, Actor | Lane], Awaitable[Model | Encoded]], facts: RequestFacts) -> Plan:
    """Return the plan of a body that may encode its result itself, which no middleware sees.

    Like the task it is about, the request outlives the process: what it does twice it has done once.
    """
    return Plan(cast("Body", body), facts.method, resume=ResumeMode.REPLAY, repeatable=True)


def get(tasks: Tasks, facts: RequestFacts, params: Model) -> Encoded | Plan:
    """Serve `tasks/get`: at once if the task is worked on here, as most are that somebody asks for."""
    assert isinstance(params, TaskRequestParams)
    facts.terms.codec.check_declared(facts.method, params, facts.client_capabilities)
    task = tasks.find_open(facts, params.task_id)
    if task is None:
        return planned(partial(run_get, tasks, params), facts)
    return encoded_task(tasks, facts, tasks.seen(task))


async def run_get(tasks: Tasks, params: TaskRequestParams, call: Call, _place: Actor | Lane) -> Encoded:
    return encoded_task(tasks, call.facts, await found(tasks, call.facts, params.task_id))


async def run_result(tasks: Tasks, params: TaskRequestParams, call: Call, place: Actor | Lane) -> Encoded:
    """Wait until the task is over, and answer as the request would have been that became it (L-TSK-6).

    Raises:
        RemoteProtocolError: what that request would have failed with.
        LimitExceeded: too many wait already, or the store fails.
    """
    facts = call.facts
    seen = await found(tasks, facts, params.task_id)
    if seen.record.outcome is None:
        caller = call.actor.caller
        tasks.waits.take(caller)
        try:
            seen = await over(tasks, seen, call, place if isinstance(place, Lane) else Lane(place))
        finally:
            tasks.waits.give_back(caller)
    outcome = seen.record.outcome
    assert outcome is not None, "the task is over"
    if outcome.error is not None:
        raise RemoteProtocolError(outcome.error.message, code=outcome.error.code, data=outcome.error.data)
    if outcome.result is None:
        raise RemoteProtocolError("the task was cancelled", code=INTERNAL_ERROR)
    return facts.terms.codec.encode_task_payload("tools/call", outcome.result, params.task_id)


async def over(tasks: Tasks, seen: SeenTask, call: Call, lane: Lane) -> SeenTask:
    """Wait until a task is over, here or elsewhere, and ask its questions in this call; return it then."""
    facts, task_id = call.facts, seen.record.id
    while seen.record.outcome is None:
        if seen.open is None:
            await ask_until_over(AskedElsewhere(tasks, facts, seen.record), call, lane)
        else:
            leave_to(seen.open, facts)
            await ask_until_over(seen.open, call, lane)
        ended = seen.open is not None and seen.open.shown.outcome is not None
        seen = tasks.seen(seen.open) if seen.open is not None and ended else await found(tasks, facts, task_id)
    return seen


async def run_list(tasks: Tasks, params: PaginatedRequestParams, call: Call, _place: Actor | Lane) -> Model:
    records, cursor = await tasks.page(call.facts, params.cursor, PAGE)
    codec = call.facts.terms.codec
    shown = [codec.shown_task(tasks.state(SeenTask(record, None, None))) for record in records]
    return ListTasksResult(tasks=shown, next_cursor=cursor)


async def run_cancel(tasks: Tasks, params: TaskRequestParams, call: Call, _place: Actor | Lane) -> Encoded:
    """Cancel a task; its state is settled before the answer (L-TSK-8).

    Raises:
        RemoteProtocolError: -32602, it is over, and the revision wants that to be an error.
        LimitExceeded: another process works on it, and has not ended it after `CANCEL_SECONDS`.
    """
    facts = call.facts
    seen, was_open = await found(tasks, facts, params.task_id), False
    if seen.open is None and seen.record.outcome is None:
        seen = await cancel_elsewhere(tasks, facts, params.task_id, seen)
        was_open = seen.record.outcome == TaskOutcome()
    if seen.open is not None:
        was_open = await tasks.cancel(seen.open)
    if not was_open and facts.terms.codec.revision.ended_task_is_error:
        raise RemoteProtocolError("the task is over already and cannot be cancelled", code=INVALID_PARAMS)
    seen = await found(tasks, facts, params.task_id)
    return facts.terms.codec.encode_cancelled_task(tasks.state(seen), tasks.services.server_info_json)


async def run_update(tasks: Tasks, params: UpdateTaskRequestParams, call: Call, _place: Actor | Lane) -> Model:
    """Hand the answers to the lanes that asked. Unknown and answered keys are ignored (M-TSK-5).

    Raises:
        RemoteProtocolError: -32602, an answer is malformed; none was taken.
    """
    facts = call.facts
    seen = await found(tasks, facts, params.task_id)
    if seen.open is None:
        if seen.record.outcome is None:
            await answer_elsewhere(tasks, facts, seen, params.input_responses)
        return EmptyResult()
    await wait_asked(seen.open, params.input_responses)
    codec, questions = facts.terms.codec, seen.open.questions
    answers = {
        key: decoded_answer(codec, key, questions[key].question.method, answer)
        for key, answer in params.input_responses.items()
        if key in questions
    }
    await tasks.answer(seen.open, answers, facts.size)
    return EmptyResult()


async def wait_asked(task: OpenTask, keys: Iterable[str]) -> None:
    """Wait until a task that this process has resumed asks again what it had asked before the restart.

    An answer that comes before is not one to an unknown key: its caller would not send it again.

    Raises:
        LimitExceeded: it has not asked it after `CATCH_UP_SECONDS`.
    """
    with trio.move_on_after(CATCH_UP_SECONDS):
        while task.is_open and any(task.may_ask_again(key) for key in keys):
            await task.wait_change()
        return
    raise LimitExceeded("the task was resumed, and has not come to its questions again; send the answers again later")


def encoded_task(tasks: Tasks, facts: RequestFacts, seen: SeenTask) -> Encoded:
    """Return the answer to `tasks/get`."""
    return facts.terms.codec.encode_task(tasks.state(seen), tasks.services.server_info_json)
