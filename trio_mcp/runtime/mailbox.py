"""Where the answers to what an actor asks arrive.

An actor that asks a question opens a *slot* under the question's key and waits on it. Whoever receives the answer posts it
under that key. A slot takes one answer and is gone once it was taken or given up, so an answer can only reach the lane that
asked: a late, repeated or unsolicited answer finds no slot and is counted, not delivered. The mailbox knows nothing of
wires, ids or sessions; the session decides which key a reply belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

import trio
from outcome import Error, Outcome, Value

from ..errors import LimitExceeded, anew

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """What a mailbox holds and has seen: open slots, answers delivered, and answers that found no slot."""

    open: int
    delivered: int
    dropped: int
    closed: bool


class Mailbox:
    """The keyed, typed, bounded mailbox of one actor."""

    __slots__ = ("_closed", "_delivered", "_dropped", "_limit", "_slots")

    def __init__(self, limit: int = 1024) -> None:
        self._slots: dict[str, Slot[object]] = {}
        self._limit = limit
        self._delivered = 0
        self._dropped = 0
        self._closed: Exception | None = None

    def open(self, key: str, answer_type: type[T], on_settled: Callable[[], None] | None = None) -> Slot[T]:
        """Declare that an answer of `answer_type` is awaited under `key`.

        `on_settled` is called once, in the very step in which the slot is answered, failed or given up.

        Raises:
            LimitExceeded: the mailbox already has as many open slots as it may.
            ValueError: the key is open already.
        """
        if self._closed is not None:
            raise anew(self._closed)
        if key in self._slots:
            raise ValueError(f"the question {key!r} is already open")
        self.admit()
        slot = Slot(self, key, answer_type, on_settled)
        self._slots[key] = cast("Slot[object]", slot)
        return slot

    def admit(self, queued: int = 0) -> None:
        """Refuse one more question where there are too many; `queued` are those of its owner that will only be opened later.

        Raises:
            LimitExceeded: there are as many as there may be.
        """
        if len(self._slots) + queued >= self._limit:
            raise LimitExceeded(f"this call already has {self._limit} open questions, which is the limit")

    def post(self, key: str, answer: object) -> bool:
        """Deliver an answer; False when nobody waits for it (it is counted and dropped)."""
        slot = self._slots.pop(key, None)
        if slot is None:
            self._dropped += 1
            return False
        self._delivered += 1
        slot.settle(slot.checked(answer))
        return True

    def fail(self, key: str, error: Exception) -> bool:
        """Raise `error` in the lane that waits under `key`; False when nobody does."""
        slot = self._slots.pop(key, None)
        if slot is None:
            self._dropped += 1
            return False
        slot.settle(Error(error))
        return True

    def close(self, error: Exception) -> None:
        """Raise `error`, each time anew, in every waiting lane, and in every later attempt to open a slot."""
        self._closed = error
        for key in list(self._slots):
            self.fail(key, anew(error))  # a shared one would gather the frames of all of them, and keep them

    def withdraw(self, slot: Slot[T]) -> None:
        """Forget a slot whose lane gave up; a later answer to it is dropped."""
        if self._slots.get(slot.key) is slot:
            del self._slots[slot.key]

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    def statistics(self) -> MailboxStatistics:
        return MailboxStatistics(len(self._slots), self._delivered, self._dropped, self._closed is not None)

    def __repr__(self) -> str:
        return f"<Mailbox open={list(self._slots)} delivered={self._delivered} dropped={self._dropped}>"


class Slot(Generic[T]):
    """One awaited answer. `await slot.take()` waits for it; `slot.give_up()` forgets it."""

    __slots__ = ("_mailbox", "_on_settled", "_outcome", "_task", "_type", "key")

    def __init__(self, mailbox: Mailbox, key: str, answer_type: type[T], on_settled: Callable[[], None] | None) -> None:
        self.key = key
        self._mailbox = mailbox
        self._type = answer_type
        self._on_settled = on_settled
        self._outcome: Outcome[T] | None = None
        self._task: trio.lowlevel.Task | None = None

    async def take(self) -> T:
        """Wait for the answer and return it; raises what `fail` or `close` was given.

        A cancel leaves the slot open, so that `take` may be called again; `give_up` ends it.

        Raises:
            trio.BusyResourceError: another task waits for this answer already.
            trio.ClosedResourceError: the slot was given up.
        """
        if self._task is not None:
            raise trio.BusyResourceError(f"another task waits for the answer to {self.key!r} already")
        if self._outcome is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        else:
            await trio.lowlevel.checkpoint()
        return self._taken().unwrap()

    def _taken(self) -> Outcome[T]:
        """The outcome, which the slot forgets: an error knows the frames that it passes, and one of them knows the slot."""
        assert self._outcome is not None
        outcome, self._outcome = self._outcome, cast("Outcome[T]", TAKEN)
        return outcome

    def give_up(self) -> None:
        """Stop waiting for good: an answer that still comes is dropped. Harmless when the answer is there already."""
        self._mailbox.withdraw(self)
        if self._outcome is None:
            self.settle(Error(trio.ClosedResourceError(f"the question {self.key!r} was given up")))

    def checked(self, answer: object) -> Outcome[T]:
        """The answer as an outcome; a TypeError for the waiter when it is not of the type that was asked for."""
        if isinstance(answer, self._type):
            return Value(answer)
        message = f"the answer to {self.key!r} is {type(answer).__name__}, expected {self._type.__name__}"
        return Error(TypeError(message))

    def settle(self, outcome: Outcome[T]) -> None:
        """The slot's end, once: the mailbox has already forgotten it."""
        self._outcome = outcome
        task, self._task = self._task, None
        self._announce()
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _announce(self) -> None:
        callback, self._on_settled = self._on_settled, None
        if callback is not None:
            callback()

    def _abort(self, _raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


TAKEN: Final[Outcome[None]] = Value(None)
"""The outcome of a slot whose answer was taken: it raises `outcome.AlreadyUsedError`."""
TAKEN.unwrap()
