"""A task whose work runs in this process: its record, its open questions, and who waits for a change."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

import trio

from ...base.named_tuples import NamedTuple
from ...protocol.jsonrpc import Encoded
from ...protocol.strict_json import dumps
from ...runtime import Actor, CancelReason
from ...storage import Change, Expect, Put, Record, Store, StoreError, UnreadableRecord
from ...types import Model
from ..calls.facts import RequestFacts, SessionFacts
from ..calls.legs import OpenQuestion
from ..recovery.stored_journal import Holding
from ..replies import LegOutcome
from .record import KIND, TaskOutcome, TaskRecord, is_taken_back, stored_key


class TaskWork(Protocol):
    """The call that a task runs."""

    actor: Actor
    facts: RequestFacts

    def has_answer(self, key: str) -> bool:
        """Return whether the question has its answer already."""
        ...

    async def take_answers(
        self, answers: Mapping[str, Model | Exception], size: int, along: Sequence[Change] = ()
    ) -> None:
        """Hand answers of `size` bytes in total to the lanes that asked; they are recorded together with other changes."""


class TaskHome(Protocol):
    """What a task tells of itself."""

    def clock(self) -> float:
        """Return the time in Unix seconds."""
        ...

    def questions_changed(self, task: OpenTask) -> None:
        """A question was asked, answered or withdrawn."""

    def left_alone(self, task: OpenTask) -> None:
        """A caller has stopped waiting for its result, and its questions go out there no more."""

    def set_message(self, task: OpenTask, message: str) -> None:
        """The author says how the work stands."""

    async def answer(self, task: OpenTask, answers: Mapping[str, Model | Exception], size: int = 0) -> None:
        """Hand answers, or what a client answered instead, to the lanes that asked."""

    async def catch_up(self, task: OpenTask) -> bool:
        """Take the version of its record from the store; return False if another process has it. Raises `StoreError`."""
        ...

    def taken_over(self, task: OpenTask) -> None:
        """Another process has it: stop working on it."""

    def work_ended(self, task: OpenTask, outcome: TaskOutcome, reason: CancelReason | None) -> None:
        """The work is over; `reason` says why it was cancelled, None if it was not."""


@dataclass(slots=True, eq=False, repr=False)
class OpenTask:
    """A task that is worked on here.

    Attributes:
        record: its newest state, which may not be committed yet.
        home: is notified of changes.
        session: the legacy session that created it, if one did.
        caller: who created it, for the limits that callers share; see `Account`.
        shown: the state that was committed last, the only one that clients see (commit, then wake).
        version: of the committed record in the store; 0 before it is there.
        questions: the open questions by key.
        work: the call; None before it has begun and after its end.
        asker: who asks its questions: the one call of `tasks/result` that does, or `OwnAsking`; None if there is none.
        asked_unattended: the keys of those that were sent on the session's channel; none is sent there twice.
        is_unattended: it waits for a caller to fetch its questions (`Unattended`).
        was_adopted: another process has worked on it: answers may have been stored for it before this one did.
        is_resuming: its work began in an earlier process, and has not waited for answers in this one yet.
        is_forgotten: nothing is shown of it from here any more.
        is_unsaved: `record` is newer than what is in the store.
        is_saving: a task of the supervisor saves it.
        said: how many status messages its body has set.
        shown_said: how many of them had been set when the state was made that is shown.
    """

    record: TaskRecord
    home: TaskHome
    session: SessionFacts | None = None
    caller: Hashable | None = None
    shown: TaskRecord = field(init=False)
    version: int = 0
    questions: dict[str, OpenQuestion] = field(default_factory=dict)
    work: TaskWork | None = None
    asker: object = None
    asked_unattended: frozenset[str] = frozenset()
    is_unattended: bool = False
    was_adopted: bool = False
    is_resuming: bool = False
    is_forgotten: bool = False
    is_unsaved: bool = False
    is_saving: bool = False
    said: int = 0
    shown_said: int = 0
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
            self.record = self.record._replace(outcome=outcome, updated_at=now, call=None, asked=())

    async def wait_said(self) -> None:
        """Wait until the status messages are shown that its body has set so far: what it asks next comes after them."""
        said = self.said
        while self.shown_said < said and self.is_open:
            await self.wait_change()

    async def answer(self, answers: Mapping[str, Model | Exception]) -> None:
        """Hand answers, or what a client answered instead, to the lanes that asked. Raises `LimitExceeded`."""
        await self.home.answer(self, answers)

    def left_alone(self) -> None:
        """Note that its questions go out on a stream no more."""
        self.home.left_alone(self)

    async def wait_change(self) -> None:
        """Wait until something about it changes, or it is forgotten."""
        await self._changed.park()

    def wake(self) -> None:
        """Wake all who wait for a change."""
        self._changed.unpark_all()

    def __repr__(self) -> str:
        return f"<OpenTask {self.record.tool} {'over' if self.is_over else 'open'} questions={len(self.questions)}>"


# The record of a task, as what says that this process runs its call: the log of the call is written with its version.


@dataclass(frozen=True, slots=True)
class HeldTask(Holding):
    """Says that this process runs a task."""

    _task: OpenTask

    def held(self) -> Sequence[Change]:
        return [Expect(KIND, stored_key(self._task.record), self._task.version)]

    async def renew(self) -> bool:
        return await self._task.home.catch_up(self._task)

    def lost(self) -> None:
        self._task.home.taken_over(self._task)


# A call that has become a task, as all processes know it: by a record, which has the answer to its request.
#
# The record is written together with the task, and only where there is none. So one task comes of a call, also if its request
# has
# come to several processes that live, or to the next one after a crash: the others answer with the task that there is.

BECAME_KIND: Final = "became"
"""The kind of the records in a store. Their keys are those of the logs of the calls."""


class Became(NamedTuple):
    """What is known of a call that has become a task.

    Attributes:
        answer: to its request.
        task: the key of the task's record.
        until: when the time of the task is over, in Unix seconds.
    """

    answer: Encoded
    task: str
    until: float

    def encode(self) -> bytes:
        return dumps([self.answer.raw.decode(), self.task, self.until])

    @classmethod
    def decode(cls, data: bytes) -> Became:
        """Read what `encode` wrote. Raises `StoreError` for anything else: another version of this package wrote it."""
        try:
            answer, task, until = cast("tuple[str, str, float]", json.loads(data))
            return cls(Encoded(answer.encode()), task, until)
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"the record of a call is not one of this version: {error}") from None


@dataclass(frozen=True, slots=True)
class OneTask:
    """Lets one task come of a call: writing a second one is a conflict.

    Args:
        call: the key of the log of the call.
        expires_at: when its request comes no more, in Unix seconds.
        task: the record of the task.
        version: of the record that it replaces, of a task that was taken back; 0 if there is none.
    """

    _call: str
    _expires_at: float
    _task: Record
    _version: int = 0

    def creating(self, outcome: LegOutcome) -> Sequence[Change]:
        """Return the changes that store the answer."""
        assert isinstance(outcome, Encoded)
        became = Became(outcome, self._task.key, self._task.expires_at)
        return [Put(Record(BECAME_KIND, self._call, became.encode(), "", self._expires_at, self._version))]


class EarlierTask(NamedTuple):
    """The task that a call has become.

    Attributes:
        answer: to its request; None if there is no such task, or it was taken back.
        version: of the record; 0 if there is none.
    """

    answer: Encoded | None
    version: int


NOT_YET: Final = EarlierTask(None, 0)


async def find_answer(store: Store, call: str, now: float) -> EarlierTask:
    """Return the answer to the request of a call that has become a task, in whichever process.

    Args:
        call: the key of the log of the call.
        now: in Unix seconds.

    Raises:
        StoreError: whatever the store raises.
    """
    found = await store.read(BECAME_KIND, call)
    if found is None:
        return NOT_YET
    became = Became.decode(found.value)
    try:
        task = await store.read(KIND, became.task)
        was_taken_back = became.until > now and (task is None or is_taken_back(task))
    except UnreadableRecord:
        was_taken_back = False
    return EarlierTask(None if was_taken_back else became.answer, found.version)
