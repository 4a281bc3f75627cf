"""Timing out a request when the server reports no progress for too long; each report restarts the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import trio

from ..errors import RequestTimeout
from ..runtime import Slot
from ..types import ProgressNotificationParams

T = TypeVar("T")


OnProgress: TypeAlias = Callable[[ProgressNotificationParams], None]


@dataclass(slots=True, eq=False)
class IdleTimeout:
    """Waits for the answer to one request as long as progress is reported.

    Pass it as the request's `on_progress`, and the `set` of `settled` as the `on_settled` of its slot.

    Args:
        seconds: how long the server may go without a report.
        on_progress: called with each report as well.
        is_answering: returns whether this client is answering a question of the server. The server may be waiting for that
            answer, so the timeout is extended.

    Attributes:
        settled: set when the slot of the request is settled.
    """

    _seconds: float
    _on_progress: OnProgress | None
    _is_answering: Callable[[], bool]
    settled: trio.Event = field(default_factory=trio.Event)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __call__(self, report: ProgressNotificationParams) -> None:
        self._scope.deadline = trio.current_time() + self._seconds
        if self._on_progress is not None:
            self._on_progress(report)

    async def take(self, slot: Slot[T], method: str) -> T:
        """Wait for the answer and return it.

        Raises:
            RequestTimeout: the server sent neither the answer nor a report within the time.
        """
        # Waits for an event and not in `slot.take`, which gives the slot up when it is cancelled. Here the time may expire many
        # times while the client's own user thinks about a question.
        while not self.settled.is_set():
            self._scope = trio.CancelScope(deadline=trio.current_time() + self._seconds)
            with self._scope:
                await self.settled.wait()
            if self._scope.cancelled_caught and not self._is_answering():
                raise RequestTimeout(f"the server reported no progress of {method} for {self._seconds:g} seconds")
        return await slot.take()
