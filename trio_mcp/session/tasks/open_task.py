"""A task whose work runs in this process: its record, its open questions, and who waits for a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import trio

from ...runtime import Actor, CancelReason
from ...types import Model
from ..calls.facts import SessionFacts
from ..calls.legs import OpenQuestion
from .record import TaskOutcome, TaskRecord


class TaskWork(Protocol):
    """The call that a task runs."""

    actor: Actor

    def has_answer(self, key: str) -> bool:
        """Return whether the question has its answer already."""
        ...

    async def take_answers(self, answers: Mapping[str, Model | Exception], size: int) -> None:
        """Hand answers of `size` bytes in total to the lanes that asked."""


class TaskHome(Protocol):
    """What a task tells of itself."""

    def clock(self) -> float:
        """Return the time in Unix seconds."""
        ...

    def questions_changed(self, task: OpenTask) -> None:
        """A question was asked, answered or withdrawn."""

    def set_message(self, task: OpenTask, message: str) -> None:
        """The author says how the work stands."""

    async def answer(self, task: OpenTask, answers: Mapping[str, Model | Exception], size: int = 0) -> None:
        """Hand answers, or what a client answered instead, to the lanes that asked."""

    def work_ended(self, task: OpenTask, outcome: TaskOutcome, reason: CancelReason | None) -> None:
        """The work is over; `reason` says why it was cancelled, None if it was not."""


@dataclass(slots=True, eq=False, repr=False)
class OpenTask:
    """A task that is worked on here.

    Attributes:
        record: its newest state, which may not be committed yet.
        home: is told what changes.
        session: the legacy session that created it, if one did.
        shown: the state that was committed last; nobody is shown another (commit, then wake).
        version: of the committed record in the store; 0 before it is there.
        questions: the open questions by key.
        work: the call; None before it has begun and after its end.
        asker: who asks its questions: the one call of `tasks/result` that does; None if there is none.
        is_resuming: its work began in an earlier process, and has not waited for answers in this one yet.
        is_forgotten: nothing is shown of it from here any more.
        is_unsaved: `record` is newer than what is in the store.
        is_saving: a task of the supervisor saves it.
    """

    record: TaskRecord
    home: TaskHome
    session: SessionFacts | None = None
    shown: TaskRecord = field(init=False)
    version: int = 0
    questions: dict[str, OpenQuestion] = field(default_factory=dict)
    work: TaskWork | None = None
    asker: object = None
    is_resuming: bool = False
    is_forgotten: bool = False
    is_unsaved: bool = False
    is_saving: bool = False
    _changed: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __post_init__(self) -> None:
        self.shown = self.record

    @property
    def is_over(self) -> bool:
        """Whether its outcome is settled, though maybe not committed."""
        return self.record.outcome is not None

    @property
    def is_open(self) -> bool:
        """Whether more is to be shown of it from here: no outcome has been committed."""
        return self.shown.outcome is None and not self.is_forgotten

    def may_ask_again(self, key: str) -> bool:
        """Return whether this may be a question of an earlier process that this one comes to later."""
        if not self.is_resuming or key in self.questions:
            return False
        return self.work is None or not self.work.has_answer(key)

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
