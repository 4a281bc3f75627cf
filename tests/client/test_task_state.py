"""Asking for the state of a task while the server announces its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio

from trio_mcp.client.known_task import KnownTask
from trio_mcp.client.link import Link
from trio_mcp.client.tasks.watch import ask_state
from trio_mcp.types import DetailedTask, GetTaskResult, InputRequest, Model

TIME = "2026-11-24T00:00:00Z"


def state(kind: type[DetailedTask], status: str, questions: dict[str, InputRequest] | None = None) -> DetailedTask:
    return kind.model_construct(
        task_id="t", status=status, created_at=TIME, last_updated_at=TIME, ttl_ms=None, input_requests=questions
    )


class Answering:
    """A connection that answers with a state, after it has called `meanwhile`."""

    def __init__(self, answer: DetailedTask, meanwhile: Callable[[], None]) -> None:
        self._answer = answer
        self._meanwhile = meanwhile

    async def request(self, *_: object, **__: object) -> Model:
        await trio.lowlevel.checkpoint()
        self._meanwhile()
        return self._answer


def asked() -> dict[str, InputRequest]:
    return {"q": cast("InputRequest", object())}


async def test_an_answer_does_not_undo_what_was_announced_while_it_was_on_its_way() -> None:
    known = KnownTask("t", has_outcome=True)
    known.take(state(DetailedTask, "working"))
    link = Answering(
        state(GetTaskResult, "working"), lambda: known.take(state(DetailedTask, "input_required", asked()))
    )
    assert not await ask_state(cast("Link", link), known)
    assert known.newest.status == "input_required"
    assert known.questions.keys() == {"q"}


async def test_an_answer_is_taken_if_nothing_else_came() -> None:
    known = KnownTask("t", has_outcome=True)
    link = Answering(state(GetTaskResult, "input_required", asked()), lambda: None)
    assert await ask_state(cast("Link", link), known)
    assert known.questions.keys() == {"q"}
