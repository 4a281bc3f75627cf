"""The questions of a task on the stream of `tasks/result` (2025-11-25): each goes out as a request that names the task."""

from __future__ import annotations

from dataclasses import replace
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
    async with trio.open_nursery() as nursery:
        asking: dict[str, trio.CancelScope] = {}
        try:
            while task.is_open:
                if task.asker in (None, call):
                    task.asker = call
                    _ask_new(task, call, lane, nursery, asking)
                await task.wait_change()
        finally:
            if task.asker is call:
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
            question = replace(asked.question, params=params.model_copy(update={"meta": meta}), name=key)
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
        await task.home.answer(task, {key: answer})
