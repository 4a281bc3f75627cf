"""Giving up on an answer when nothing is heard about it: each report of progress starts the time anew (features row 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import trio

from ..errors import RequestTimeout
from ..runtime import Slot
from ..types import ProgressNotificationParams

T = TypeVar("T")


OnProgress: TypeAlias = Callable[[ProgressNotificationParams], None]


class IdleTimer:
    """Waits for the answer to one request while there are signs of life. It is to be called with each report of progress.

    Args:
        seconds: how long the server may be silent.
        on_progress: called with each report as well.
        answering: whether a question of the server is being answered here. Then the server may be waiting for us, so its silence
            says nothing.
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
        """The answer.

        Raises:
            RequestTimeout: nothing was heard for too long.
        """
        while True:
            self._scope = trio.CancelScope(deadline=trio.current_time() + self._seconds)
            with self._scope:
                return await slot.take()
            if not self._answering():
                raise RequestTimeout(f"the server reported no progress of {method} for {self._seconds:g} seconds")
