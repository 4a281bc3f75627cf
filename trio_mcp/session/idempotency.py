"""Idempotency keys: the client names a `tools/call`, so that a repeat after a lost connection does not run it a second time.

The first request of a call has no `requestState` that would tell a repeat from a new call. With a key a repeat joins the call
that runs, or gets its outcome, also an interim one: a round, whose state leads on. A key belongs to the authenticated principal;
without authentication, any caller that knows it may use it. Requests without a key cost one search in the bytes of their `_meta`.

`keyed_calls.py` has what this process knows under each key, `recovery/key_store.py` the keys in a durable store.
"""

# Where a key is in this process, and what a repeat of its request gets:
#
#     event                        table      a repeat
#     begin                        `_open`    waits until the call runs or is a task, with the request that began it
#     the call runs                `_open`    joins the call; if that is cancelled because its client has gone: LOST
#     end_leg, of the first leg    `_open`    gets the outcome, also while later legs run or the call is parked; LOST without one.
#                                             It waits for it while it is being stored
#     end                          `_kept`    the same, for the grace period
#     then                         `_used`    LOST, for KEY_LIFE
#     then                         -          is a new call, unless it says that it is a repeat: see `_may_have_run`
#
# Where there are too many, or the memory budget has no room, the oldest move on early: of a caller over its share its own
# (`OldestFirst`). A call that is LOST runs again only if its tool says that this does no harm (`Plan.repeatable`); else the error
# says that its outcome is unknown.
#
# In a durable store a call that must not run twice claims its key before its body runs, and its outcome is stored before it is
# answered. So a key that is not in the store is one of a call that has not run. A repeatable call claims nothing, unless a task
# may come of it, since it must be one. The record of a key, and what a repeat of its request gets from another process:
#
#     event                          record            a repeat
#     claim                          open, of a node   waits while the node lives, for some seconds, then is refused (-32000);
#                                                      else adopts it: see `Claim.is_adopted`
#     the first leg has an outcome   over, with it     the outcome, for KEY_LIFE
#     cancelled for its client       open, of no node  adopts it
#     nothing has run                unused            claims it
#     a legacy session keeps it      over, without     LOST: the session goes on with it
#
# A call that was adopted runs again with what its log has, if its tool may be replayed; else it is LOST.
#
# The store may be late. Every write below names the version that was read or written last, so that the next one fences those
# whose outcome is unknown. A task writes it again until it is known (`recovery/settling.py` has both). What the record is to be
# then is in `KeyStore._wanted`, and a repeat in this process goes by that, whatever the store has:
#
#     unknown write       wanted   a repeat here, until it is settled       one in another process, if the write has landed
#     claim               unused   claims it with the same record, whose    waits until it is settled, then claims it. After a
#                                  write is the fence; the call runs        crash it adopts it, so it may be LOST
#     adopt               left     the same, with what the log has          waits; after a crash it adopts it
#     end                 over     gets the outcome from memory             gets it; else it waits, and after a crash adopts it
#     leave               left     adopts it with the same record           adopts it; else it waits
#     remove              unused   claims it with the same record           claims it; else it waits, and after a crash adopts it
#     end, with a task    unused   as after `remove`. The write that        gets the task, until the key is settled and the task
#                                  settles the key removes the task         with it. After a crash the task goes on
#     end, with a session over     joins the call: it runs                  is LOST: the session goes on with the call
#
# What becomes of the unknown write:
#
#     it fails, never lands    the write that settles the key is made
#     it lands before that     that write is a conflict; the record is read, and written again
#     it lands after that      it is a conflict, and changes nothing
#     another's is there       what was wanted is void: the other process has read what was there
#     this process dies        what has landed by then counts, and what lands later if no other has written the record
#     it ends in good order    the same, after one attempt more
#     an outcome is refused    after some refusals the key is written without it
#
# An open record of this process belongs to a call that runs here, or is in `_wanted`. One that did not would be LOST.
#
# A trace: a tool that must not run twice, whose client loses its connection and repeats the request, twice:
#
#     request 1, key k     not known: `_begin`, and it waits; the task of `_claim` writes the record
#     version 1 is made    open, of this node: the call runs, and answers request 1
#     request 2, key k     `repeat`: JOIN. The connection of request 1 ends; the call goes on for request 2
#     the body returns     `end_leg`: the outcome is wanted, request 2 waits, and the write of version 2 times out
#     the first attempt    has failed: request 2 is answered all the same, and the record is written again, with pauses
#     request 3, key k     `repeat`: OUTCOME, from memory
#     version 2 was made   late. The next attempt is a conflict; the record is read, is what was wanted, and the key is settled
#     this process ends    request 4 in the next one: `KeyStore.claim` is a conflict, finds the outcome, and sends it

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.named_tuples import NamedTuple
from ..errors import LimitExceeded, McpError, RemoteProtocolError, without_traceback
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.revisions import IDEMPOTENCY_KEY, REPEAT_OF
from ..protocol.sealing.request_state import request_digest
from ..storage import StoreError
from ..types import Model
from . import recovery
from .calls.call import Plan, RequestCheck
from .calls.facts import RequestFacts, ResumeMode
from .calls.failures import error_detail, store_failure
from .calls.previous_run import PreviousRun, failing_body, left_run
from .calls.services import CallOffers, CallServices
from .keyed_calls import CALL_LOST, KeyedCall, KeyedRequest, KeyTable, Repeat
from .recovery.key_store import OPEN_SECONDS, STILL_RUNS, CallKey, Claim, KeyStore, StoredKey
from .replies import LegOutcome, OwnTarget
from .tasks.stored import owner_of
from .tasks.tasks import Tasks

MAX_KEY: Final = 128
"""Characters of a key."""

Answer: TypeAlias = tuple[LegOutcome, str | None]
"""The answer to the requests that wait, and who may ask for the task that it names; None if it names none."""


def read_key(facts: RequestFacts, params: Model) -> CallKey | None:
    """Return the key of a request, if it has one.

    Raises:
        RemoteProtocolError: -32602, it is malformed; the message names the member.
    """
    meta = facts.meta
    if IDEMPOTENCY_KEY not in meta:
        return None
    key, repeat_of = meta[IDEMPOTENCY_KEY], meta.get(REPEAT_OF)
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise malformed(IDEMPOTENCY_KEY)
    if repeat_of is not None and (not isinstance(repeat_of, str) or len(repeat_of) > MAX_KEY):
        raise malformed(REPEAT_OF)
    # Of one length, as a name and a key may have any characters: no other pair is the same text.
    owner = b"\0" if facts.principal is None else b"\1" + short_digest(facts.principal.encode())
    # The result of another revision looks different, so the revision is a part of what is asked for.
    request = f"{facts.protocol_version} {request_digest(params)}"
    return CallKey(short_digest(owner + key.encode()), short_digest(request.encode()), repeat_of, facts.principal)


def malformed(member: str) -> RemoteProtocolError:
    """Return the error for a key, or another such member, that is no string or too long."""
    return RemoteProtocolError(
        f'params._meta["{member}"]: must be a string of 1 to {MAX_KEY} characters', code=INVALID_PARAMS
    )


def short_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class NewCall(NamedTuple):
    """What is to run under a key.

    Attributes:
        offers: those that the plan is of.
        as_task: it is a task from the start.
    """

    offers: CallOffers
    plan: Plan
    as_task: bool


class IdempotencyKeys:
    """The idempotency keys of a service, and what is done for the requests that have one. Close it when no call runs any more.

    Args:
        tasks: returns the tasks of the service.

    Attributes:
        store: the keys that outlive this process; None without a durable store.
    """

    def __init__(self, services: CallServices, tasks: Callable[[], Tasks]) -> None:
        options, supervisor = services.options, services.supervisor
        self._services = services
        self._tasks = tasks
        self._table = KeyTable(options.outcome_grace, options.memory)
        self.store: KeyStore | None = None
        if services.store.durable:
            self.store = recovery.key_store.KeyStore(
                services.store, services.name, options.outcome_grace, services.records, supervisor, services.settling
            )
        supervisor.spawn(self._table.drop_in_time)

    def close(self) -> None:
        """Forget all keys."""
        self._table.close()

    def repeat(self, key: CallKey, request: KeyedRequest, check: RequestCheck | None) -> bool:
        """Answer a repeat: join its call, wait for it, or send its outcome again; return False if the call is new or lost.

        Args:
            check: of the request, which no route sees; None for no check.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
        """
        keyed = self._table.find(key)
        repeat = Repeat.LOST if keyed is None else keyed.decide()
        if keyed is None or repeat is Repeat.LOST:
            return False
        if check is not None:
            check(request.facts, request.params)
        if repeat is Repeat.OUTCOME:
            request.finish(keyed.outcome, keyed.owner)
        elif repeat is Repeat.WAIT:
            if keyed.owner is not None:
                # The task may be created for this one; see `_begin`.
                owner_of(request.facts)
            keyed.wait(request)
        else:
            assert keyed.call is not None
            request.join(keyed.call)
        return True

    def start(self, key: CallKey, new: NewCall, request: KeyedRequest, *, makes_task: bool) -> None:
        """Start a call under its key, unless it may have run: then it runs again only if that does no harm.

        Args:
            makes_task: it is a task, or may become one.

        Raises:
            LimitExceeded: the call that it repeats is being cancelled, or there is no room for one more.
        """
        known = self._table.find(key)
        # One that may run twice makes one task all the same.
        if self.store is not None and (makes_task or not new.plan.repeatable):
            if known is not None and known.call is not None and known.is_stored:
                # Its key is its own until it has cleaned up; then a repeat goes on with it.
                raise LimitExceeded(STILL_RUNS)
            keyed = self._begin(key, request, as_task=new.as_task)
            self._services.supervisor.spawn(self._claim, self.store, keyed, new, request.facts)
            return
        is_lost = known is not None or self._may_have_run(key, request.facts)
        if is_lost and not new.plan.repeatable:
            request.target.finish(CALL_LOST)
        elif new.as_task:
            keyed = self._begin(key, request, as_task=True)
            try:
                self._start_task(keyed, new, None)
            except BaseException:
                keyed.drop()
                raise
        else:
            self._table.check_room(key.owner)
            call = request.start_call(new.offers, new.plan, request.facts, request.params, request.target, None)
            self._table.begin(key).run(call)

    def _may_have_run(self, key: CallKey, facts: RequestFacts) -> bool:
        """Return whether the call of a key that is not known may have run: too long ago, or in another process."""
        if self._table.was_used(key):
            return True
        if key.repeat_of is None:
            return False
        # Those of a modern client over HTTP belong to no session: any process that shares the keys may have had the first.
        alone = self._services.keys is None or not (facts.own_headers and facts.session is None)
        is_forgotten = trio.current_time() < self._table.forgotten_until(key.owner)
        return key.repeat_of != self._services.node or not alone or is_forgotten

    def _begin(self, key: CallKey, request: KeyedRequest, *, as_task: bool) -> KeyedCall:
        """Note a key whose call does not run yet; until then all requests with it wait."""
        self._table.check_room(key.owner)
        keyed = self._table.begin(key)
        keyed.wait(request)
        # A fact of the session, which the transport stores before it sends the response.
        keyed.owner = owner_of(request.facts) if as_task else None
        return keyed

    def _start(self, keyed: KeyedCall, new: NewCall, claim: Claim | None, run: PreviousRun | None) -> None:
        """Start the call of a key for the requests that wait.

        Args:
            claim: of the key; None for a call that may run twice, and whose key belongs to an earlier run.
            run: what an earlier run has left; None if there was none.

        Raises:
            LimitExceeded: the server runs too many calls, or there are too many tasks.
        """
        if new.as_task:
            self._start_task(keyed, new, claim)
            return
        services, plan = self._services, new.plan
        loss = None if run is None else run.loss(plan, always_replay=services.options.always_replay)
        if loss is not None:
            plan = plan._replace(run=failing_body(loss))
        _, start_call, facts, params, target = keyed.requests[0]
        call = start_call(new.offers, plan, facts, params, target, run)
        keyed.run(call)
        if claim is None:
            return
        keyed.claim, claim.on_lost = claim, keyed.runs_elsewhere
        if call.memory is not None:
            log = services.open_log(claim.name, OPEN_SECONDS, 0 if run is None else run.logged, claim)
            if run is None:
                call.memory.keep_in(log)
            else:
                call.memory.continue_in(log)

    def _start_task(self, keyed: KeyedCall, new: NewCall, claim: Claim | None) -> None:
        """Create the task of a key, for the oldest of the requests that wait: each gets the answer.

        Args:
            claim: of the key, with which the answer is stored; None if that dies with this process.

        Raises:
            LimitExceeded: there are too many tasks; nothing remains.
        """
        request = keyed.requests[0]
        keyed.owner = owner_of(request.facts)
        if claim is not None:
            claim.owner = keyed.owner
        target, on_answer = OwnTarget(request.target.outbox), partial(keyed.end_as_task, claim)
        self._tasks().start(new.plan, request.facts, request.params, target, on_answer, claim, new.offers)
        keyed.task_target = target

    # with a durable store

    async def _claim(self, store: KeyStore, keyed: KeyedCall, new: NewCall, facts: RequestFacts) -> None:
        """Claim a key in the store for the requests that wait, then start their call, or answer with what is known of it.

        Args:
            facts: of the first of them.
        """
        services = self._services
        answer: Answer | None = None, None
        try:
            if keyed.requests:
                answer = await self._claim_and_start(store, keyed, new)
        except StoreError as error:
            failure = store_failure(services.records, error, "The call was not run. Send it again later.")
            answer = error_detail(services.failures, facts, failure), None
        except McpError as error:
            answer = error_detail(services.failures, facts, error), None
        if answer is not None:
            # Nothing runs under the key here, so a repeat begins again.
            keyed.drop()
            keyed.answer(*answer)

    async def _claim_and_start(self, store: KeyStore, keyed: KeyedCall, new: NewCall) -> Answer | None:
        """Start the call and return None, or return the answer if it is not started."""
        services, plan, repeat_of = self._services, new.plan, keyed.key.repeat_of
        # Another store may have its key: then it may have run.
        is_foreign = repeat_of is not None and not await services.processes.knows(repeat_of)
        claim = await store.claim(keyed.key, lambda: bool(keyed.requests) and not services.supervisor.draining)
        if isinstance(claim, StoredKey):
            return self._known(claim, keyed, new)
        is_lost = plan.resume is ResumeMode.PARKED and not services.options.always_replay and not new.as_task
        is_lost = (is_lost and claim.is_adopted) or (is_foreign and not claim.is_adopted)
        if is_lost and not plan.repeatable:
            await claim.end(None)
            return CALL_LOST, None
        refused: Exception | None = None
        try:
            run: PreviousRun | None = None
            if claim.is_adopted and not new.as_task:
                if (task := await self._tasks().answer_of(claim.name)) is not None:
                    await claim.end(task)
                    return task, None
                run = await left_run(services.store, claim.name, services.records)
            if keyed.requests:
                self._start(keyed, new, claim, run)
                return None
        except (McpError, StoreError) as error:
            refused = without_traceback(error)
        except trio.Cancelled:
            claim.give_up()
            raise
        # What an earlier run has left is for the next repeat, also if all clients have gone.
        claim.give_up()
        if refused is not None:
            raise refused
        return None, None

    def _known(self, stored: StoredKey, keyed: KeyedCall, new: NewCall) -> Answer | None:
        """Return the outcome of a call that is over; start it again and return None if that is lost and it does no harm."""
        if stored.outcome is not None:
            return stored.outcome, stored.owner
        if not new.plan.repeatable or not keyed.requests:
            return CALL_LOST, None
        self._start(keyed, new, None, None)
        return None

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"<IdempotencyKeys {self._table!r}>"
