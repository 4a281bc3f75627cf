"""A call that has become a task, as all processes know it: by a record, which has the answer to its request.

The record is written together with the task, and only where there is none. So one task comes of a call, also if its request has
come to several processes that live, or to the next one after a crash: the others answer with the task that there is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from ...protocol.jsonrpc import Encoded
from ...protocol.strict_json import dumps
from ...storage import Change, Put, Record, Store, StoreError, UnreadableRecord
from ..replies import LegOutcome
from .record import KIND, is_taken_back

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
