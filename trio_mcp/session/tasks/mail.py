"""Answers and cancels of a task that come to another process than the one that works on it: it gets them through the store."""

# A letter is a record, under a key that begins with that of its task: one for each question, and one for a cancel. So there are
# never more of them than open questions, and the first answer counts.
#
#     the process that was asked     writes the letter, if the record of the task is the one that it has read: a process that has
#                                    taken the task over since then could have looked for letters before. Then it waits
#     the process of the task        looks for letters when it gets a notice, and twice a second while it works on tasks. An
#                                    answer goes into the log of the call in the write that removes its letter; a cancel stays
#                                    until the task is over
#     the process of the task ends   the one that takes the task over finds the letter, and takes it before an answer that comes
#                                    to itself: the letter may have been acknowledged
#     the task is over               the process that was asked removes its letters; what is left expires with the task

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import trio

from ...base.named_tuples import NamedTuple
from ...errors import LimitExceeded, PeerError, QuestionRejected
from ...protocol.strict_json import dumps
from ...runtime import Supervisor
from ...storage import Expect, Put, Record, Remove, Store, StoreConflict, StoreError
from ...types import JsonObject, JsonValue, Model
from ..calls.asks_requests import EXPECTED
from ..calls.services import CallServices
from .open_task import OpenTask
from .record import KIND, TaskRecord, stored_key

MAIL_KIND: Final = "task-mail"
"""The kind of the records in a store."""

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks for letters."""

WAIT_SECONDS: Final = 0.25
"""Seconds between two looks whether a letter has been taken."""

PAGE: Final = 100
"""Letters that are read at once."""

ATTEMPTS: Final = 5
"""How often the record of a task may change while a letter is written."""

CHANGES: Final = "the task changes at this moment; send the request again"


class Rejection(NamedTuple):
    """The error that a client has answered a question with."""

    code: int
    message: str
    data: JsonValue = None


class Letter(NamedTuple):
    """An answer, or a cancel.

    Attributes:
        task: the key of the task's record.
        question: the key of the question; None for a cancel.
        answer: in the shape of the newest revision; None for a cancel, or a rejection.
        size: bytes of the answer as it was received.
        rejection: what the client has sent in place of an answer; None if it is one.
    """

    task: str
    question: str | None = None
    answer: JsonObject | None = None
    size: int = 0
    rejection: Rejection | None = None

    @property
    def key(self) -> str:
        """The key of its record. A question's is a digest: any text may name a question."""
        name = "cancel" if self.question is None else hashlib.sha256(self.question.encode()).hexdigest()[:32]
        return f"{self.task}-{name}"

    def record(self, expires_at: float) -> Record:
        """Return it as a record, which is only made where there is none yet."""
        # Without a rejection as earlier versions of this package have it.
        said: list[JsonValue] = [self.question, self.answer, self.size]
        if self.rejection is not None:
            said.append([*self.rejection])
        return Record(MAIL_KIND, self.key, dumps(said), "", expires_at)

    @classmethod
    def read(cls, record: Record) -> Letter:
        """Read a record. Raises `StoreError` for one that another version of this package wrote."""
        try:
            question, answer, size, *rest = cast("list[Any]", json.loads(record.value))
            return cls(task_of(record), question, answer, size, Rejection(*rest[0]) if rest else None)
        except (TypeError, ValueError) as error:
            raise StoreError(f"an answer to a task is not one of this version: {error}") from None


def task_of(record: Record) -> str:
    """Return the key of the task that a letter is for."""
    return record.key.rpartition("-")[0]


# at the process that was asked


async def send(store: Store, letters: Sequence[Letter]) -> None:
    """Write letters for one task, unless it is over or gone; those that are there already stay.

    Raises:
        LimitExceeded: the record of the task changes all the time; the letters were not written.
        StoreError: whatever the store raises.
    """
    for _ in range(ATTEMPTS):
        task = await store.read(KIND, letters[0].task)
        if task is None or TaskRecord.decode(task.value).outcome is not None:
            return
        new = [letter for letter in letters if await store.read(MAIL_KIND, letter.key) is None]
        if not new:
            return
        puts = [Put(letter.record(task.expires_at)) for letter in new]
        try:
            await store.write([Expect(KIND, task.key, task.version), *puts])
        except StoreConflict:
            continue
        return
    raise LimitExceeded(CHANGES)


async def wait_taken(is_taken: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Look every `WAIT_SECONDS` whether something is so; return False if it is not after that time."""
    until = trio.current_time() + seconds
    while not await is_taken():
        if trio.current_time() >= until:
            return False
        await trio.sleep(WAIT_SECONDS)
    return True


async def remove(store: Store, letters: Sequence[Letter]) -> None:
    """Remove letters of a task that is over. Raises `StoreError`."""
    await store.write([Remove(MAIL_KIND, letter.key) for letter in letters])


# at the process of the task


class Recipients(Protocol):
    """The tasks that are worked on in this process."""

    services: CallServices
    store: Store

    def begin_cancel(self, task: OpenTask) -> None:
        """Cancel a task, whose end is written soon."""

    def __iter__(self) -> Iterator[OpenTask]: ...

    def __len__(self) -> int: ...


@dataclass(slots=True, eq=False)
class Mailbox:
    """Takes the letters for the tasks that are worked on here."""

    _tasks: Recipients
    _is_looking: bool = field(default=False, init=False)
    _wakened: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot, init=False)

    def wake(self) -> None:
        """Look at once: there may be letters."""
        self._wakened.unpark_all()

    def look(self, supervisor: Supervisor) -> None:
        """Look for letters from now on, until no task is worked on here."""
        if not self._is_looking:
            self._is_looking = True
            supervisor.spawn(self._look_while_open)

    async def take_earlier(self, task: OpenTask, questions: Iterable[str]) -> None:
        """Take the answers to these questions that were stored before an answer came here.

        Raises:
            StoreError: whatever the store raises; it is not known whether there are any.
        """
        for question in questions:
            record = await self._tasks.store.read(MAIL_KIND, Letter(stored_key(task.record), question).key)
            if record is not None:
                await self._take(task, record)

    async def _look_while_open(self) -> None:
        try:
            while len(self._tasks):
                with trio.move_on_after(LOOK_SECONDS):
                    await self._wakened.park()
                try:
                    await self._take_all()
                except StoreError as error:
                    self._tasks.services.records.log("answers to tasks cannot be read now: %s", error)
        finally:
            self._is_looking = False

    async def _take_all(self) -> None:
        after = ""
        while page := await self._tasks.store.list(MAIL_KIND, after=after, limit=PAGE):
            recipients = {stored_key(task.record): task for task in self._tasks}
            for record in page:
                task = recipients.get(task_of(record))
                if task is not None and task.version and not task.is_over:
                    await self._take(task, record)
            after = page[-1].key

    async def _take(self, task: OpenTask, record: Record) -> None:
        """Take a letter; one that cannot be taken now stays for the next look, and others are taken."""
        try:
            letter = Letter.read(record)
            if letter.question is None:
                self._tasks.begin_cancel(task)
            elif task.work is not None and not task.may_ask_again(letter.question):
                # Also if it is asked no more: what came before has to be recorded before its letter is removed.
                await task.work.take_answers(answers_in(letter, task), letter.size, [Remove(MAIL_KIND, letter.key)])
        except (LimitExceeded, StoreError) as error:
            self._tasks.services.records.log("an answer to a task is not taken yet: %s", error)


def answers_in(letter: Letter, task: OpenTask) -> Mapping[str, Model | Exception]:
    """Return the answer in a letter, or the error in its place, by its key; nothing if the question is not open.

    Raises:
        StoreError: it is no answer to this question; another version of this package wrote it.
    """
    asked = None if letter.question is None else task.questions.get(letter.question)
    if asked is None or letter.question is None:
        return {}
    if letter.rejection is not None:
        expected = EXPECTED[asked.question.kind]
        return {letter.question: QuestionRejected(expected, PeerError(*letter.rejection))}
    try:
        return {letter.question: asked.question.answer_type.model_validate(letter.answer)}
    except ValueError as error:
        raise StoreError(f"an answer to a task is not one of this version: {error}") from None
