"""How long a tool waits for the answer to a question of its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import trio

from ..errors import RequestTimeout
from ..runtime import Lane
from ..session import CallPort, Question
from ..types import Model
from .options import check_timeout

T = TypeVar("T", bound=Model)


class Patience(Protocol):
    """Asks, and may give up."""

    def ask(self, call: CallPort, lane: Lane, question: Question[T]) -> Awaitable[T]:
        """Ask the client; see `CallPort.ask`. Raises `RequestTimeout` when patience is over; the question is withdrawn then."""
        ...


class Endless:
    """Waits as long as the call may run. It makes no coroutine of its own: a thousand calls may wait."""

    def ask(self, call: CallPort, lane: Lane, question: Question[T]) -> Awaitable[T]:
        return call.ask(lane, question)


class Limited:
    """Waits for so many seconds from now on, for all attempts at the same question together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = trio.current_time() + seconds

    async def ask(self, call: CallPort, lane: Lane, question: Question[T]) -> T:
        with trio.CancelScope(deadline=self._until):
            return await call.ask(lane, question)
        raise RequestTimeout(
            f"nobody answered {question.method} within {self._seconds:g} seconds; the question was withdrawn"
        )


ENDLESS = Endless()


def patience(seconds: float) -> Patience:
    """For that many seconds from now on; infinity for as long as the call may run.

    Raises:
        TypeError, ValueError: that is no time to wait.
    """
    if seconds == math.inf:
        return ENDLESS
    check_timeout(seconds)
    return Limited(seconds)
