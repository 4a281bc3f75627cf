"""The requests of a connection that have an idempotency key: a repeat joins its call or has its outcome; nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import LimitExceeded, McpError, without_traceback
from ..protocol.jsonrpc import SERVER_BUSY, Encoded, ErrorDetail
from ..runtime import CancelReason
from ..storage import Change, StoreError
from ..types import Model
from .calls.asks_requests import CallByRequests
from .calls.call import Call, Plan
from .calls.earlier import EarlierRun, earlier_run, failing_body, read_log
from .calls.facts import RequestFacts, ResumeMode
from .calls.failures import NO_REPLY_REASONS, error_detail
from .calls.pending_asks import PendingAsks
from .calls.repeats import CALL_LOST, KEYED_METHOD, CallKey, KeyedCall, Repeat, may_have_run, runs_again
from .calls.services import CallServices
from .calls.stored_keys import OPEN_SECONDS, Claim, StoredKey, StoredKeys
from .replies import LegOutcome, ReplyTarget
from .service import Service
from .tasks.owners import may_see, owner_of

StartCall = Callable[[CallServices[Call], Plan, RequestFacts, Model, ReplyTarget, EarlierRun | None], Call]


@dataclass(slots=True, eq=False)
class KeyedRequests:
    """Serves the requests of one connection that have a key.

    Args:
        asks: the questions that are open on the connection.
        start_call: starts a call as if it had no key, or once more with what an earlier run has left.
    """

    _service: Service
    _asks: PendingAsks
    _start_call: StartCall

    def repeat(self, key: CallKey, facts: RequestFacts, params: Model, target: ReplyTarget) -> bool:
        """Answer a repeat of a request: join its call, or send its outcome again; False if the call is new or was lost.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
            LimitExceeded: the request that it repeats is being recorded.
        """
        keyed = self._service.calls.keyed.find(key)
        if keyed is None:
            return False
        call = keyed.call
        repeat = keyed.decide(is_abandoned=call is not None and call.actor.cancel_reason in NO_REPLY_REASONS)
        if repeat is Repeat.LOST:
            return False
        check = self._service.request_checks.get(facts.method)
        if check is not None:
            check(facts, params)
        if repeat is Repeat.OUTCOME:
            target.finish(told_outcome(facts, keyed.outcome, keyed.owner))
        elif call is None:
            raise LimitExceeded("the request that this one repeats is being recorded; send it again in a moment")
        elif isinstance(call, CallByRequests):
            call.take_over_on(self._asks, facts, target)
        else:
            call.take_over(facts, target)
        return True

    def start(
        self,
        key: CallKey,
        plan: Plan,
        facts: RequestFacts,
        params: Model,
        target: ReplyTarget,
        *,
        as_task: bool,
        makes_task: bool,
        alone: bool,
    ) -> None:
        """Start a call under its key, unless it may have run: then it runs again only if that does no harm.

        Args:
            makes_task: it is a task, or may become one.
            alone: no other process may have received the first request in place of this one.
        """
        calls = self._service.calls
        # One that may run twice makes one task all the same.
        if calls.stored_keys is not None and (makes_task or not runs_again(plan)):
            calls.keyed.check_room()
            keyed = calls.keyed.begin(key, None)
            # A fact of the session, which the transport stores before it sends the response.
            keyed.owner = owner_of(facts) if as_task else None
            claiming = Claiming(self, calls, calls.stored_keys, keyed, plan, facts, params, target, as_task)
            target.work = claiming
            calls.spawn(claiming.run)
            return
        lost = calls.keyed.find(key) is not None or calls.keyed.was_used(key)
        forgotten = calls.keyed.forgotten_until(key.owner)
        lost = lost or may_have_run(key, calls.node, forgotten_until=forgotten, alone=alone)
        if lost and not runs_again(plan):
            target.finish(CALL_LOST)
            return
        calls.keyed.check_room()
        if as_task:
            creating = calls.keyed.begin(key, None)
            creating.owner = owner_of(facts)
            try:
                self._service.tasks.start(plan, facts, params, target, creating.end_with)
            except BaseException:
                creating.end_with(None)
                raise
        else:
            call = self._start_call(calls, plan, facts, params, target, None)
            call.keyed = calls.keyed.begin(key, call)

    def start_again(self, claiming: Claiming) -> None:
        """Start a call that may run twice, and whose key belongs to an earlier run with an outcome that is not known.

        Raises:
            LimitExceeded: the server runs too many calls, or has too many tasks.
        """
        calls, keyed, plan, facts = claiming.services, claiming.keyed, claiming.plan, claiming.facts
        params, target = claiming.params, claiming.target
        if claiming.as_task:
            self._service.tasks.start(plan, facts, params, target, keyed.end_with, services=calls)
        else:
            keyed.call = call = self._start_call(calls, plan, facts, params, target, None)
            call.keyed = keyed

    def start_claimed(self, claiming: Claiming, claim: Claim, run: EarlierRun | None) -> None:
        """Start the call of a key that was claimed.

        Args:
            run: what an earlier run has left; None if there was none.

        Raises:
            LimitExceeded: the server runs too many calls.
        """
        tasks, keyed = self._service.tasks, claiming.keyed
        calls, plan, facts, target = claiming.services, claiming.plan, claiming.facts, claiming.target
        if claiming.as_task:
            tasks.start(plan, facts, claiming.params, target, claiming.task_created, claiming.stored, calls)
            return
        loss = None if run is None else run.loss(plan, always_replay=calls.options.always_replay)
        if loss is not None:
            plan = plan._replace(run=failing_body(loss))
        call = self._start_call(calls, plan, facts, claiming.params, target, run)
        keyed.call, call.keyed, keyed.stored = call, keyed, claiming.stored
        if call.memory is not None:
            log = calls.open_log(claim.name, OPEN_SECONDS, 0 if run is None else run.logged)
            if run is None:
                call.memory.keep_in(log)
            else:
                call.memory.continue_in(log)


def told_outcome(facts: RequestFacts, outcome: LegOutcome, owner: str | None) -> LegOutcome:
    """Return the outcome that a repeat gets; not the id of a task that belongs to a session which has ended.

    Args:
        owner: who may ask for the task that the outcome names; None if it names none.
    """
    return outcome if owner is None or may_see(facts, owner) else CALL_LOST


@dataclass(slots=True, eq=False)
class Claiming:
    """The work that answers a request whose key is being claimed in the store. Until then the request can be withdrawn."""

    requests: KeyedRequests
    services: CallServices[Call]
    _keys: StoredKeys
    keyed: KeyedCall[Call]
    plan: Plan
    facts: RequestFacts
    params: Model
    target: ReplyTarget
    as_task: bool
    stored: StoredCall | None = field(default=None, init=False)
    """Where the outcome goes; None until the key is claimed."""

    @property
    def method(self) -> str:
        return KEYED_METHOD

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        target.finish(None)

    def disconnect(self, target: ReplyTarget) -> None:
        """Nothing: the target is closed, and nothing is started for it."""

    async def run(self) -> None:
        """Claim the key, then start the call, or answer with what is known of it."""
        try:
            answer = await self._answer()
        except (McpError, StoreError) as error:
            services = self.services
            answer = error_detail(services.failures, self.facts, error)
            if isinstance(error, StoreError):
                answer = ErrorDetail(SERVER_BUSY, f"the call was not run, because it cannot be recorded: {error}")
        if answer is None:
            return
        self.keyed.drop()
        if not self.target.finished:
            self.target.finish(answer)

    async def _answer(self) -> LegOutcome:
        """Start the call and return None, or return the answer of a call that is not started."""
        repeat_of = self.keyed.key.repeat_of
        # Another store may have its key: then it may have run.
        is_foreign = repeat_of is not None and not await self._keys.knows(repeat_of)
        claim = await self._keys.claim(self.keyed.key)
        if isinstance(claim, StoredKey):
            if claim.outcome is not None:
                return told_outcome(self.facts, claim.outcome, claim.owner)
            if not runs_again(self.plan) or self.target.finished:
                return CALL_LOST
            self.requests.start_again(self)
            return None
        services = self.services
        is_lost = self.plan.resume is ResumeMode.PARKED and not services.options.always_replay and not self.as_task
        is_lost = (is_lost and claim.is_adopted) or (is_foreign and not claim.is_adopted)
        if is_lost and not runs_again(self.plan):
            await self._keys.end(claim, None)
            return CALL_LOST
        self.stored = StoredCall(self._keys, claim, services.supervisor.spawn, self.keyed.owner)
        try:
            run = None
            if claim.is_adopted and not self.as_task:
                if (task := await self.requests._service.tasks.answer_of(claim.name)) is not None:  # noqa: SLF001
                    await self._keys.end(claim, task)
                    return task
                run = earlier_run(await read_log(services.store, claim.name))
            if self.target.finished:
                # Its client has gone: what an earlier run has left is for the next repeat.
                await (self._keys.leave(claim) if claim.is_adopted else self._keys.remove(claim))
                self.keyed.drop()
                return None
            self.requests.start_claimed(self, claim, run)
        except (McpError, StoreError, ValueError, TypeError) as error:
            refused = without_traceback(error)
        else:
            return None
        await (self._keys.leave(claim) if claim.is_adopted else self._keys.remove(claim))
        raise refused

    def task_created(self, answer: LegOutcome) -> None:
        """Keep the answer to a request that creates a task; the store has it if there is a task."""
        self.keyed.end_with(answer)
        if not isinstance(answer, Encoded) and self.stored is not None:
            self.stored.remove()


@dataclass(slots=True, eq=False)
class StoredCall:
    """The outcome of one call in the store. It is the work that answers, while that is being stored."""

    _keys: StoredKeys
    _claim: Claim
    _spawn: Callable[..., None]
    _owner: str | None

    @property
    def method(self) -> str:
        return KEYED_METHOD

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        target.finish(None)

    def disconnect(self, target: ReplyTarget) -> None:
        """Nothing: the target is closed, and a repeat has the outcome."""

    def store_and_answer(self, keyed: KeyedCall[Any], outcome: LegOutcome, targets: Sequence[ReplyTarget]) -> None:
        for target in targets:
            target.work = self
        self._spawn(self._store_and_answer, keyed, outcome, targets)

    async def _store_and_answer(
        self, keyed: KeyedCall[Any], outcome: LegOutcome, targets: Sequence[ReplyTarget]
    ) -> None:
        await self._keys.end(self._claim, outcome)
        keyed.keep(outcome)
        for target in targets:
            if not target.finished:
                target.finish(outcome)

    def leave(self) -> None:
        self._spawn(self._keys.leave, self._claim)

    def remove(self) -> None:
        """Forget the key: nothing has run under it."""
        self._spawn(self._keys.remove, self._claim)

    def handing_over(self) -> list[Change]:
        return self._keys.ending(self._claim, None)

    def creating(self, outcome: LegOutcome) -> list[Change]:
        """Return the changes that store the answer of a request that creates a task."""
        return self._keys.ending(self._claim, outcome, self._owner)

    def taking_back(self) -> list[Change]:
        """Return the changes after which nothing is known of a task that was not created."""
        return self._keys.removing(self._claim)
