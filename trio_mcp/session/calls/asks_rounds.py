"""Calls that ask in rounds (modern; specification 2026-07-28, multi round-trip requests).

A question is not sent when it is asked. It is noted; when no lane of the call can do anything more on its own (or a busy lane
has held its siblings' questions back for the round delay), the leg ends with one `InputRequiredResult` that holds every open
question, and the actor is parked with all it has: locals, files, branches. The retry carries the sealed state that names this
call and the leg that ended; its answers are posted and the next leg begins. `legs` says which request does what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar, cast

import trio

from ...errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, without_traceback
from ...protocol.codec import Codec
from ...protocol.connection import StrayKind
from ...protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, SERVER_BUSY, Encoded, ErrorDetail
from ...protocol.sealing.request_state import Claims, RequestDigest
from ...runtime import ActorState, CancelReason, Lane
from ...types import JsonObject, JsonValue, Model
from ..recovery.claims import CallClaim
from ..recovery.stored_journal import CallLog
from ..replies import LegOutcome, ReplyTarget
from .call import BECOMES_OUTSIDE, Call
from .ended import EndedCall, repeat_or_reject
from .facts import Question, RequestFacts, ask_traced
from .failures import GOES_ON_REASONS, check_capabilities
from .legs import Decision, LegBook, OpenQuestion, asked_in_order, claim_place, with_timeout
from .memory import CallMemory, StatePayload

T = TypeVar("T", bound=Model)

CARRIED_ON: Final = "another process of this server carries this call on; send the request again to that one"

FIRST_LEG: Final = "trace"
"""The member of the sealed payload with the context of the span of the first leg."""

NEXT_LEG: Final = "\0next leg"
"""The slot of a body that waits for its client to come back; no question has this key."""


class CallInRounds(Call[RequestDigest]):
    """A call that asks in rounds. Its origin is the digest of its request, for which its states are sealed."""

    __slots__ = ()

    async def ask(self, lane: Lane, question: Question[T]) -> T:
        telemetry = self.services.telemetry
        if telemetry is not None and question.trace is None and not self.is_replaying:
            return await ask_traced(telemetry, self.ask, lane, question, self.facts.protocol_version)
        await trio.lowlevel.checkpoint_if_cancelled()
        # Most calls that ask are alive, and only the others pay for the question why they are not.
        if self.actor.scope.cancel_called or self.actor.state is ActorState.DONE:
            self.check_can_ask(sends_requests=False)
        if self.is_answering:
            check_capabilities(self.facts, question)
        key, order = lane.next_question(question.kind, question.name)
        fingerprint = ""
        if self.memory is not None:
            fingerprint = self.memory.fingerprint(question)
            known = self.memory.recall_answer(key, question, fingerprint)
            if known is not None:
                await trio.lowlevel.checkpoint()
                return known
        slot = lane.open_question(key, question.answer_type)
        if self.legs is None:
            self.legs = LegBook()
        legs = self.legs
        legs.questions[key] = OpenQuestion(cast("Question[Model]", question), fingerprint, order)
        try:
            # One turn of the scheduler, for siblings that are about to ask too.
            legs.joining += 1
            try:
                await trio.lowlevel.checkpoint()
            finally:
                legs.joining -= 1
            self.on_quiescent()
            answer = await slot.take()
        except BaseException:
            slot.give_up()
            claim_place(self.actor, question)
            timeout = question.timeout
            if self.memory is not None and timeout is not None and trio.current_time() >= timeout.deadline:
                self.memory.note_timeout(key, timeout.text, fingerprint)
            raise
        finally:
            legs.questions.pop(key, None)
        # The call was parked, and gave its place to another call of its tool.
        if self.actor.place is not None:
            await self.actor.place.enter()
        return answer

    def question_method(self, key: str) -> str | None:
        asked = None if self.legs is None else self.legs.questions.get(key)
        return None if asked is None else asked.question.method

    async def become_task(self, lane: Lane) -> None:
        await super().become_task(lane)
        starter, params = self.services.tasks, self._plan.becomes
        if params is None or not starter.is_wanted(self.facts, params):
            return
        legs = self.legs = self.legs or LegBook()
        self._check_becoming(legs)
        if not self.is_answering:
            await self._next_leg(lane)
            if not starter.is_wanted(self.facts, params):
                return
            self._check_becoming(legs)
        # What another task of the body asks from now on ends no leg.
        legs.is_storing, answer = True, None
        try:
            # Shielded: if the id were lost after the task was stored, it would run unseen. The store has a time limit.
            with trio.CancelScope(shield=True):
                answer = await starter.start_from(self, params)
        except BaseException:
            legs.is_storing = False
            self.on_quiescent()
            raise
        self._end_as_task(legs, answer)
        await trio.lowlevel.checkpoint_if_cancelled()
        raise RuntimeError("the call has become a task, and ends here: call become_task() in no shielded scope")

    def _check_becoming(self, legs: LegBook) -> None:
        if self.actor.scope.cancel_called:
            # In its clean-up, behind a shield.
            raise LocalProtocolError("the call was cancelled, and does not become a task")
        is_waiting = self.actor.opened_mailbox is not None and NEXT_LEG in self.actor.opened_mailbox
        runs_step = self.memory is None or self.memory.runs_step
        if self.actor.busy > 1 or runs_step or legs.questions or legs.is_storing or is_waiting:
            # The task runs the body again, and what a branch was doing would be done twice.
            raise RuntimeError(BECOMES_OUTSIDE)

    async def _next_leg(self, lane: Lane) -> None:
        """Wait for the client, as a question does: the body went on while the call is parked, and no request is open."""
        slot = lane.open_question(NEXT_LEG, bool)
        try:
            self.on_quiescent()
            await slot.take()
        finally:
            slot.give_up()
        if self.actor.place is not None:
            await self.actor.place.enter()

    def _end_as_task(self, legs: LegBook, answer: LegOutcome) -> None:
        """End the call, which goes on as the task that this answer names; None if its client has gone, which cancelled it."""
        if answer is None:
            return
        legs.was_forgotten = True
        if self.memory is not None and self.memory.log is not None:
            self.memory.log.close()
        self.end_leg(answer)
        self.actor.cancel(CancelReason.EXPIRED)

    # the end of a leg

    def on_quiescent(self) -> None:
        """End the leg with the open questions if no lane is busy; else do so when the round delay is over."""
        legs = self.legs
        if legs is None or legs.joining:
            return
        if not self.is_answering:
            # Parked, and its body went on for a while, without an answer.
            if self.actor.place is not None and not self.actor.busy:
                self.actor.place.leave()
            return
        if not legs.questions:
            return
        if not self.actor.busy:
            self._end_round(legs)
        elif legs.delayed != legs.number:
            legs.delayed = legs.number
            self.services.supervisor.spawn(self._end_round_after_delay, legs, legs.number)

    async def _end_round_after_delay(self, legs: LegBook, number: int) -> None:
        await trio.sleep(self.services.options.settle)
        if self.is_answering and legs.number == number:
            legs.delayed = 0
            self._end_round(legs)

    def _end_round(self, legs: LegBook) -> None:
        if not legs.questions or self.actor.scope.cancel_called or legs.is_storing:
            return
        node = self.services.node
        if self.memory is None:
            self._send_round(legs, {"node": node})
            return
        payload = self.memory.payload(
            node, legs.records(), self.services.options.max_state, self.services.journals, self.services.records
        )
        runs_step = self.memory.is_durable and self._keep_log(legs, self.memory)
        if payload.journal_key is None and not runs_step:
            self._send_round(legs, payload.wire())
        else:
            legs.is_storing = True
            self.services.supervisor.spawn(self._store_then_send, legs, legs.number, payload)

    def _keep_log(self, legs: LegBook, memory: CallMemory) -> bool:
        """Log what the call does from now on, which the state that is about to be sealed does not hold.

        Returns:
            whether a step runs: that has to be in the log before the state is sent.
        """
        if legs.call_id is None:
            legs.call_id = self.services.directory.add(self)
        if memory.log is not None and memory.log.key == legs.call_id:
            return False
        return memory.go_on_in(self.open_log(legs))

    def open_log(self, legs: LegBook, count: int = 0, claim: CallClaim | None = None) -> CallLog:
        """Return the log of what the call does from the end of its first round on.

        Args:
            count: entries that it has already.
            claim: that of the call, if this process has claimed it.
        """
        services, name = self.services, legs.call_id
        assert name is not None, "the call has a name from the end of its first round on"
        held = services.call_claims.held(name, lambda: legs.ended, self.carried_on_elsewhere, claim)
        return services.open_log(name, services.options.actors.park_ttl, count, held)

    def carried_on_elsewhere(self) -> None:
        """End the call here: another process carries it on."""
        if self.is_answering:
            self.end_leg(ErrorDetail(SERVER_BUSY, CARRIED_ON))
        if (call_id := self._book.call_id) is not None:
            self.services.call_claims.note_overtaken(call_id)
        self.forget()

    async def _store_then_send(self, legs: LegBook, number: int, payload: StatePayload) -> None:
        """Store the steps that run, and a journal that is too large to travel; end the leg unless it is over by then."""
        store, memory, stored = self.services.journals, self.memory, payload
        assert memory is not None
        try:
            if not await memory.commit():
                stored = payload.lost()
            elif payload.journal_key is not None:
                assert store is not None
                stored = await payload.stored(store, self.services.options.actors.park_ttl, self.services.records)
        finally:
            legs.is_storing = False
        if not self.is_answering or legs.number != number or self.actor.scope.cancel_called:
            return
        if payload.asked == legs.records():
            self._send_round(legs, stored.wire())
        else:
            # A question has come or was given up meanwhile: what was stored is out of date.
            self.on_quiescent()

    def _send_round(self, legs: LegBook, payload: JsonObject) -> None:
        try:
            result = self._encode_round(legs, payload)
            # After the encoding: a call that is parked by mistake would have to be resumed and its limits be taken back.
            self.services.supervisor.park(self.actor)
        except (LimitExceeded, LocalProtocolError) as error:
            if self._fail_unsendable(legs):
                return
            code = SERVER_BUSY if isinstance(error, LimitExceeded) else INTERNAL_ERROR
            self.end_leg(ErrorDetail(code, f"the question cannot be asked: {error}"))
            self.actor.cancel(CancelReason.EXPIRED)
            return
        self.end_leg(result)
        if self.services.options.always_replay:
            self.forget()

    def _fail_unsendable(self, legs: LegBook) -> bool:
        """Raise in the lanes that asked what cannot be sent; False if all open questions can."""
        mailbox, codec = self.actor.opened_mailbox, self.facts.terms.codec
        unsendable: dict[str, LocalProtocolError] = {}
        for key, asked in legs.questions.items():
            try:
                codec.encode_question(asked.question.method, asked.question.params)
            except LocalProtocolError as error:
                unsendable[key] = without_traceback(error)
        for key, refused in unsendable.items():
            assert mailbox is not None, "a question was asked"
            del legs.questions[key]
            mailbox.post(key, refused)
        return bool(unsendable)

    def _encode_round(self, legs: LegBook, payload: JsonObject) -> Encoded:
        """Return the interim result: every open question, and the sealed state that leads back to this call."""
        services, facts = self.services, self.facts
        if legs.call_id is None:
            legs.call_id = services.directory.add(self)
        payload = with_timeout(payload, legs.questions.values())
        if self.operation is not None and self.operation.first is not None:
            payload = {**payload, FIRST_LEG: self.operation.first}
        state = services.sealer.seal(facts.principal, facts.method, self._origin, legs.call_id, legs.number, payload)
        return facts.terms.codec.encode_round(
            facts.method, asked_in_order(legs.questions), state, services.server_info_json
        )

    def keep_outcomes(self, legs: LegBook, final: LegOutcome) -> None:
        if self.actor.cancel_reason is CancelReason.FENCED:
            # It goes on elsewhere, or here as a replay.
            self.forget()
            return
        kept_bytes = legs.finish(final)
        if legs.call_id is not None:
            ended, caller = EndedCall(legs, self.actor.reason), self.actor.caller
            self.services.directory.finish(legs.call_id, ended, kept_bytes, caller)

    def forget(self) -> None:
        """Give the parked call up, outcomes and all: its next leg is a replay."""
        legs = self._book
        if legs.call_id is not None:
            self.services.directory.forget(legs.call_id)
            legs.call_id = None
        if self.memory is not None and self.memory.log is not None:
            self.memory.log.close()
        legs.was_forgotten = True
        self.actor.cancel(CancelReason.EXPIRED)

    @property
    def continues_elsewhere(self) -> bool:
        legs = self.legs
        if legs is None or legs.was_forgotten:
            return legs is not None
        if self.memory is None or self.services.keys is None:
            return False
        # Other processes can open its states. Whether one has, while it was parked here, cannot be known. A leg that this
        # process did not finish may be sent again, with the state of the leg before it.
        interrupted = self.actor.reason in (*GOES_ON_REASONS, CancelReason.EXPIRED)
        return self.actor.state is ActorState.PARKED or (interrupted and legs.number > 1)

    # the next leg

    def decide(self, ended: int) -> Decision:
        """Return what a request means that carries the call forward from the end of leg `ended`."""
        return self._book.decide(ended, self.actor.reason)

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
        """Continue the call from the end of the leg that its state names, or send the outcome of the next leg again.

        Raises:
            RemoteProtocolError: an answer is malformed; the call stays parked and the request may be sent again.
            CapabilityError: what is still open cannot be asked of this client; the same holds.
            InvalidRequestState: that leg is too long ago, or the call has waited too long.
            LimitExceeded: the server is shutting down, or has no memory left for the request.
        """
        legs, ended = self._book, claims.leg
        # The cancel scope is asked first: hardly any parked call was cancelled, and the reason takes some working out.
        match legs.decide(ended, self.actor.reason if self.actor.scope.cancel_called else None):
            case Decision.BEGIN:
                decoded = self.decoded(facts, answers)
                self.services.stray_replies[StrayKind.UNKNOWN] += len(answers.keys() - legs.questions.keys())
                self._begin(legs, facts, target, decoded)
            case Decision.WAIT:
                self._open_leg(legs, facts, target)
            case Decision.JOIN:
                self.join(target)
            case decision:
                repeat_or_reject(decision, legs, ended, target)

    def decoded(self, facts: RequestFacts, answers: Mapping[str, JsonValue]) -> dict[str, Model]:
        """Return the answers to open questions; others were never asked, or are answered, and are ignored (M-MRTR-7s).

        Raises what `carry_on` raises for answers.
        """
        questions = self._book.questions
        decoded: dict[str, Model] = {}
        for key, asked in questions.items():
            answer = answers.get(key)
            if answer is not None:
                decoded[key] = decoded_answer(facts.terms.codec, key, asked.question.method, answer)
        for key in questions.keys() - decoded.keys():
            check_capabilities(facts, questions[key].question)
        return decoded

    def _begin(self, legs: LegBook, facts: RequestFacts, target: ReplyTarget, answers: Mapping[str, Model]) -> None:
        self.actor.keep(facts.size)
        self.services.supervisor.resume(self.actor)
        self._open_leg(legs, facts, target)
        mailbox, memory = self.actor.opened_mailbox, self.memory
        assert mailbox is not None, "a question was asked"
        for key, answer in answers.items():
            asked = legs.questions.pop(key)
            if memory is not None:
                memory.record_answer(key, answer, asked.fingerprint)
            mailbox.post(key, answer)
        self.on_quiescent()

    def _open_leg(self, legs: LegBook, facts: RequestFacts, target: ReplyTarget) -> None:
        legs.begin()
        self.answer(facts, target)
        assert self.actor.opened_mailbox is not None, "a question was asked"
        self.actor.opened_mailbox.post(NEXT_LEG, True)


def decoded_answer(codec: Codec, key: str, method: str, answer: JsonValue) -> Model:
    """Decode one answer of a retry.

    Raises:
        RemoteProtocolError: -32602, it is malformed; the message names its key.
    """
    try:
        if not isinstance(answer, dict):
            raise RemoteProtocolError("expected an object", code=INVALID_PARAMS)
        return codec.decode_input_response(method, answer)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"inputResponses.{key}: {error}", code=INVALID_PARAMS) from None
