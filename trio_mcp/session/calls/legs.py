"""The leg book of a call that asks in rounds: which leg it is on, its questions, and the outcomes of earlier legs.

A *leg* is the part of a call that one request carries: from the request to its result, its error, or a *round*, the interim
result that holds every open question. The retry that brings the answers starts the next leg. A leg runs at most once: the same
request sent again while it runs waits for the same outcome, and sent again afterwards it gets the outcome that was kept.

The book is pure: no Trio, no I/O, no codec. It receives events and decides what a request that carries the call forward means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar, cast

import trio

from ...base.named_tuples import NamedTuple
from ...errors import RequestTimeout
from ...protocol.jsonrpc import Encoded
from ...runtime import Actor, CancelReason
from ...types import JsonObject, JsonValue, Model
from ..replies import LegOutcome
from .facts import Question

# The states, and what leads from one to the next:
#
#     state       event                              next state    what the book does
#     RUNNING     end(outcome), of a round           PARKED        keeps the outcome of this leg
#     RUNNING     end(outcome), then finish(final)   OVER          keeps the outcome, and what later legs get
#     PARKED      begin()                            RUNNING       counts the leg
#     PARKED      finish(final)                      OVER          keeps what the next leg gets
#     OVER        begin(), end(final)                OVER          the next leg came for the end of the call
#
# A call may also be cancelled in any state; the clock can do that without any event, so `decide` is handed the reason.
# With it there are eight positions, and a request for leg `ended + 1` meets one of them:
#
#     position                          the next leg       this leg again    an earlier leg
#     RUNNING                           refuse             join              repeat
#     ABANDONED  (client gone)          refuse             gone              repeat
#     PARKED                            begin              repeat            repeat
#     TIMED_OUT  (parked, cleans up)    wait               repeat            repeat
#     ANSWERED   (over, final is kept)  finish             repeat            repeat
#     SHUT_DOWN  (cancelled, parked)    busy               repeat            repeat
#     EXPIRED    (cancelled, parked)    refuse             repeat            repeat
#
# "repeat" needs the outcome of that leg; without it (only the last sixteen are kept) the request is refused. A leg later than
# the next is refused as well: the state was sealed elsewhere, or is forged.
#
# A trace, for a tool that asks once, whose client sends its retry twice:
#
#     tools/call id 1          LegBook()                 RUNNING, leg 1
#     ctx.elicit               ask("elicit-1", ...)      RUNNING, leg 1, one question
#     reply to 1: the round    end(round)                PARKED
#     tools/call id 2, ended 1 decide(1) -> BEGIN        begin(): RUNNING, leg 2; answer("elicit-1")
#     tools/call id 3, ended 1 decide(1) -> JOIN         ids 2 and 3 wait for leg 2
#     reply to 2 and 3         end(result), finish(...)  OVER
#     tools/call id 4, ended 1 decide(1) -> REPEAT       reply to 4: the outcome of leg 2 again


KEPT_OUTCOMES = 16
"""Outcomes of earlier legs that a call keeps; clients give up after ten rounds."""


class OpenQuestion(NamedTuple):
    """A question that waits for an answer.

    Attributes:
        fingerprint: tells the question from another one under the same key in a replay.
        order: where it stands among the questions of its call: by branch, then in the order asked.
    """

    question: Question[Model]
    fingerprint: str
    order: tuple[int, ...]


class OpenQuestionRecord(NamedTuple):
    """An open question as a sealed state remembers it."""

    method: str
    fingerprint: str


class Position(Enum):
    """Where a call stands when a request wants to carry it forward; see the table above."""

    RUNNING = "running"
    ABANDONED = "abandoned"
    PARKED = "parked"
    TIMED_OUT = "timed out"
    ANSWERED = "answered"
    SHUT_DOWN = "shut down"
    EXPIRED = "expired"


class Decision(Enum):
    """What to do with a request that carries a call forward."""

    BEGIN = "start the next leg with the answers it brings"
    WAIT = "make it the next leg, which gets the end of the call"
    FINISH = "answer it with the end of the call"
    JOIN = "answer it with the outcome of the leg that runs"
    REPEAT = "answer it with the outcome that was kept"
    GONE = "tell it that the call was cancelled with its first sender"
    BUSY = "reject it: the server is shutting down"
    EXPIRED = "reject it: the call has waited too long"
    REFUSE = "reject it: this leg is unknown"


NEXT: Mapping[Position, Decision] = {
    Position.RUNNING: Decision.REFUSE,
    Position.ABANDONED: Decision.REFUSE,
    Position.PARKED: Decision.BEGIN,
    Position.TIMED_OUT: Decision.WAIT,
    Position.ANSWERED: Decision.FINISH,
    Position.SHUT_DOWN: Decision.BUSY,
    Position.EXPIRED: Decision.EXPIRED,
}
"""For the leg after the one that ran last."""

CURRENT: Mapping[Position, Decision] = {Position.RUNNING: Decision.JOIN, Position.ABANDONED: Decision.GONE}
"""For the leg that runs."""

CANCELLED_WHILE_PARKED: Mapping[CancelReason | None, Position] = {
    None: Position.PARKED,
    CancelReason.DEADLINE: Position.TIMED_OUT,
    CancelReason.SHUTDOWN: Position.SHUT_DOWN,
    CancelReason.FENCED: Position.SHUT_DOWN,
}

GONE_REASONS = (CancelReason.CLIENT, CancelReason.DISCONNECT)


def asked_in_order(questions: Mapping[str, OpenQuestion]) -> dict[str, tuple[str, Model]]:
    """Return method and params of open questions by key, in an order that every run of the body has.

    Trio starts sibling tasks in any order, so the order of arrival would differ from run to run.
    """
    ordered = sorted(questions.items(), key=lambda item: item[1].order)
    return {
        key: (asked.question.method, asked.question.sent_params if asked.question.trace else asked.question.params)
        for key, asked in ordered
    }


@dataclass(slots=True, eq=False, repr=False)
class LegBook:
    """The legs of one call. `number` is the leg that runs, or ran last; the first is 1."""

    number: int = 1
    call_id: str | None = None
    """The name under which later requests find the call; None until the end of its first round."""
    questions: dict[str, OpenQuestion] = field(default_factory=dict[str, OpenQuestion], init=False)
    """The open questions by key."""
    joining: int = field(default=0, init=False)
    """Lanes that have just asked, and give their siblings a turn to ask too."""
    delayed: int = field(default=0, init=False)
    """The leg whose end waits for the round delay, or 0."""
    is_storing: bool = field(default=False, init=False)
    """The journal is being stored, before the leg ends."""
    was_forgotten: bool = field(default=False, init=False)
    """The call goes on as a replay, here or in another process: the end of its actor is not its end."""
    _outcomes: dict[int, LegOutcome] = field(default_factory=dict[int, LegOutcome], init=False)
    final: LegOutcome = field(default=None, init=False)
    """What later legs get; None until the call is over, and if it was cancelled before it came to an end."""
    _is_running: bool = field(default=True, init=False)
    _is_over: bool = field(default=False, init=False)

    # events

    def end(self, outcome: LegOutcome) -> None:
        """The leg that ran has ended with this outcome; keep it for a repeated request."""
        self._is_running = False
        self._outcomes[self.number] = outcome
        if len(self._outcomes) > KEPT_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]

    def begin(self) -> None:
        """The next leg has started."""
        self._is_running = True
        self.number += 1

    def finish(self, final: LegOutcome) -> int:
        """The call is over, with this `final`.

        Returns:
            the size of the kept outcomes in bytes.
        """
        self._is_over = True
        self.final = final
        return self.kept_bytes()

    @property
    def ended(self) -> int:
        """The leg that ended last; 0 if none has."""
        return self.number - 1 if self._is_running else self.number

    # what to do with a request

    def position(self, reason: CancelReason | None) -> Position:
        """Return where the call stands.

        Args:
            reason: why its actor was cancelled, None if it was not.
        """
        if self._is_running:
            return Position.ABANDONED if reason in GONE_REASONS else Position.RUNNING
        if self.final is not None:
            return Position.ANSWERED
        if self._is_over and reason is not CancelReason.SHUTDOWN:
            return Position.EXPIRED
        return CANCELLED_WHILE_PARKED.get(reason, Position.EXPIRED)

    def decide(self, ended: int, reason: CancelReason | None) -> Decision:
        """Decide what a request means that carries the call forward from the end of leg `ended`."""
        position = self.position(reason)
        if ended == self.number and not self._is_running:
            return NEXT[position]
        if ended + 1 == self.number and self._is_running:
            return CURRENT[position]
        return Decision.REPEAT if ended + 1 in self._outcomes else Decision.REFUSE

    def outcome(self, number: int) -> LegOutcome:
        """Return the outcome of a leg that `decide` said to repeat."""
        return self._outcomes[number]

    def is_superseded(self, ended: int, asked: Mapping[str, OpenQuestionRecord], reason: CancelReason | None) -> bool:
        """Return whether the call went on in another process, to the end of leg `ended` with these questions open."""
        if self._is_running or ended < self.number or ended + 1 in self._outcomes:
            return False
        position = self.position(reason)
        if position is Position.ANSWERED:
            return False
        return self._is_over or ended > self.number or asked != self.records()

    # questions

    def records(self) -> dict[str, OpenQuestionRecord]:
        """Return the open questions as a sealed state remembers them."""
        return {
            key: OpenQuestionRecord(asked.question.method, asked.fingerprint) for key, asked in self.questions.items()
        }

    def kept_bytes(self) -> int:
        """Return the size of the kept outcomes."""
        kept = list(self._outcomes.values())
        if self.final is not self._outcomes.get(self.number):
            kept.append(self.final)
        return sum(len(outcome.raw) for outcome in kept if isinstance(outcome, Encoded))


# The place of a call among the running calls of its tool, where a question parks it.

T = TypeVar("T", bound=Model)


def claim_place(actor: Actor, question: Question[T]) -> None:
    """Hold a place of the tool, unless the call ends or `AskTimeout` waits for one: the body goes on, though maybe parked.

    Args:
        question: the one that got no answer.
    """
    place, timeout = actor.place, question.timeout
    if place is None or actor.scope.cancel_called:
        return
    if timeout is None or trio.current_time() < timeout.deadline:
        place.claim()


# Store the deadlines of questions in `requestState`, so that a late answer gets the timeout error after the call was evicted.
#
# The user may answer long after the question was withdrawn, and after the outcome of the call was evicted. A legacy client has
# received the answer to its call by then: the text of the timeout. So a modern client gets the same text for as long as the
# server can open the state.

MEMBER = "timeout"
"""The member of the sealed payload."""


def with_timeout(payload: JsonObject, questions: Iterable[OpenQuestion]) -> JsonObject:
    """Return the payload of a state, with the timeout of the question that times out first if one has a timeout."""
    timeouts = [asked.question.timeout for asked in questions if asked.question.timeout is not None]
    if not timeouts:
        return payload
    first, now = min(timeouts), trio.current_time()
    return {**payload, MEMBER: [first.deadline - now, first.text, now]}


def expired_timeout(payload: JsonValue, age: float, *, sealed_here: bool) -> RequestTimeout | None:
    """Return the error of the question that has timed out since its state was sealed, or None.

    Args:
        payload: what was sealed.
        age: seconds since then, by the clocks of the machines that sealed and opened it.
        sealed_here: whether this process sealed it; it then goes by Trio's clock, as the timeout itself does.
    """
    recorded = payload.get(MEMBER) if isinstance(payload, dict) else None
    if recorded is None:
        return None
    seconds, text, sealed_at = cast("tuple[float, str, float]", recorded)
    if sealed_here:
        age = trio.current_time() - sealed_at
    return RequestTimeout(text) if age >= seconds else None
