"""Requests with one idempotency key that wait: until their call runs, until it is a task, or until its outcome is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..runtime import CancelReason
from ..types import JsonObject, Model
from .calls.call import Call, Plan
from .calls.earlier import EarlierRun
from .calls.facts import RequestFacts
from .calls.pending_asks import PendingAsks
from .calls.repeats import CALL_LOST, KEYED_METHOD
from .calls.services import CallServices
from .replies import Answering, LegOutcome, ReplyTarget
from .tasks.stored import may_see

StartCall: TypeAlias = Callable[[CallServices[Call], Plan, RequestFacts, Model, ReplyTarget, EarlierRun | None], Call]
"""Starts a call as if it had no key, or once more with what an earlier run has left."""


class WaitingRequest(NamedTuple):
    """One request that waits.

    Attributes:
        asks: the questions that are open on its connection.
        start_call: starts its call on its connection.
    """

    asks: PendingAsks
    start_call: StartCall
    facts: RequestFacts
    params: Model
    target: ReplyTarget


@dataclass(slots=True, eq=False)
class WaitingRequests:
    """The work that answers them. Each may be withdrawn; the others wait on.

    Attributes:
        on_left: called when the last one was withdrawn.
    """

    on_left: Callable[[], None] | None = field(default=None, init=False)
    _waiting: dict[ReplyTarget, WaitingRequest | None] = field(
        default_factory=dict[ReplyTarget, WaitingRequest | None], init=False
    )
    """None is for a request that was answering already: it gets the outcome, whatever it is."""

    @property
    def method(self) -> str:
        return KEYED_METHOD

    def add(self, request: WaitingRequest) -> None:
        self._waiting[request.target] = request
        request.target.work = self

    def add_target(self, target: ReplyTarget) -> None:
        """Let one wait that the call was answering."""
        self._waiting[target] = None
        target.work = self

    @property
    def requests(self) -> list[WaitingRequest]:
        """Those that wait, the oldest first."""
        return [request for request in self._waiting.values() if request is not None]

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        target.finish(None)
        self.disconnect(target)

    def disconnect(self, target: ReplyTarget) -> None:
        was_waiting = self._waiting.pop(target, self) is not self
        if was_waiting and not self._waiting and self.on_left is not None:
            self.on_left()

    def answer(self, outcome: LegOutcome, owner: str | None = None) -> None:
        """Send each the outcome; none waits any more.

        Args:
            owner: who may ask for the task that the outcome names; None if it names none.
        """
        waiting, self._waiting = self._waiting, {}
        for target, request in waiting.items():
            if not target.finished:
                target.finish(outcome if request is None else told_outcome(request.facts, outcome, owner))


@dataclass(slots=True, eq=False)
class SharedTarget(ReplyTarget):
    """Where a task is answered that several requests wait for: each gets the answer, and the last that goes withdraws it."""

    waiting: WaitingRequests | None = None
    owner: str | None = None
    """Who may ask for the task."""

    @classmethod
    def of(cls, waiting: WaitingRequests, owner: str | None) -> SharedTarget:
        """Return the target of the requests that wait, one at least."""
        first = waiting.requests[0].target
        target = cls(first.request_id, first.outbox, waiting=waiting, owner=owner)
        waiting.on_left = target._withdraw
        return target

    def _withdraw(self) -> None:
        work: Answering | None = self.work
        if work is not None:
            work.withdraw(self, CancelReason.CLIENT)

    def finish(self, outcome: LegOutcome, more: JsonObject | None = None) -> None:  # noqa: ARG002
        waiting = self.waiting
        self.close()
        if waiting is not None:
            waiting.answer(outcome, self.owner)

    def close(self) -> None:
        ReplyTarget.close(self)
        if self.waiting is not None:
            self.waiting.on_left = None
        self.waiting = None


def told_outcome(facts: RequestFacts, outcome: LegOutcome, owner: str | None) -> LegOutcome:
    """Return the outcome that a repeat gets; not the id of a task that belongs to a session which has ended.

    Args:
        owner: who may ask for the task that the outcome names; None if it names none.
    """
    return outcome if owner is None or may_see(facts, owner) else CALL_LOST
