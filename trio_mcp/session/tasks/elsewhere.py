"""Requests about tasks that another process works on: they read the record of the task, and write letters to that process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ...errors import LimitExceeded, PeerError, RemoteProtocolError
from ...storage import StoreError
from ...types import (
    CreateMessageResult,
    ElicitRequestURLParams,
    ElicitResult,
    JsonValue,
    ListRootsResult,
    Model,
)
from ..calls.asks_rounds import decoded_answer
from ..calls.facts import Question, RequestFacts
from ..calls.failures import store_failure
from ..calls.legs import OpenQuestion
from .mail import MAIL_KIND, Letter, Rejection, remove, send, wait_taken
from .record import TaskRecord, shown_questions, stored_key
from .tasks import SeenTask, Tasks, found

ANSWER_SECONDS: Final = 2.0
"""For how long an answer waits until the process of the task has taken it. It will be taken, as it is stored."""

CANCEL_SECONDS: Final = 10.0
"""For how long a cancel waits until the process of the task has ended it."""

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at a task whose result a request waits for."""


@dataclass(slots=True, eq=False)
class AskedElsewhere:
    """A task of another process, for a request here that waits for its result and asks what it asks (`Asking`)."""

    _tasks: Tasks
    _facts: RequestFacts
    record: TaskRecord
    is_open: bool = field(default=True, init=False)
    asker: object = field(default=None, init=False)
    questions: Mapping[str, OpenQuestion] = field(init=False)

    def __post_init__(self) -> None:
        self.questions = asked_by(self.record)

    async def wait_change(self) -> None:
        """Wait until it may have changed, and read it; a store that fails has not changed it."""
        await trio.sleep(LOOK_SECONDS)
        try:
            seen = await found(self._tasks, self._facts, self.record.id)
        except LimitExceeded:
            return
        self.is_open = seen.open is None and seen.record.outcome is None
        self.record, self.questions = seen.record, asked_by(seen.record)

    def wake(self) -> None:
        """Do nothing: only the one request looks at this."""

    async def answer(self, answers: Mapping[str, Model | Exception]) -> None:
        """Send answers, or what a client answered instead, to the process that works on the task.

        Raises:
            LimitExceeded: the store fails.
        """
        key, letters = stored_key(self.record), list[Letter]()
        for question, answer in answers.items():
            if isinstance(answer, Model):
                letters.append(Letter(key, question, answer.wire(), self._facts.size))
            elif isinstance(answer, PeerError | RemoteProtocolError):
                letters.append(Letter(key, question, rejection=rejection_of(answer)))
        if letters:
            await deliver(self._tasks, self._facts, self.record, letters)

    def left_alone(self) -> None:
        """Do nothing: the process of the task looks after its questions."""


def rejection_of(error: PeerError | RemoteProtocolError) -> Rejection:
    """Return what an error of a client says, for a letter."""
    return Rejection(error.code, error.message if isinstance(error, PeerError) else str(error), error.data)


def asked_by(record: TaskRecord) -> Mapping[str, OpenQuestion]:
    """Return the open questions of a record, as a call asks them."""
    shown = shown_questions(record).items()
    return {
        key: OpenQuestion(question_of(method, params), "", (order,))
        for order, (key, (method, params)) in enumerate(shown)
    }


def question_of(method: str, params: Model) -> Question[Model]:
    """Return a question of these params, with what a client must declare to be asked it."""
    match method:
        case "elicitation/create":
            mode = "url" if isinstance(params, ElicitRequestURLParams) else "form"
            return Question("elicit", method, params, ElicitResult, (f"elicitation.{mode}",))
        case "sampling/createMessage":
            return Question("sample", method, params, CreateMessageResult, ("sampling",))
        case _:
            return Question("roots", method, params, ListRootsResult, ("roots",))


async def answer_elsewhere(tasks: Tasks, facts: RequestFacts, seen: SeenTask, given: Mapping[str, JsonValue]) -> None:
    """Send answers to the process that works on a task; return when it has taken them, or they are stored for it.

    Raises:
        RemoteProtocolError: -32602, an answer is malformed; none was sent.
        LimitExceeded: the store fails.
    """
    key, codec = stored_key(seen.record), facts.terms.codec
    letters = [
        Letter(key, asked.key, decoded_answer(codec, asked.key, asked.method, given[asked.key]).wire(), facts.size)
        for asked in seen.record.asked
        if asked.key in given
    ]
    if letters:
        await deliver(tasks, facts, seen.record, letters)


async def deliver(tasks: Tasks, facts: RequestFacts, record: TaskRecord, letters: Sequence[Letter]) -> None:
    """Send letters to the process that works on a task; return when it has taken them, or they are stored for it.

    Raises:
        LimitExceeded: the store fails.
    """

    async def are_taken() -> bool:
        left = [each for each in letters if await tasks.store.read(MAIL_KIND, each.key) is not None]
        if left and (await found(tasks, facts, record.id)).record.outcome is not None:
            await remove(tasks.store, left)
            return True
        return not left

    try:
        await send(tasks.store, letters)
        tasks.services.on_mail()
        await wait_taken(are_taken, ANSWER_SECONDS)
    except StoreError as error:
        raise store_failure(tasks.services.records, error) from None


async def cancel_elsewhere(tasks: Tasks, facts: RequestFacts, task_id: str, seen: SeenTask) -> SeenTask:
    """Let the process that works on a task cancel it; return the task when it is over, or is worked on here.

    Raises:
        LimitExceeded: it is not over after `CANCEL_SECONDS`, or the store fails.
    """
    letter = Letter(stored_key(seen.record))

    async def is_over() -> bool:
        nonlocal seen
        seen = await found(tasks, facts, task_id)
        return seen.open is not None or seen.record.outcome is not None

    try:
        await send(tasks.store, [letter])
        tasks.services.on_mail()
        if not await wait_taken(is_over, CANCEL_SECONDS):
            raise LimitExceeded("another process of this server cancels the task; look at its state in a moment")
        await remove(tasks.store, [letter])
    except StoreError as error:
        raise store_failure(tasks.services.records, error) from None
    return seen
