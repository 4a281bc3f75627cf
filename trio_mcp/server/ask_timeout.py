"""The time limit of one question, over all attempts to get a valid answer to it."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TypeVar

import trio

from ..errors import RequestTimeout
from ..runtime import Lane
from ..session import Call, Question
from ..session.calls.facts import QuestionTimeout
from ..types import Model
from .options import check_timeout

T = TypeVar("T", bound=Model)


class AskTimeout:
    """Asks with a deadline, which begins when this is made and is shared by all attempts.

    Args:
        seconds: the limit.

    Raises:
        TypeError, ValueError: `seconds` is not a positive number.
    """

    def __init__(self, seconds: float) -> None:
        check_timeout(seconds)
        self.seconds = seconds
        # A point in time and not a duration: a repeated question must not start the clock again.
        self.deadline = trio.current_time() + seconds

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:
        """Ask the client, as `Call.ask` does.

        Raises:
            RequestTimeout: there was no answer in time; the question was withdrawn.
        """
        text = f"no answer to {question.method} within {self.seconds:g} seconds; it was withdrawn"
        with trio.CancelScope(deadline=self.deadline):
            return await call.ask(lane, question._replace(timeout=QuestionTimeout(self.deadline, text)))
        # The call may have been parked, and its place given to another call of its tool.
        if call.actor.place is not None:
            await call.actor.place.enter()
        raise RequestTimeout(text)


def ask_timeout(seconds: float) -> AskTimeout | None:
    """Return the limit of a question, which begins now; None for infinity."""
    return None if seconds == math.inf else AskTimeout(seconds)


def ask_within(call: Call, lane: Lane, question: Question[T], limit: AskTimeout | None) -> Awaitable[T]:
    """Ask the client, with or without a limit."""
    # Not `async def`: each coroutine more is half a kilobyte of a call that waits, and thousands may wait.
    return call.ask(lane, question) if limit is None else limit.ask(call, lane, question)
