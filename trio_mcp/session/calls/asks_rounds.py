"""Calls that ask in rounds (modern; specification 2026-07-28, multi round-trip requests).

A question is not sent when it is asked. It is noted; when no lane of the call can do anything more on its own (or a busy lane
has held its siblings' questions back for the round delay), the leg ends with one `InputRequiredResult` that holds every open
question, and the actor is parked with all it has: locals, files, branches. The retry carries the sealed state that names this
call and the leg that ended; its answers are posted and the next leg begins. `legs` says which request does what.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

import trio

from ...errors import InvalidRequestState, LimitExceeded, LocalProtocolError
from ...protocol.connection import StrayKind
from ...protocol.jsonrpc import INTERNAL_ERROR, SERVER_BUSY, Encoded, ErrorDetail
from ...protocol.sealing.request_state import Claims, KeyRing, Sealer
from ...runtime import Cancelled, CancelReason, Lane, Outcome
from ...types import JsonValue, Model
from ..replies import ReplyTarget
from .call import Call, CallServices, require_capability
from .directory import CallDirectory
from .failures import SENDER_DISCONNECTED
from .legs import Decision, LegBook, OpenQuestion
from .memory import StatePayload, decoded_answer
from .plan import Plan, Question, RequestFacts

T = TypeVar("T", bound=Model)
logger = logging.getLogger("trio_mcp.session")


@dataclass(frozen=True)
class RoundServices(CallServices):
    """What calls that ask in rounds need besides.

    Attributes:
        keys: seal `requestState`; None for a random key.
        audience: the server that a state is for.
        directory: the calls that a later request may carry forward.
        node: names this process among those that share the keys.
        stray_replies: counts answers that no call waited for.
    """

    keys: KeyRing | None
    audience: str
    directory: CallDirectory[CallInRounds]
    node: str
    stray_replies: Counter[StrayKind] = field(default_factory=Counter[StrayKind])

    @cached_property
    def sealer(self) -> Sealer:
        """Seals `requestState`; made when a call first asks a modern client, or a retry comes."""
        keys = self.keys
        if keys is None:
            keys = KeyRing.random()
            logger.warning(
                "requestState is sealed with a key of this process alone: a retry that comes after a restart, or to another "
                "process, is refused. Set TRIO_MCP_KEYS to a key that all of them share."
            )
        return Sealer(keys, audience=self.audience, ttl=self.options.actors.park_ttl)


class CallInRounds(Call):
    """A call that asks in rounds.

    Args:
        request: the params that name what is called, or their digest.
        name: the name of a call that goes on here after its actor is gone.
        legs: the book of a call that goes on here.
    """

    __slots__ = ("_asking", "_delayed_leg", "_name", "_request", "_rounds", "_storing")

    def __init__(
        self,
        services: RoundServices,
        plan: Plan,
        facts: RequestFacts,
        target: ReplyTarget,
        request: Model | str,
        name: str | None = None,
        legs: LegBook | None = None,
    ) -> None:
        super().__init__(services, plan, facts, target)
        self._rounds = services
        self._request = request
        self._name = name
        self._asking = 0
        self._delayed_leg = 0
        self._storing = False
        self.legs = legs

    async def ask(self, lane: Lane, question: Question[T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_can_ask(sends_requests=False)
        if self.is_answering:
            require_capability(self.facts, question)
        key = lane.next_key(question.kind) if question.name is None else lane.named_key(question.name)
        fingerprint = ""
        if self.memory is not None:
            fingerprint = self.memory.fingerprint(question)
            known = self.memory.recall_answer(key, question, fingerprint)
            if known is not None:
                await trio.lowlevel.checkpoint()
                return known
        slot = self.actor.mailbox.open(key, question.answer_type, lane.end_wait)
        if self.legs is None:
            self.legs = LegBook()
        questions = self.legs.questions
        questions[key] = OpenQuestion(cast("Question[Model]", question), fingerprint, lane.order)
        try:
            await self._join_round(lane)
            return await slot.take()
        except BaseException:
            slot.give_up()
            raise
        finally:
            questions.pop(key, None)

    async def _join_round(self, lane: Lane) -> None:
        """Count the lane as waiting, and give siblings that are about to ask one turn of the scheduler to do so."""
        self._asking += 1
        lane.begin_wait(announce=False)
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._asking -= 1
        self.on_quiescent()

    # the end of a leg

    def on_quiescent(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  set here, absent there
        """End the leg with the open questions if no lane is busy; else do so when the round delay is over."""
        legs = self.legs
        if self._asking or legs is None or not legs.questions or not self.is_answering:
            return
        if not self.actor.busy:
            self._end_round(legs)
        elif self._delayed_leg != legs.number:
            self._delayed_leg = legs.number
            self._rounds.supervisor.spawn(self._end_round_after_delay, legs, legs.number)

    async def _end_round_after_delay(self, legs: LegBook, number: int) -> None:
        await trio.sleep(self._rounds.options.settle)
        if self.is_answering and legs.number == number:
            self._delayed_leg = 0
            self._end_round(legs)

    def _end_round(self, legs: LegBook) -> None:
        if not legs.questions or self.actor.reason is not None or self._storing:
            return
        payload = self._payload(legs)
        if payload.journal_key is None:
            self._send_round(legs, payload)
        else:
            self._storing = True
            self._rounds.supervisor.spawn(self._store_then_send, legs, legs.number, payload)

    def _payload(self, legs: LegBook) -> StatePayload:
        node, options = self._rounds.node, self._rounds.options
        if self.memory is None:
            return StatePayload(node)
        return self.memory.payload(node, legs.records(), options.max_state, options.store)

    async def _store_then_send(self, legs: LegBook, number: int, payload: StatePayload) -> None:
        """Store a journal that is too large to travel, and end the leg unless it is over by then."""
        store = self.options.store
        assert store is not None
        try:
            stored = await payload.stored(store, self.options.actors.park_ttl)
        finally:
            self._storing = False
        if not self.is_answering or legs.number != number or self.actor.reason is not None:
            return
        if payload.asked == legs.records():
            self._send_round(legs, stored)
        else:
            self.on_quiescent()  # a question has come or was given up meanwhile: what was stored is out of date

    def _send_round(self, legs: LegBook, payload: StatePayload) -> None:
        try:
            result = self._encode_round(legs, payload)
            self._rounds.supervisor.park(self.actor)
        except (LimitExceeded, LocalProtocolError) as error:
            code = SERVER_BUSY if isinstance(error, LimitExceeded) else INTERNAL_ERROR
            self.end_leg(ErrorDetail(code, f"the question cannot be asked: {error}"))
            self.actor.cancel(CancelReason.EXPIRED)
            return
        self.end_leg(result)
        if self._rounds.options.always_replay:
            self.forget()

    def _encode_round(self, legs: LegBook, payload: StatePayload) -> Encoded:
        """Return the interim result: every open question, and the sealed state that leads back to this call."""
        services, facts = self._rounds, self.facts
        if self._name is None:
            self._name = services.directory.add(self)
        state = services.sealer.seal(
            facts.principal, facts.method, self._request, self._name, legs.number, payload.wire()
        )
        # A parked call does not hold its params: the retry brings their digest.
        self._request = ""
        return facts.terms.codec.encode_round(facts.method, legs.in_order(), state, services.server_info_json)

    def _keep_outcomes(self, legs: LegBook, outcome: Outcome) -> None:
        """End the open leg, and keep what the next leg gets: how the call ended, unless it was cancelled while it waited."""
        ended = not isinstance(outcome, Cancelled) or outcome.reason is CancelReason.DEADLINE
        answer = self.leg_outcome(outcome) if ended or self.is_answering else None
        if self.is_answering:
            self.end_leg(answer)
        legs.finish(answer if ended else None)
        if self._name is not None:
            self._rounds.directory.finish(self._name, legs.kept_bytes())

    def forget(self) -> None:
        """Give the parked call up, outcomes and all: its next leg is a replay."""
        assert self._name is not None
        self._rounds.directory.forget(self._name)
        self._name = None
        self.actor.cancel(CancelReason.EXPIRED)

    # the next leg

    def is_superseded(self, ended: int, payload: StatePayload) -> bool:
        """Return whether the call went on in another process, to the end of leg `ended`: what is parked here is out of date."""
        return self._book.is_superseded(ended, payload.asked, self.actor.reason)

    @property
    def _book(self) -> LegBook:
        """The book of a call that a client may carry forward: it has asked, so it has one."""
        assert self.legs is not None
        return self.legs

    def carry_on(
        self, claims: Claims, facts: RequestFacts, target: ReplyTarget, answers: Mapping[str, JsonValue]
    ) -> None:
        """Carry the call forward from the end of the leg that its state names, or repeat what came of it.

        Raises:
            RemoteProtocolError: an answer is malformed; the call stays parked and the request may be sent again.
            CapabilityError: what is still open cannot be asked of this client; the same holds.
            InvalidRequestState: that leg is too long ago, or the call has waited too long.
            LimitExceeded: the server is shutting down.
        """
        legs, ended, self._request = self._book, claims.leg, claims.digest
        match legs.decide(ended, self.actor.reason):
            case Decision.BEGIN:
                self._begin(legs, facts, target, self._decoded(legs, facts, answers))
            case Decision.WAIT:
                self._open_leg(legs, facts, target)
            case Decision.FINISH:
                self._open_leg(legs, facts, target)
                self.end_leg(legs.final)
            case Decision.JOIN:
                self.join(target)
            case Decision.REPEAT:
                target.finish(legs.outcome(ended + 1) or SENDER_DISCONNECTED)
            case Decision.GONE:
                target.finish(SENDER_DISCONNECTED)
            case Decision.BUSY:
                raise LimitExceeded("this server is shutting down; send the same request again in a moment")
            case Decision.EXPIRED:
                raise InvalidRequestState("the call has waited too long")
            case Decision.REFUSE:
                raise InvalidRequestState(f"leg {ended + 1} of a call that is at leg {legs.number}")

    def _decoded(self, legs: LegBook, facts: RequestFacts, answers: Mapping[str, JsonValue]) -> dict[str, Model]:
        """Return the answers to open questions; others were never asked, or are answered, and are ignored (M-MRTR-7s)."""
        questions = legs.questions
        decoded: dict[str, Model] = {}
        for key, asked in questions.items():
            answer = answers.get(key)
            if answer is not None:
                decoded[key] = decoded_answer(facts.terms.codec, key, asked.question.method, answer)
        self._rounds.stray_replies[StrayKind.UNKNOWN] += len(answers.keys() - questions.keys())
        for key in questions.keys() - decoded.keys():
            require_capability(facts, questions[key].question)
        return decoded

    def _begin(self, legs: LegBook, facts: RequestFacts, target: ReplyTarget, answers: Mapping[str, Model]) -> None:
        self._rounds.supervisor.resume(self.actor)
        self.actor.held_bytes += facts.size
        self._open_leg(legs, facts, target)
        for key, answer in answers.items():
            asked = legs.questions.pop(key)
            if self.memory is not None:
                self.memory.record_answer(key, answer, asked.fingerprint)
            self.actor.mailbox.post(key, answer)
        self.on_quiescent()

    def _open_leg(self, legs: LegBook, facts: RequestFacts, target: ReplyTarget) -> None:
        legs.begin()
        self.answer(facts, target)
