"""A task whose work runs in this process: its record, its open questions, and who waits for a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from ...runtime import Actor, CancelReason
from ...types import Model
from ..calls.legs import OpenQuestion
from .record import TaskOutcome, TaskRecord


@dataclass(slots=True, eq=False)
class TaskNews:
    """Where news of the tasks of a legacy session go; `notify` is None when the session has ended."""

    notify: Callable[[str, Model], None] | None = None


class TaskWork(Protocol):
    """The call that a task runs."""

    actor: Actor

    def take_answer(self, key: str, answer: Model, size: int) -> bool:
        """Hand an answer of `size` bytes to the lane that asked; return False if the question is no longer open."""
        ...


class TaskHome(Protocol):
    """What a task tells of itself.

    Attributes:
        clock: the time in Unix seconds.
    """

    clock: Callable[[], float]

    def questions_changed(self, task: OpenTask) -> None:
        """A question was asked, answered or withdrawn."""

    def set_message(self, task: OpenTask, message: str) -> None:
        """The author says how the work stands."""

    def work_ended(self, task: OpenTask, outcome: TaskOutcome, reason: CancelReason | None) -> None:
        """The work is over; `reason` says why it was cancelled, None if it was not."""


@dataclass(slots=True, eq=False, repr=False)
class OpenTask:
    """A task that is worked on here.

    Attributes:
        record: its newest state, which may not be committed yet.
        home: is told what changes.
        news: the legacy session that created it, if one did.
        shown: the state that was committed last; nobody is shown another (commit, then wake).
        version: of the committed record in the store; 0 before it is there.
        questions: the open questions by key.
        work: the call; None before it has begun and after its end.
        is_unsaved: `record` is newer than what is in the store.
        is_saving: a task of the supervisor saves it.
    """

    record: TaskRecord
    home: TaskHome
    news: TaskNews | None = None
    shown: TaskRecord = field(init=False)
    version: int = 0
    questions: dict[str, OpenQuestion] = field(default_factory=dict)
    work: TaskWork | None = None
    is_unsaved: bool = False
    is_saving: bool = False
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __post_init__(self) -> None:
        self.shown = self.record

    @property
    def is_over(self) -> bool:
        """Whether its outcome is settled, though maybe not committed."""
        return self.record.outcome is not None

    def end(self, outcome: TaskOutcome, now: float) -> None:
        """Settle the outcome. The first one counts, whatever the work still does (L-TSK-5)."""
        if not self.is_over:
            self.record = self.record._replace(outcome=outcome, updated_at=now, call=None)

    async def wait_change(self) -> None:
        """Wait until something about it changes, or it is forgotten."""
        await self._changed.park()

    def wake(self) -> None:
        """Wake all who wait for a change."""
        self._changed.unpark_all()

    def __repr__(self) -> str:
        return f"<OpenTask {self.record.tool} {'over' if self.is_over else 'open'} questions={len(self.questions)}>"
