"""The place of a call among the running calls of its tool, where a question parks it."""

from __future__ import annotations

from typing import TypeVar

import trio

from ...runtime import Actor
from ...types import Model
from .facts import Question

T = TypeVar("T", bound=Model)


def claim_place(actor: Actor, question: Question[T]) -> None:
    """Hold a place of the tool, unless the call ends or `AskTimeout` waits for one: the body goes on, though maybe parked.

    Args:
        question: the one that got no answer.
    """
    place, timeout = actor.place, question.timeout
    if place is None or actor.scope.cancel_called:
        return
    if timeout is None or trio.current_time() < timeout.deadline:
        place.claim()
