"""Requests that bring a `requestState`: each carries the call forward that is parked here, or runs it again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec

from ...base.named_tuples import NamedTuple
from ...errors import CallLost, InvalidRequestState, LimitExceeded, ProtocolError, RequestTimeout
from ...protocol.sealing.request_state import Claims, ExpiredRequestState, RequestDigest
from ...runtime import Journal, JournalEntry
from ...storage import StoreError
from ...types import InputResponseRequestParams, Model
from ..recovery.claims import CallClaim, HeldCall
from ..replies import LegOutcome, ReplyTarget
from .asks_rounds import CARRIED_ON, FIRST_LEG, CallInRounds, decoded_answer
from .call import Plan, Route
from .ended import EndedCall
from .facts import RequestFacts, ResumeMode
from .failures import error_detail, store_failure
from .legs import Decision, LegBook, expired_timeout
from .memory import StatePayload
from .previous_run import earlier_run, failing_body, read_log
from .services import CallOffers, CallServices

P = ParamSpec("P")


class Retry(NamedTuple):
    """A request that carries a call forward, with its state opened."""

    services: CallServices
    offers: CallOffers
    claims: Claims
    params: InputResponseRequestParams
    facts: RequestFacts
    target: ReplyTarget

    def join(self, payload: StatePayload | None) -> bool:
        """Carry on the call that is known here, or repeat an outcome that it left; False when it is to be run again.

        Args:
            payload: what a state of another process remembers; None if this process sealed the state.
        """
        claims = self.claims
        call = self.services.directory.find(claims.call_id)
        if call is None:
            return False
        assert isinstance(call, CallInRounds | EndedCall), "no other kind has a name in the directory"
        if payload is not None and call.is_superseded(claims.leg, payload):
            if isinstance(call, CallInRounds):
                call.forget()
            else:
                self.services.directory.forget(claims.call_id)
            return False
        if isinstance(call, CallInRounds):
            call.carry_on(claims, self.facts, self.target, self.params.input_responses or {})
        else:
            call.carry_on(claims.leg, self.target)
        return True

    def claims_leg(self, payload: StatePayload | None) -> bool:
        """Return whether this starts the next leg of a call that is parked here, and that other processes could run as well.

        Args:
            payload: see `join`.
        """
        claims = self.claims
        call = self.services.directory.find(claims.call_id)
        if (
            not isinstance(call, CallInRounds)
            or held_call(call) is None
            or call.decide(claims.leg) is not Decision.BEGIN
        ):
            return False
        return payload is None or not call.is_superseded(claims.leg, payload)

    async def claim_and_join(self, route: Route, payload: StatePayload | None) -> None:
        """Carry the call on that is parked here, if no other process runs it."""
        await self._answering(self._claim_and_join, route, payload)

    async def _claim_and_join(self, route: Route, payload: StatePayload | None) -> None:
        claims, call_id = self.services.call_claims, self.claims.call_id
        async with claims.turn(call_id):
            if self.target.finished:
                return
            call = self.services.directory.find(call_id)
            if not self.claims_leg(payload) or not isinstance(call, CallInRounds):
                # A copy of this request was faster.
                self._join_or_reject(payload)
                return
            call.decoded(self.facts, self.params.input_responses or {})
            held, is_started = held_call(call), False
            claim = await self._claim(self.services.node if payload is None else payload.node, held)
            try:
                if claim is None or claim.is_overtaken:
                    call.carried_on_elsewhere()
                    plan = self.plan(route)
                    is_started = await self._go_on_under(claim, plan, StatePayload.read(self.claims.journal))
                elif not self.target.finished:
                    assert held is not None, "the call has its claim"
                    held.take(claim)
                    is_next = self.claims_leg(payload)
                    self._join_or_reject(payload)
                    is_started = is_next
            finally:
                if claim is not None and not is_started:
                    await claims.give_back(claim)  # noqa: ASYNC102  it has a shield and a time limit

    def _join_or_reject(self, payload: StatePayload | None) -> None:
        if not self.join(payload):
            raise InvalidRequestState(ENDED)

    def plan(self, route: Route) -> Plan:
        """Return the plan of the call. Raises `InvalidRequestState` if there is none any more."""
        plan = route(self.facts, self.params)
        if not isinstance(plan, Plan):
            raise InvalidRequestState(OTHER_CALL)
        return plan

    def replay(
        self, plan: Plan, payload: StatePayload, logged: Sequence[JournalEntry] = (), claim: CallClaim | None = None
    ) -> None:
        """Start the call on its next leg; its body runs again, and what it had recorded returns immediately.

        A call that must not be replayed, or has lost its journal, ends with an error; its body does not run.

        Args:
            logged: the log of the call: what it did after the state was sealed.
            claim: that of this process; None without a durable store.

        Raises:
            RemoteProtocolError: an answer is malformed.
            LimitExceeded: the server runs too many calls.
        """
        services, claims, codec = self.services, self.claims, self.facts.terms.codec
        given = self.params.input_responses or {}
        answers = {
            key: decoded_answer(codec, key, asked.method, given[key])
            for key, asked in payload.asked.items()
            if key in given
        }
        answered = payload.answered(answers)
        run = earlier_run(logged, (*payload.entries, *answered))
        lost = payload.lost_reason(services.resume_mode(plan.resume))
        loss = run.unknown_step(plan) if lost is None else CallLost(lost)
        if loss is not None:
            plan = plan._replace(run=failing_body(question_timeout(services, claims) or loss))
        legs, journal = LegBook(claims.leg + 1, claims.call_id), Journal(run.entries)
        call = CallInRounds(
            services, self.offers, plan, self.facts, self.target, RequestDigest(claims.digest), legs, journal
        )
        if call.memory is not None and call.memory.is_durable:
            log = call.open_log(legs, run.logged, claim)
            # Before anything that the body does with them: another retry may bring other answers, also with an older state, and
            # the first ones count.
            known = {(entry.kind, entry.name) for entry in logged}
            log.add(*(entry for entry in (*payload.entries, *answered) if (entry.kind, entry.name) not in known))
            call.memory.continue_in(log)
        if call.operation is not None:
            call.operation.details["trio_mcp.replay"] = True
        services.directory.register_replayed(claims.call_id, call, payload.node, claims.leg, call.actor.caller)

    async def fetch_and_replay(self, plan: Plan, payload: StatePayload) -> None:
        """Replay a call of which something is in the store. The client may disconnect, or send a copy, until it has come."""
        await self._answering(self._fetch_and_replay, plan, payload)

    async def _fetch_and_replay(self, plan: Plan, payload: StatePayload) -> None:
        if await self._waits_elsewhere(plan, payload):
            raise self.services.unreached.refusal(self.claims.call_id, self.claims.leg)
        if self.services.log_store is None or plan.resume is ResumeMode.PARKED:
            await self._replay_from_store(plan, payload)
        else:
            await self._claim_and_replay(plan, payload)

    async def _answering(self, work: Callable[P, Awaitable[None]], *args: P.args, **options: P.kwargs) -> None:
        """Run a part of this request in a separate task; if it raises, the error is the answer to the request."""
        try:
            await work(*args, **options)
        except Exception as error:  # noqa: BLE001  there is no caller that could answer the request
            public_error = store_failure(self.services.records, error) if isinstance(error, StoreError) else error
            if not self.target.finished:
                self.target.finish(error_detail(self.services.failures, self.facts, public_error))

    async def _waits_elsewhere(self, plan: Plan, payload: StatePayload) -> bool:
        """Return whether the call cannot go on here, and may still wait in the process that sealed the state."""
        services = self.services
        if payload.lost_reason(services.resume_mode(plan.resume)) is None or services.log_store is None:
            return False
        if payload.node == services.node or question_timeout(services, self.claims) is not None:
            return False
        return await services.log_store.is_alive(payload.node)

    async def _claim_and_replay(self, plan: Plan, payload: StatePayload) -> None:
        """Replay a call if no other process runs it, and give its claim back if nothing starts here after all."""
        claims, call_id = self.services.call_claims, self.claims.call_id
        async with claims.turn(call_id):
            # Another request of the client may have carried the call on while this one waited.
            if self.target.finished or self.join(payload):
                return
            self.check_not_replayed(payload.node)
            claim, is_started = await self._claim(payload.node), False
            try:
                is_started = await self._go_on_under(claim, plan, payload)
            finally:
                if claim is not None and not is_started:
                    await claims.give_back(claim)  # noqa: ASYNC102  it has a shield and a time limit

    async def _go_on_under(self, claim: CallClaim | None, plan: Plan, payload: StatePayload) -> bool:
        """Answer with the task that the call has become, or replay it; return whether it was started.

        Args:
            claim: of the call; None if another process runs it.

        Raises:
            LimitExceeded: another process runs it, and it is no task.
            StoreError: whatever the store raises.
        """
        task = await self._became(plan)
        if task is not None:
            if not self.target.finished:
                self.target.finish(task)
            return False
        if claim is None:
            raise LimitExceeded(CARRIED_ON)
        return await self._replay_from_store(plan, payload, claim)

    async def _replay_from_store(self, plan: Plan, payload: StatePayload, claim: CallClaim | None = None) -> bool:
        """Replay a call with what the store has of it; return False if there was no need to."""
        services = self.services
        fetched = payload if payload.journal_key is None else await payload.fetched(services.journals)
        logged = () if services.log_store is None else await read_log(services.log_store, self.claims.call_id)
        # Another request of the client may have carried the call on while this one waited for the store.
        if self.target.finished or self.join(fetched):
            return False
        self.check_not_replayed(payload.node)
        self.replay(plan, fetched, logged, claim)
        return True

    async def _claim(self, sealed_by: str, held: HeldCall | None = None) -> CallClaim | None:
        """Return the claim of the call; None if another process runs it. Raises `LimitExceeded` if the store cannot tell."""
        services, claims = self.services, self.claims
        try:
            return await services.call_claims.claim(claims.call_id, claims.leg, sealed_by, self.facts.principal, held)
        except StoreError as error:
            services.records.log(NOT_CLAIMED, level=logging.ERROR, exc_info=error)
            raise LimitExceeded("the store of this server fails now; send the request again later") from None

    async def _became(self, plan: Plan) -> LegOutcome:
        """Return the answer of the call if it has become a task. Raises `StoreError`."""
        if plan.becomes is None:
            return None
        return await self.services.tasks.answer_of(self.claims.call_id)

    def check_not_replayed(self, node: str) -> None:
        """Raise `InvalidRequestState` if the call was replayed from this very state of that process before."""
        if self.services.directory.was_replayed(self.claims.call_id, node, self.claims.leg):
            raise InvalidRequestState(ENDED)


def first_leg(claims: Claims) -> str | None:
    """Return the context of the span of the first leg of a call, if its state has it."""
    found = claims.journal.get(FIRST_LEG) if isinstance(claims.journal, dict) else None
    return found if isinstance(found, str) else None


def held_call(call: CallInRounds) -> HeldCall | None:
    """Return what claims the legs of a call; None if no other process could run them."""
    log = None if call.memory is None else call.memory.log
    holding = None if log is None else log.holding
    return holding if isinstance(holding, HeldCall) else None


NOT_CLAIMED = "the store cannot tell which process carries a call on; this one does not"
ENDED = "the call ended, and its outcomes are no longer kept"
OTHER_CALL = "what is called now is not what was called then"


def carry_on(
    services: CallServices,
    offers: CallOffers,
    facts: RequestFacts,
    params: InputResponseRequestParams,
    target: ReplyTarget,
    route: Route,
) -> None:
    """Serve a request that brings a `requestState`.

    Args:
        offers: those of now.
        route: returns the plan of the call, for a replay.

    Raises:
        InvalidRequestState: the state is not one of this server, or not for this request, or it is used up.
        McpError: what `CallInRounds.carry_on` and `Retry.replay` raise.
    """
    try:
        claims = services.sealer.open(params.request_state, facts.principal, facts.method, params)
    except ExpiredRequestState as error:
        if (timeout := question_timeout(services, error.claims)) is None:
            raise
        target.finish(timeout_outcome(services, facts, params, route, timeout))
        return
    if target.operation is not None:
        target.operation.details["trio_mcp.leg"] = claims.leg + 1
        target.operation.start(first_leg(claims))
    retry = Retry(services, offers, claims, params, facts, target)
    # Nearly every state was sealed by this process, for a call that is parked here: the rest of it is read by a replay only.
    sealed_here = is_sealed_here(services, claims)
    known = None if sealed_here else StatePayload.read(claims.journal)
    if services.store.durable and retry.claims_leg(known):
        services.supervisor.spawn(retry.claim_and_join, route, known)
        return
    if retry.join(known):
        return
    payload = known or StatePayload.read(claims.journal)
    is_overtaken = services.store.durable and services.call_claims.was_overtaken(claims.call_id)
    # A call that was parked here and is unknown now has ended: to run it again could do twice what must be done once.
    if sealed_here and not is_overtaken and not services.options.always_replay:
        if (timeout := question_timeout(services, claims)) is None:
            raise InvalidRequestState(ENDED)
        target.finish(timeout_outcome(services, facts, params, route, timeout))
        return
    retry.check_not_replayed(payload.node)
    plan = retry.plan(route)
    if payload.journal_key is None and not services.is_durable:
        retry.replay(plan, payload)
    else:
        services.supervisor.spawn(retry.fetch_and_replay, plan, payload)


def is_sealed_here(services: CallServices, claims: Claims) -> bool:
    """Return whether this process sealed a state."""
    # A state that another version of this server has sealed names no process, or not in this way.
    return isinstance(claims.journal, dict) and claims.journal.get("node") == services.node


def question_timeout(services: CallServices, claims: Claims) -> RequestTimeout | None:
    """Return the error of a question that has timed out since the state was sealed, or None."""
    age = services.sealer.age(claims)
    return expired_timeout(claims.journal, age, sealed_here=is_sealed_here(services, claims))


def timeout_outcome(
    services: CallServices, facts: RequestFacts, params: Model, route: Route, timeout: RequestTimeout
) -> LegOutcome:
    """Return what the call would have answered if nothing had caught the timeout; nothing is run.

    Raises:
        InvalidRequestState: what was called no longer exists.
    """
    try:
        plan = route(facts, params)
    except ProtocolError:
        raise InvalidRequestState("what was called no longer exists") from None
    result = plan.error_result(facts, timeout, services.failures) if isinstance(plan, Plan) else None
    if result is None:
        return error_detail(services.failures, facts, timeout)
    return facts.terms.codec.encode_result(facts.method, result, services.server_info_json)
