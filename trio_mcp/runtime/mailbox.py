"""Where the answers to an actor's questions arrive.

An actor that asks a question opens a *slot* under the question's key and waits on it. The session posts the answer under that
key. A slot takes one answer and is removed when it is settled or given up, so an answer can only reach the lane that asked. A
late, repeated or unsolicited answer finds no slot and is dropped. The mailbox does not depend on wires, ids or sessions; the
session decides which key a reply belongs to.
"""

# Why not one memory channel per question: a channel is four objects, and its `send` could block or fail. A slot settles in the
# step in which the answer arrives, and runs `on_settled` in that step, so that the lane counts as busy before its task runs (see
# the rules in `actor`).
#
#   slot           event                                 next      in the mailbox
#   -              Mailbox.open                          open      yes
#   open           post, close                           settled   no       on_settled, and the task that takes is woken
#   open           give_up, or `take` is cancelled       settled   no       with ClosedResourceError
#   settled        take                                  taken     no
#   settled        give_up                               settled   no       nothing: an answer that came first wins

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

import trio
from outcome import Error, Outcome, Value

from ..errors import BranchLimit, without_traceback

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Mailbox:
    """The keyed, typed, bounded mailbox of one actor."""

    limit: int = 1024
    """The most open slots."""
    _slots: dict[str, Slot[object]] = field(default_factory=dict)
    _closed: Exception | None = None

    def open(self, key: str, answer_type: type[T], on_settled: Callable[[], None] | None = None) -> Slot[T]:
        """Open a slot for an answer of `answer_type` under `key`.

        `on_settled` is called once, in the same step in which the slot is answered, failed or given up.

        Raises:
            BranchLimit: the mailbox already has as many open slots as allowed.
            ValueError: the key is open already.
        """
        if self._closed is not None:
            raise without_traceback(self._closed)
        if key in self._slots:
            raise ValueError(f"the question {key!r} is already open")
        self.admit()
        slot = Slot(self, key, answer_type, on_settled)
        self._slots[key] = cast("Slot[object]", slot)
        return slot

    def admit(self, queued: int = 0) -> None:
        """Raise if there are too many open questions; `queued` counts those that the owner is going to open later.

        Raises:
            BranchLimit: one more would exceed the limit.
        """
        wanted = len(self._slots) + queued + 1
        if wanted > self.limit:
            why = f"this call already has {self.limit} open questions, which is the limit"
            raise BranchLimit(why, kind="questions", limit=self.limit, used=wanted)

    def post(self, key: str, answer: object) -> bool:
        """Deliver an answer, or raise it in the lane that waits if it is an exception. Return False if none waits."""
        slot = self._slots.pop(key, None)
        if slot is None:
            return False
        slot.settle(slot.checked(answer))
        return True

    def close(self, error: Exception) -> None:
        """Raise a copy of `error` in every waiting lane, and in every later attempt to open a slot."""
        self._closed = error
        for key in list(self._slots):
            # Not the same object for all: an exception collects the frames of every task that raises it, and keeps them alive.
            self.post(key, without_traceback(error))

    def withdraw(self, slot: Slot[T]) -> None:
        """Remove a slot whose lane no longer waits; a later answer to it is dropped."""
        # The key may have been used again: an old slot must not remove a new one.
        if self._slots.get(slot.key) is slot:
            del self._slots[slot.key]

    @property
    def slots(self) -> tuple[Slot[object], ...]:
        """The open slots, oldest first."""
        return tuple(self._slots.values())

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: str) -> bool:
        """Return whether an answer is awaited under this key."""
        return key in self._slots

    def __repr__(self) -> str:
        return f"<Mailbox open={list(self._slots)}>"


class Slot(Generic[T]):
    """One awaited answer. `await slot.take()` waits for it; `slot.give_up()` closes a slot that will not be taken."""

    __slots__ = ("_mailbox", "_on_settled", "_outcome", "_task", "_type", "key")

    def __init__(self, mailbox: Mailbox, key: str, answer_type: type[T], on_settled: Callable[[], None] | None) -> None:
        self._mailbox = mailbox
        self.key = key
        self._type = answer_type
        self._on_settled = on_settled
        self._outcome: Outcome[T] | None = None
        self._task: trio.lowlevel.Task | None = None

    @property
    def task(self) -> trio.lowlevel.Task | None:
        """The task that waits for the answer; None if none does."""
        return self._task

    async def take(self) -> T:
        """Wait for the answer and return it; raise the exception that `post` or `close` was given.

        A cancel gives the slot up: a later answer is dropped.

        Raises:
            trio.BusyResourceError: another task waits for this answer already.
            trio.ClosedResourceError: the slot was given up.
        """
        if self._task is not None:
            raise trio.BusyResourceError(f"another task waits for the answer to {self.key!r} already")
        if self._outcome is None:
            self._task = trio.lowlevel.current_task()
            try:
                await trio.lowlevel.wait_task_rescheduled(self._abort)
            finally:
                self.give_up()
        else:
            await trio.lowlevel.checkpoint()
        return self._taken().unwrap()

    def _taken(self) -> Outcome[T]:
        """Return the outcome and remove it from the slot."""
        # An error refers to the frames that it passes, and one of them refers to the slot: keeping it would make a cycle.
        assert self._outcome is not None
        outcome, self._outcome = self._outcome, cast("Outcome[T]", ANSWER_TAKEN)
        return outcome

    def give_up(self) -> None:
        """Close the slot: a later answer is dropped. Does nothing if the answer is there already; idempotent."""
        self._mailbox.withdraw(self)
        if self._outcome is None:
            self.settle(Error(trio.ClosedResourceError(f"the question {self.key!r} was given up")))

    @property
    def untaken(self) -> T | None:
        """The answer that arrived in the step in which the waiting task was cancelled, and was not taken; else None."""
        return self._outcome.value if isinstance(self._outcome, Value) else None

    def checked(self, answer: object) -> Outcome[T]:
        """Return the answer as an outcome: a TypeError for the task that takes it if its type is not the expected one."""
        if isinstance(answer, self._type):
            return Value(answer)
        if isinstance(answer, Exception):
            return Error(answer)
        message = f"the answer to {self.key!r} is {type(answer).__name__}, expected {self._type.__name__}"
        return Error(TypeError(message))

    def settle(self, outcome: Outcome[T]) -> None:
        """Set the outcome, once; the mailbox has already removed the slot."""
        self._outcome = outcome
        task, self._task = self._task, None
        # Before the task is woken: the lane must count as busy in this step.
        on_settled, self._on_settled = self._on_settled, None
        if on_settled is not None:
            on_settled()
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _abort(self, _raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


ANSWER_TAKEN: Final[Outcome[None]] = Value(None)
"""The outcome of a slot whose answer was taken: it raises `outcome.AlreadyUsedError`."""
ANSWER_TAKEN.unwrap()
