"""The legs and rounds of a modern call (specification 2026-07-28, multi round-trip requests).

A question is not sent when it is asked. It is noted; when no lane of the call can do anything more on its own (or a busy one
has held its siblings back for the settle time), the leg ends with one `InputRequiredResult` that holds every open question,
and the actor is parked with all it has: locals, files, branches. The retry carries the sealed state that names this call and
the leg that ended; its answers are posted and a new leg begins.

A leg runs at most once. Whoever sends the same leg again while it runs becomes another listener of it; whoever sends it after
it ended gets the outcome that was kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import trio

from ..errors import InvalidRequestState, LimitExceeded, LocalProtocolError, RemoteProtocolError
from ..protocol.connection import StrayKind
from ..protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, SERVER_BUSY, Encoded, ErrorDetail
from ..runtime import Cancelled, CancelReason, Lane, Raised, Returned
from ..types import JsonObject, JsonValue, Model
from .backchannel import Question, require, still_asking
from .leg import UNHEARD, Ending, Leg, Listener
from .replay import Asked, Recollection

if TYPE_CHECKING:
    from .call import Call


T = TypeVar("T", bound=Model)

KEPT_OUTCOMES = 16
"""Outcomes of earlier legs that a call keeps; clients give up after ten rounds."""


class OpenQuestion(NamedTuple):
    """A question that waits for an answer; its digest is what tells it from another in a replay."""

    question: Question[Model]
    digest: str


class Rounds:
    """The backchannel of one modern call."""

    __slots__ = ("_asking", "_call", "_keeping", "_name", "_open", "_outcomes", "_watched", "number")

    def __init__(self, call: Call, name: str | None = None, number: int = 1) -> None:
        self._call = call
        self._name = name
        self._keeping = False
        self._open: dict[str, OpenQuestion] = {}
        self._outcomes: dict[int, Ending] = {}
        self._asking = 0
        self._watched: Leg | None = None
        self.number = number
        """The leg that runs, or ran last; the first is 1."""

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        still_asking(call, live=False)
        if call.leg is not None:
            require(call.leg.facts.client_capabilities, question)
        key = lane.next_key(question.kind) if question.name is None else lane.named_key(question.name)
        digest = call.fingerprint(question)
        known = call.recall_answer(key, question, digest)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known
        slot = call.actor.mailbox.open(key, question.answer_type, lane.end_wait)
        self._open[key] = OpenQuestion(cast("Question[Model]", question), digest)
        try:
            await self._join_round(lane)
            return await slot.take()
        finally:
            self._open.pop(key, None)
            slot.give_up()

    async def _join_round(self, lane: Lane) -> None:
        """Count the lane as waiting, and give siblings that are about to ask one turn of the scheduler to do so."""
        self._asking += 1
        lane.begin_wait()
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._asking -= 1
        self.quiet()

    def _watch(self) -> None:
        """Some lane is busy: it may hold the questions of this leg back for the settle time, and no longer."""
        leg = self._call.leg
        if leg is not None and self._open and self._watched is not leg:
            self._watched = leg
            self._call.service.supervisor.spawn(self._settle, leg)

    async def _settle(self, leg: Leg) -> None:
        await trio.sleep(self._call.service.options.settle)
        if self._call.leg is leg:
            self._watched = None
            self._end_round()

    def quiet(self) -> None:
        """No lane is busy: if a leg is open and there are questions, it ends with them."""
        if not self._asking:
            if self._call.actor.quiet:
                self._end_round()
            else:
                self._watch()

    # the end of a leg

    def _end_round(self) -> None:
        call, leg = self._call, self._call.leg
        if leg is None or not self._open or call.actor.reason is not None or self._keeping:
            return
        recollection = call.recollection(self._asked())
        if recollection.reference is None:
            self._send_round(leg, recollection)
        else:
            self._keeping = True
            call.service.supervisor.spawn(self._keep_and_send, leg, recollection)

    async def _keep_and_send(self, leg: Leg, recollection: Recollection) -> None:
        """The journal is too large to travel: keep it first. The leg may be over by then."""
        try:
            kept = await self._call.keep(recollection)
        finally:
            self._keeping = False
        if self._call.leg is not leg or self._call.actor.reason is not None:
            return
        if recollection.asked == self._asked():
            self._send_round(leg, kept)
        else:
            self.quiet()  # a question was given up or has come meanwhile: what was kept does not tell of it

    def _asked(self) -> dict[str, Asked]:
        return {key: Asked(noted.question.method, noted.digest) for key, noted in self._open.items()}

    def _send_round(self, leg: Leg, recollection: Recollection) -> None:
        call = self._call
        try:
            result = self._round(leg, recollection)
            call.service.supervisor.park(call.actor)
        except (LimitExceeded, LocalProtocolError) as error:
            code = SERVER_BUSY if isinstance(error, LimitExceeded) else INTERNAL_ERROR
            call.end_leg(ErrorDetail(code, f"the question cannot be asked: {error}"))
            call.actor.cancel(CancelReason.EXPIRED)
            return
        call.end_leg(result)
        if call.service.options.always_replay:
            self.forget()

    def forget(self) -> None:
        """Give the parked call up, outcomes and all: its next leg is a replay."""
        assert self._name is not None
        self._call.service.directory.forget(self._name)
        self._name = None
        self._call.cancel(CancelReason.EXPIRED)

    def _round(self, leg: Leg, recollection: Recollection) -> Encoded:
        """The interim result: every open question, and the sealed way back to this call."""
        call, codec = self._call, leg.codec
        asked = {
            key: (noted.question.method, noted.question.params)
            for key, noted in sorted(self._open.items(), key=lambda item: place(item[0]))
        }
        assert asked, "an empty round is a bug"
        if self._name is None:
            self._name = call.service.directory.add(call)
        facts = leg.facts
        state = call.service.sealer.seal(
            facts.principal, facts.method, call.digest, self._name, self.number, recollection.wire()
        )
        return codec.encode_round(facts.method, asked, state, call.service.signature)

    def ended(self, ending: Ending) -> None:
        """The leg that ran has ended this way; keep it for whoever sends that leg again."""
        self._outcomes[self.number] = ending
        if len(self._outcomes) > KEPT_OUTCOMES:
            del self._outcomes[next(iter(self._outcomes))]

    def finished(self) -> bool:
        """The call is over; returns whether its outcomes are kept for whoever comes back for them."""
        if self._name is None:
            return False
        size = sum(len(ending.raw) for ending in self._outcomes.values() if isinstance(ending, Encoded))
        self._call.service.directory.finish(self._name, size)
        return True

    # the next leg

    def overtaken(self, ended: int, asked: Mapping[str, Asked]) -> bool:
        """The call went on in another process, to the end of leg `ended` with these questions; what waits here is behind."""
        if self._call.leg is not None or ended < self.number or ended + 1 in self._outcomes:
            return False
        match self._call.outcome:
            case None:
                return ended > self.number or asked != self._asked()
            case Cancelled(reason):
                return reason is not CancelReason.DEADLINE
            case _:
                return False

    def carry_on(self, ended: int, leg: Leg, listener: Listener, answers: Mapping[str, JsonValue]) -> None:
        """A request carries the call forward from the end of leg number `ended`.

        Raises:
            RemoteProtocolError: an answer is malformed; the call stays parked and the request may be sent again.
            CapabilityError: what is still open cannot be asked of this client; the same holds.
            InvalidRequestState: that leg is too long ago, or the call has waited too long.
        """
        if ended == self.number and self._call.leg is None:
            self._next(leg, answers)
        elif ended + 1 == self.number and self._call.leg is not None:
            self._join(self._call.leg, listener)
        elif ended + 1 in self._outcomes:
            listener.finish(self._outcomes[ended + 1] or GONE)
        else:
            raise InvalidRequestState(f"leg {ended + 1} of a call that is at leg {self.number}")

    def _next(self, leg: Leg, answers: Mapping[str, JsonValue]) -> None:
        """The first request of the next leg. It is told what became of a call that ended while it was parked."""
        call = self._call
        match call.outcome:
            case None if call.actor.reason is None:
                self._begin(leg, self._decoded(leg, answers))
            case None if call.actor.reason is CancelReason.DEADLINE:  # it still cleans up; this one waits for it
                self.number += 1
                call.leg = leg
            case Returned() | Raised() | Cancelled(CancelReason.DEADLINE) as outcome:
                self.number += 1
                call.conclude(leg, outcome)
            case _ if call.actor.cancel_reason is CancelReason.SHUTDOWN:
                raise LimitExceeded("this server is shutting down; send the same request again in a moment")
            case _:
                raise InvalidRequestState("the call has waited too long")

    def _join(self, leg: Leg, listener: Listener) -> None:
        """A copy of the request whose leg is running: it gets the same outcome."""
        if self._call.actor.reason in UNHEARD:
            listener.finish(GONE)
        else:
            leg.listeners.append(listener)

    def _decoded(self, leg: Leg, answers: Mapping[str, JsonValue]) -> dict[str, Model]:
        """The answers to open questions; others were never asked, or are answered, and are ignored (M-MRTR-7s)."""
        decoded: dict[str, Model] = {}
        for key, noted in self._open.items():
            answer = answers.get(key)
            if answer is None:
                continue
            try:
                decoded[key] = leg.codec.decode_input_response(noted.question.method, as_object(answer))
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"inputResponses.{key}: {error}", code=INVALID_PARAMS) from None
        self._call.service.strays[StrayKind.UNKNOWN] += len(answers.keys() - self._open.keys())
        for key in self._open.keys() - decoded.keys():
            require(leg.facts.client_capabilities, self._open[key].question)
        return decoded

    def _begin(self, leg: Leg, answers: Mapping[str, Model]) -> None:
        call = self._call
        call.service.supervisor.resume(call.actor)
        call.actor.held_bytes += leg.facts.size
        self.number += 1
        call.leg = leg
        for key, answer in answers.items():
            call.record_answer(key, answer, self._open.pop(key).digest)
            call.actor.mailbox.post(key, answer)
        self.quiet()


def place(key: str) -> list[int]:
    """Where a key stands among the others: by branch, then in the order asked. Trio starts sibling tasks in any order."""
    return [int(number) for number in re.split("[/-]", key)[1:]]


def as_object(value: JsonValue) -> JsonObject:
    if isinstance(value, dict):
        return value
    raise RemoteProtocolError("expected an object", code=INVALID_PARAMS)


GONE = ErrorDetail(
    INTERNAL_ERROR, "The call was cancelled because the client that carried it went away. Start it again."
)
"""What a copy of a leg gets whose first sender disconnected: the leg was cancelled then, and runs no more."""
