"""What this client knows of the tasks of a server, and the news of them that come on the session (2025-11-25)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from ..errors import RemoteProtocolError
from ..protocol.codec.tasks import MAX_TASK_ID
from ..types import CallToolResult, DetailedTask, InputRequest, Model, Task

ENDED: Final = ("completed", "failed", "cancelled")
"""The states that a task stays in."""

OnNews: TypeAlias = Callable[[DetailedTask], None]
"""Called with the state of a task that a notification brought."""


def check_task_id(task_id: str) -> str:
    """Return the id of a task as a server gave it.

    Raises:
        RemoteProtocolError: it is empty, or longer than `MAX_TASK_ID`.
    """
    if not 0 < len(task_id) <= MAX_TASK_ID:
        raise RemoteProtocolError(
            f"the server gave a task an id of {len(task_id)} characters; it has to have 1 to {MAX_TASK_ID}"
        )
    return task_id


def plain_task(task: Task) -> Task:
    """Return a task as programs get it: without its questions and its outcome, and what the message said of itself."""
    return Task.model_construct(**{name: getattr(task, name) for name in Task.model_fields if name != "meta"})


class KnownTask:
    """The newest known state of one task. Once it is over it stays as it is, whatever the server says later (L-TSK-5).

    Args:
        has_outcome: whether the state of a task that is over says what came of it (the extension).

    Attributes:
        id: its id; empty if the server answered at once, so that there is no task.
        newest: None as long as nothing is known.
        questions: what is asked in that state, by key (the extension).
        details: that state as it came, None if it came without its questions and its outcome.
        outcome: what came of it: the result, or what to raise; None until it is known.
        on_change: called with each change.
        changes: how many there were.
    """

    def __init__(self, task_id: str, *, has_outcome: bool) -> None:
        self.id = task_id
        self._has_outcome = has_outcome
        self.newest: Task | None = None
        self.questions: Mapping[str, InputRequest] = {}
        self.outcome: CallToolResult | Exception | None = None
        self.details: DetailedTask | None = None
        self.on_change: Callable[[], None] | None = None
        self.changes = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_over(self) -> bool:
        """Whether the task has ended, and all that its state can say is known."""
        is_complete = self.details is not None or not self._has_outcome
        return self.newest is not None and self.newest.status in ENDED and is_complete

    def take(self, task: Model) -> None:
        """Note what the server says of the task. Raises `RemoteProtocolError` if it is another one."""
        assert isinstance(task, Task)
        if task.task_id != self.id:
            raise RemoteProtocolError(
                f"the server answered with the task {task.task_id[:64]!r} instead of {self.id[:64]!r}"
            )
        if self.is_over:
            return
        before = (self.newest, self.questions.keys(), self.is_over)
        self.newest = plain_task(task)
        self.details = task if isinstance(task, DetailedTask) else None
        asked = None if self.details is None else self.details.input_requests
        self.questions = (asked or {}) if task.status == "input_required" else {}
        if before == (self.newest, self.questions.keys(), self.is_over):
            return
        self.changes += 1
        if self.on_change is not None:
            self.on_change()
        self.wake()

    def end(self, outcome: CallToolResult | Exception) -> None:
        """Note what came of the task; the first outcome stays."""
        if self.outcome is None:
            self.outcome = outcome
        self.wake()

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self._waiting.unpark_all()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._waiting.park()


class TaskNews:
    """Who wants to hear of which task, among the notifications that come on the session."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[OnNews]] = {}

    def add(self, task_id: str, on_news: OnNews) -> None:
        self._listeners.setdefault(task_id, []).append(on_news)

    def remove(self, task_id: str, on_news: OnNews) -> None:
        left = [each for each in self._listeners.pop(task_id) if each != on_news]
        if left:
            self._listeners[task_id] = left

    def dispatch(self, task: DetailedTask) -> None:
        """Pass on the state of a task that a notification brought."""
        for on_news in self._listeners.get(task.task_id, ()):
            on_news(task)
