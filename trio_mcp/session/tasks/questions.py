"""The questions of a task on the stream of `tasks/result` (2025-11-25): each goes out as a request that names the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from ...errors import Disconnected, LimitExceeded, MalformedAnswer, QuestionRejected
from ...runtime import Lane
from ...types import Model
from ..calls.call import Call
from ..calls.facts import Question
from .open_task import OpenTask

PROMPT: Final = "elicit"
"""The kind of the questions that the user sees."""


async def ask_until_over(task: OpenTask, call: Call, lane: Lane) -> None:
    """Ask what the task asks, in this call, until the task is over. Only one call at a time asks; others wait for the end.

    A cancel withdraws what is open on this stream; it stays open in the task, and the next call asks it again.
    """
    try:
        await _ask_while(task, call, call, lane, {}, lambda: task.is_open)
    finally:
        task.home.left_alone(task)


async def ask_open_ones(
    task: OpenTask, asker: object, call: Call, lane: Lane, asking: dict[str, trio.CancelScope]
) -> None:
    """Ask what the task asks, in this call, until it asks nothing more.

    Args:
        asker: who asks, in `OpenTask.asker`.
        asking: gets what is asked, by key; what has been answered is removed.
    """
    await _ask_while(task, asker, call, lane, asking, lambda: task.is_open and bool(task.questions))


async def _ask_while(
    task: OpenTask,
    asker: object,
    call: Call,
    lane: Lane,
    asking: dict[str, trio.CancelScope],
    goes_on: Callable[[], bool],
) -> None:
    async with trio.open_nursery() as nursery:
        try:
            while goes_on():
                if task.asker in (None, asker):
                    task.asker = asker
                    _ask_new(task, call, lane, nursery, asking)
                await task.wait_change()
        finally:
            if task.asker is asker:
                task.asker = None
                # Another call may ask from now on.
                task.wake()
        nursery.cancel_scope.cancel()


def _ask_new(
    task: OpenTask, call: Call, lane: Lane, nursery: trio.Nursery, asking: dict[str, trio.CancelScope]
) -> None:
    """Ask what is new, and withdraw what was answered elsewhere, or is no longer asked.

    Of those for the user one at a time goes out, as in any call; started together, Trio would send them in any order.
    """
    for key in asking.keys() - task.questions.keys():
        asking.pop(key).cancel()
    at_once = call.services.options.parallel_prompts
    prompting = any(task.questions[key].question.kind == PROMPT for key in asking)
    for key, asked in sorted(task.questions.items(), key=lambda item: item[1].order):
        is_prompt = asked.question.kind == PROMPT and not at_once
        if key not in asking and not (is_prompt and prompting):
            prompting = prompting or is_prompt
            scope = asking[key] = trio.CancelScope()
            params = asked.question.params
            meta = call.facts.terms.codec.related_meta(task.record.id, getattr(params, "meta", None))
            # Its key names it on the stream too, so that an answer which came there before a restart is not given to another one.
            question = asked.question._replace(params=params.model_copy(update={"meta": meta}), name=key)
            nursery.start_soon(_ask, task, key, question, call, lane, scope)


async def _ask(
    task: OpenTask, key: str, question: Question[Model], call: Call, lane: Lane, scope: trio.CancelScope
) -> None:
    answer: Model | Exception
    with scope:
        try:
            answer = await call.ask(lane, question)
        except (QuestionRejected, MalformedAnswer, LimitExceeded) as error:
            answer = error.with_traceback(None)
        except Disconnected:
            return
        try:
            await task.home.answer(task, {key: answer})
        except LimitExceeded:
            if key in task.questions:
                raise
            # The lane has it, and the next write stores it: the stream goes on. Until then a replay asks again.
