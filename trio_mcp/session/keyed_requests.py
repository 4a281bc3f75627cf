"""The requests of a connection that have an idempotency key: a repeat joins its call or has its outcome; nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from ..errors import LimitExceeded, McpError, without_traceback
from ..protocol.jsonrpc import SERVER_BUSY, Encoded, ErrorDetail
from ..runtime import CancelReason
from ..storage import Change, StoreError
from ..types import Model
from .calls.asks_requests import CallByRequests
from .calls.call import Call, Plan
from .calls.earlier import EarlierRun, failing_body, left_run
from .calls.facts import RequestFacts, ResumeMode
from .calls.failures import NO_REPLY_REASONS, error_detail, store_failure
from .calls.held_key import HeldKey
from .calls.pending_asks import PendingAsks
from .calls.repeats import CALL_LOST, CallKey, KeyedCall, Repeat, may_have_run, runs_again
from .calls.services import CallServices
from .calls.stored_keys import OPEN_SECONDS, STILL_RUNS, Claim, StoredKey, StoredKeys, Wanted
from .replies import LegOutcome, ReplyTarget
from .service import Service
from .tasks.stored import owner_of
from .waiting_requests import SharedTarget, StartCall, WaitingRequest, WaitingRequests, told_outcome


@dataclass(slots=True, eq=False)
class KeyedRequests:
    """Serves the requests of one connection that have a key.

    Args:
        asks: the questions that are open on the connection.
        start_call: starts a call on the connection.
    """

    _service: Service
    _asks: PendingAsks
    _start_call: StartCall

    def repeat(self, key: CallKey, facts: RequestFacts, params: Model, target: ReplyTarget) -> bool:
        """Answer a repeat: join its call, wait for it, or send its outcome again; return False if the call is new or lost.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
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
        request = WaitingRequest(self._asks, self._start_call, facts, params, target)
        if repeat is Repeat.OUTCOME:
            target.finish(told_outcome(facts, keyed.outcome, keyed.owner))
        elif isinstance(keyed.waiting, WaitingRequests):
            if keyed.owner is not None:
                # The task may be created for this one; see `_begin`.
                owner_of(facts)
            keyed.waiting.add(request)
        else:
            assert call is not None
            join(call, request)
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

        Raises:
            LimitExceeded: the call that it repeats is being cancelled, or there is no room for one more.
        """
        calls = self._service.calls
        request = WaitingRequest(self._asks, self._start_call, facts, params, target)
        known = calls.keyed.find(key)
        # One that may run twice makes one task all the same.
        if calls.stored_keys is not None and (makes_task or not runs_again(plan)):
            if known is not None and known.call is not None and known.stored is not None:
                # Its key is its own until it has cleaned up; then a repeat goes on with it.
                raise LimitExceeded(STILL_RUNS)
            keyed, waiting = self._begin(key, request, as_task=as_task)
            calls.spawn(Claiming(self, calls, calls.stored_keys, keyed, waiting, plan, as_task, facts).run)
            return
        lost = known is not None or calls.keyed.was_used(key)
        forgotten = calls.keyed.forgotten_until(key.owner)
        lost = lost or may_have_run(key, calls.node, forgotten_until=forgotten, alone=alone)
        if lost and not runs_again(plan):
            target.finish(CALL_LOST)
            return
        if as_task:
            keyed, _ = self._begin(key, request, as_task=True)
            try:
                self.start_task(keyed, plan, calls)
            except BaseException:
                keyed.waiting = None
                keyed.drop()
                raise
        else:
            calls.keyed.check_room(key.owner)
            call = self._start_call(calls, plan, facts, params, target, None)
            call.keyed = calls.keyed.begin(key, call)

    def _begin(
        self, key: CallKey, request: WaitingRequest, *, as_task: bool
    ) -> tuple[KeyedCall[Call], WaitingRequests]:
        """Note a key whose call does not run yet; until then all requests with it wait."""
        keyed_calls = self._service.calls.keyed
        keyed_calls.check_room(key.owner)
        keyed, waiting = keyed_calls.begin(key, None), WaitingRequests()
        keyed.waiting = waiting
        waiting.add(request)
        # A fact of the session, which the transport stores before it sends the response.
        keyed.owner = owner_of(request.facts) if as_task else None
        return keyed, waiting

    def start_task(
        self, keyed: KeyedCall[Call], plan: Plan, services: CallServices[Call], stored: StoredCall | None = None
    ) -> None:
        """Create the task of a key, for the oldest of the requests that wait.

        Args:
            stored: where its answer is stored with it; None if that dies with this process.

        Raises:
            LimitExceeded: there are too many tasks; nothing remains.
        """
        waiting = keyed.waiting
        assert isinstance(waiting, WaitingRequests)
        request = waiting.requests[0]
        keyed.owner = owner_of(request.facts)
        if stored is not None:
            stored.owner = keyed.owner
        target = SharedTarget.of(waiting, keyed.owner)
        answered = partial(task_answered, keyed, waiting, target, stored)
        try:
            self._service.tasks.start(plan, request.facts, request.params, target, answered, stored, services)
        except BaseException:
            waiting.on_left = target.waiting = None
            raise

    def start_claimed(self, claiming: Claiming, claim: Claim | None, run: EarlierRun | None) -> Call:
        """Start the call of a key for the oldest of the requests that wait.

        Args:
            claim: of the key; None for a call that may run twice, and whose key belongs to an earlier run.
            run: what an earlier run has left; None if there was none.

        Raises:
            LimitExceeded: the server runs too many calls.
        """
        keyed, calls, plan = claiming.keyed, claiming.services, claiming.plan
        _, start_call, facts, params, target = claiming.waiting.requests[0]
        loss = None if run is None else run.loss(plan, always_replay=calls.options.always_replay)
        if loss is not None:
            plan = plan._replace(run=failing_body(loss))
        call = start_call(calls, plan, facts, params, target, run)
        keyed.call, call.keyed = call, keyed
        if claim is None:
            return call
        keyed.stored = claiming.stored
        if call.memory is not None:
            held = HeldKey(calls.store, claim, partial(runs_elsewhere, call, keyed))
            log = calls.open_log(claim.name, OPEN_SECONDS, 0 if run is None else run.logged, held)
            if run is None:
                call.memory.keep_in(log)
            else:
                call.memory.continue_in(log)
        return call

    async def task_of(self, claim: Claim) -> LegOutcome:
        """Return the answer to the request of a call that has become a task; None if it has not. Raises `StoreError`."""
        return await self._service.tasks.answer_of(claim.name)


def join(call: Call, request: WaitingRequest) -> None:
    """Let a repeat take the place of the requests that a call is answering; these still get the outcome."""
    if isinstance(call, CallByRequests):
        call.take_over_on(request.asks, request.facts, request.target)
    else:
        call.take_over(request.facts, request.target)


def runs_elsewhere(call: Call, keyed: KeyedCall[Call]) -> None:
    """End a call that another process runs now. A repeat gets there what the store has under the key."""
    call.keyed = keyed.stored = None
    keyed.drop()
    if call.is_answering:
        call.end_leg(CALL_LOST)
    call.actor.cancel(CancelReason.EXPIRED)


def task_answered(
    keyed: KeyedCall[Call],
    waiting: WaitingRequests,
    target: SharedTarget,
    stored: StoredCall | None,
    answer: LegOutcome,
) -> None:
    """Keep the answer to a request that creates a task; if there is no task, its key is that of no call."""
    keyed.waiting = None
    if isinstance(answer, Encoded):
        keyed.end_with(answer)
    else:
        keyed.drop()
        if stored is not None:
            stored.remove()
    if target.finished:
        # They have come while the task was taken back, because all others had gone.
        waiting.answer(WITHDRAWN)


WITHDRAWN = ErrorDetail(SERVER_BUSY, "the request that this one repeats was withdrawn; send the request again")


@dataclass(slots=True, eq=False)
class Claiming:
    """Claims a key in the store for the requests that wait, and then starts their call.

    Args:
        facts: of the first of them.

    Attributes:
        stored: where the outcome goes; None until the key is claimed.
        owner: who may ask for the task that the answer names; None if it names none.
    """

    _requests: KeyedRequests
    services: CallServices[Call]
    _keys: StoredKeys
    keyed: KeyedCall[Call]
    waiting: WaitingRequests
    plan: Plan
    as_task: bool
    _facts: RequestFacts
    stored: StoredCall | None = field(default=None, init=False)
    owner: str | None = field(default=None, init=False)

    async def run(self) -> None:
        """Claim the key, then start the call, or answer with what is known of it."""
        answer: LegOutcome = None
        try:
            if self.waiting.requests:
                answer = await self._answer()
        except StoreError as error:
            failure = store_failure(self.services.records, error, "The call was not run. Send it again later.")
            answer = error_detail(self.services.failures, self._facts, failure)
        except McpError as error:
            answer = error_detail(self.services.failures, self._facts, error)
        if answer is not None or not self.waiting.requests:
            self._end()
            self.waiting.answer(answer, self.owner)

    def _end(self) -> None:
        """Nothing runs under the key here, so a repeat begins again."""
        self.keyed.waiting = None
        self.keyed.drop()

    async def _answer(self) -> LegOutcome:
        """Start the call and return None, or return the answer of a call that is not started."""
        repeat_of = self.keyed.key.repeat_of
        # Another store may have its key: then it may have run.
        is_foreign = repeat_of is not None and not await self._keys.knows(repeat_of)
        claim = await self._keys.claim(self.keyed.key)
        if isinstance(claim, StoredKey):
            return self._known(claim)
        services = self.services
        is_lost = self.plan.resume is ResumeMode.PARKED and not services.options.always_replay and not self.as_task
        is_lost = (is_lost and claim.is_adopted) or (is_foreign and not claim.is_adopted)
        if is_lost and not runs_again(self.plan):
            await self._keys.settle(self._keys.end(claim, None))
            return CALL_LOST
        self.stored = StoredCall(self._keys, claim, services.supervisor.spawn)
        try:
            run = None
            if claim.is_adopted and not self.as_task:
                if (task := await self._requests.task_of(claim)) is not None:
                    await self._keys.settle(self._keys.end(claim, task))
                    return task
                run = await left_run(services.store, claim.name, services.records)
            if self.waiting.requests:
                self._start(claim, run)
                return None
            refused = None
        except (McpError, StoreError) as error:
            refused = without_traceback(error)
        except trio.Cancelled:
            self._keys.give_up(claim)
            raise
        # What an earlier run has left is for the next repeat, also if all clients have gone.
        self._keys.give_up(claim)
        if refused is not None:
            raise refused
        return None

    def _known(self, stored: StoredKey) -> LegOutcome:
        """Return the outcome of a call that is over; start it again and return None if that is lost and it does no harm."""
        if stored.outcome is not None:
            self.owner = stored.owner
            return stored.outcome
        if not runs_again(self.plan) or not self.waiting.requests:
            return CALL_LOST
        self._start(None, None)
        return None

    def _start(self, claim: Claim | None, run: EarlierRun | None) -> None:
        """Start the call for those that wait. Raises `LimitExceeded`."""
        if self.as_task:
            stored = None if claim is None else self.stored
            self._requests.start_task(self.keyed, self.plan, self.services, stored)
            return
        call = self._requests.start_claimed(self, claim, run)
        self.keyed.waiting = None
        for request in self.waiting.requests[1:]:
            join(call, request)


@dataclass(slots=True, eq=False)
class StoredCall:
    """The outcome of one call in the store.

    Attributes:
        owner: who may ask for the task that it names; None if it names none.
    """

    _keys: StoredKeys
    _claim: Claim
    _spawn: Callable[..., None]
    owner: str | None = None

    def store_and_answer(self, keyed: KeyedCall[Any], outcome: LegOutcome, targets: Sequence[ReplyTarget]) -> None:
        keyed.waiting = WaitingRequests()
        for target in targets:
            keyed.waiting.add_target(target)
        ended = self._keys.end(self._claim, outcome)
        self._spawn(self._store_and_answer, ended, keyed, keyed.waiting, outcome)

    async def _store_and_answer(
        self, ended: Wanted, keyed: KeyedCall[Any], waiting: WaitingRequests, outcome: LegOutcome
    ) -> None:
        await self._keys.settle(ended)
        keyed.outcome_stored(outcome)
        waiting.answer(outcome)

    def leave(self) -> None:
        self._keys.leave(self._claim)

    def remove(self) -> None:
        """Leave the key to the next request: nothing has run under it."""
        self._keys.remove(self._claim)

    def handing_over(self) -> list[Change]:
        return self._keys.handing_over(self._claim)

    def creating(self, outcome: LegOutcome, undo: Sequence[Change]) -> list[Change]:
        """Return the changes that store the answer of a request that creates a task."""
        return self._keys.ending(self._claim, outcome, self.owner, undo)

    async def take_back(self) -> None:
        """Leave the key of a task that was not created to the next request, and undo what was written with it."""
        await self._keys.take_back(self._claim)
