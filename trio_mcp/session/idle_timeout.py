"""Timing out a request when the server reports no progress for too long; each report restarts the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import trio

from ..errors import RequestTimeout
from ..runtime import Slot
from ..types import ProgressNotificationParams

T = TypeVar("T")


OnProgress: TypeAlias = Callable[[ProgressNotificationParams], None]


class IdleTimeout:
    """Waits for the answer to one request as long as reports of progress keep coming; pass it as the request's `on_progress`.

    Args:
        seconds: how long the server may be silent.
        on_progress: called with each report as well.
        answering: tells whether this client is answering a question of the server. The server may be waiting for that answer, so
            the timeout is extended.
    """

    def __init__(self, seconds: float, on_progress: OnProgress | None, answering: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._on_progress = on_progress
        self._answering = answering
        self._scope = trio.CancelScope()

    def __call__(self, report: ProgressNotificationParams) -> None:
        self._scope.deadline = trio.current_time() + self._seconds
        if self._on_progress is not None:
            self._on_progress(report)

    async def take(self, slot: Slot[T], method: str) -> T:
        """Wait for the answer and return it.

        Raises:
            RequestTimeout: the server sent neither the answer nor a report within the time.
        """
        while True:
            self._scope = trio.CancelScope(deadline=trio.current_time() + self._seconds)
            with self._scope:
                await slot.wait()
            if not self._scope.cancelled_caught:
                return await slot.take()
            if not self._answering():
                raise RequestTimeout(f"the server reported no progress of {method} for {self._seconds:g} seconds")
