"""Requests that bring a `requestState`: each carries the call forward that is parked here, or runs it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...errors import CallLost, InvalidRequestState
from ...protocol.jsonrpc import Encoded
from ...protocol.sealing.request_state import Claims
from ...runtime import Lane
from ...types import InputResponseRequestParams, Model
from ..replies import ReplyTarget
from .asks_rounds import CallInRounds, RoundServices
from .failures import error_detail
from .legs import LegBook
from .memory import StatePayload
from .plan import Body, CallPort, Plan, RequestFacts, ResumeMode


@dataclass(frozen=True, slots=True)
class Retry:
    """A request that carries a call forward, with its state opened."""

    services: RoundServices
    claims: Claims
    payload: StatePayload
    params: InputResponseRequestParams
    facts: RequestFacts
    target: ReplyTarget

    def join(self) -> bool:
        """Carry on the call that is known here, or repeat an outcome that it left; False when it is to be run again."""
        services, claims = self.services, self.claims
        call = services.directory.find(claims.call_id)
        if call is None:
            return False
        if self.payload.node != services.node and call.is_superseded(claims.leg, self.payload):
            call.forget()
            return False
        call.carry_on(claims, self.facts, self.target, self.params.input_responses or {})
        return True

    def check_may_replay(self, *, sealed_elsewhere: bool) -> None:
        """Raise `InvalidRequestState` if the call ended here, or was replayed from this very state before."""
        claims, node = self.claims, self.payload.node
        if not sealed_elsewhere or self.services.directory.was_replayed(claims.call_id, node, claims.leg):
            raise InvalidRequestState("the call ended, and its outcomes are no longer kept")

    def replay(self, plan: Plan) -> None:
        """Start the call on its next leg; its body runs again, and what it had recorded returns at once.

        A call that must not be replayed, or has lost its journal, ends with an error; its body does not run.

        Raises:
            RemoteProtocolError: an answer is malformed.
            LimitExceeded: the server runs too many calls.
        """
        services, claims, payload = self.services, self.claims, self.payload
        journal = payload.journal(self.facts.terms.codec, self.params.input_responses or {})
        lost = payload.lost_reason(ResumeMode.REPLAY if services.options.always_replay else plan.resume)
        if lost is not None:
            plan = plan._replace(run=failing_body(lost))
        legs = LegBook(claims.leg + 1)
        call = CallInRounds(services, plan, self.facts, self.target, claims.digest, claims.call_id, legs)
        call.start(journal)
        services.directory.register_replayed(claims.call_id, call, payload.node, claims.leg)

    async def fetch_and_replay(self, plan: Plan) -> None:
        """Replay a call whose journal is in the store. The client may disconnect, or send a copy, until it has come."""
        try:
            fetched = replace(self, payload=await self.payload.fetched(self.services.options.store))
            if self.target.finished or fetched.join():
                return
            fetched.check_may_replay(sealed_elsewhere=True)
            fetched.replay(plan)
        except Exception as error:  # noqa: BLE001  there is no caller that could answer the request
            if not self.target.finished:
                self.target.finish(error_detail(self.facts, error))


def carry_on(
    services: RoundServices,
    facts: RequestFacts,
    params: InputResponseRequestParams,
    target: ReplyTarget,
    route: Callable[[RequestFacts, Model], Model | Encoded | Plan],
) -> None:
    """Serve a request that brings a `requestState`.

    Args:
        route: returns the plan of the call, for a replay.

    Raises:
        InvalidRequestState: the state is not one of this server, or not for this request, or it is used up.
        McpError: what `CallInRounds.carry_on` and `Retry.replay` raise.
    """
    claims = services.sealer.open(params.request_state, facts.principal, facts.method, params)
    retry = Retry(services, claims, StatePayload.read(claims.journal), params, facts, target)
    if retry.join():
        return
    retry.check_may_replay(sealed_elsewhere=retry.payload.node != services.node or services.options.always_replay)
    plan = route(facts, params)
    if not isinstance(plan, Plan):
        raise InvalidRequestState("what is called now is not what was called then")
    if retry.payload.journal_key is None:
        retry.replay(plan)
    else:
        services.supervisor.spawn(retry.fetch_and_replay, plan)


def failing_body(why: str) -> Body:
    """Return a body that only raises `CallLost`."""

    async def body(_call: CallPort, _lane: Lane) -> Model:
        raise CallLost(why)

    return body
