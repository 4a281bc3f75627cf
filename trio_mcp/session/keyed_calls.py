"""What this process knows under each idempotency key; `idempotency.py` has the states of a key, and an example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, cast

import trio

from ..base.named_tuples import NamedTuple
from ..base.shared_limits import KEYED_OUTCOME_BYTES, KEYED_OUTCOMES, USED_KEYS
from ..protocol.jsonrpc import INTERNAL_ERROR, SERVER_BUSY, Encoded, ErrorDetail
from ..protocol.revisions import KEYED_METHOD, OUTCOME_UNKNOWN
from ..runtime import CancelReason, MemoryBudget
from ..runtime.oldest_first import Kept, OldestFirst
from ..runtime.quota import Quota
from ..storage import Change
from ..types import Model
from .calls.asks_requests import CallByRequests
from .calls.call import Call, Plan
from .calls.facts import RequestFacts
from .calls.failures import NO_REPLY_REASONS
from .calls.pending_asks import PendingAsks
from .calls.previous_run import PreviousRun
from .calls.services import CallOffers
from .envelope import KEY_SIZE
from .recovery.key_store import KEY_LIFE, CallKey, Claim, other_request
from .replies import LegOutcome, OwnTarget, ReplyTarget
from .tasks.stored import may_see

MAX_FORGETFUL: Final = 100
"""Principals of which it is known until when keys may be unknown that they have used; of more, all count alike."""

CALL_LOST: Final = ErrorDetail(
    INTERNAL_ERROR,
    "This request repeats a call whose outcome is not known here: it was cancelled because its client went away, or it ended too "
    "long ago, or in another process. It may or may not have run, and was not run again.",
    {OUTCOME_UNKNOWN: True},
)

WITHDRAWN: Final = ErrorDetail(SERVER_BUSY, "the request that this one repeats was withdrawn; send the request again")

StartCall: TypeAlias = Callable[[CallOffers, Plan, RequestFacts, Model, ReplyTarget, PreviousRun | None], Call]
"""Starts a call as if it had no key, or once more with what an earlier run has left."""


class KeyedRequest(NamedTuple):
    """A request that has a key.

    Attributes:
        asks: the questions that are open on its connection.
        start_call: starts its call on its connection.
    """

    asks: PendingAsks
    start_call: StartCall
    facts: RequestFacts
    params: Model
    target: ReplyTarget

    def join(self, call: Call) -> None:
        """Take the place of the requests that a call is answering; these still get the outcome."""
        if isinstance(call, CallByRequests):
            call.take_over_on(self.asks, self.facts, self.target)
        else:
            call.take_over(self.facts, self.target)

    def finish(self, outcome: LegOutcome, owner: str | None) -> None:
        """Send the outcome of the call, but not the id of a task that this request may not ask for.

        Args:
            owner: who may ask for the task that the outcome names; None if it names none.
        """
        self.target.finish(outcome if owner is None or may_see(self.facts, owner) else CALL_LOST)


class Repeat(Enum):
    """What a repeat of a request gets; see the table in `idempotency.py`."""

    WAIT = "what the requests get that wait already"
    JOIN = "the outcome of the call, when it has one"
    OUTCOME = "the outcome that was kept"
    LOST = "another run, or an error"


@dataclass(slots=True, eq=False)
class KeyedCall:
    """One key, and the call under it. It is also the work that answers the requests which wait for the call or its outcome.

    Each of those may be withdrawn; the others wait on.

    Attributes:
        call: None when it is over, and until it is created.
        claim: of the key in the store, where the outcome goes; None if it dies with this process, or a session has the call.
        outcome: of its first leg; None before its end, if it was cancelled for its client, and when it was dropped.
        answered: the first leg has ended.
        owner: who may ask for the task that the outcome names; None if it names none.
        task_target: where the task is answered that is being created.
        until: when it moves on to the next table, on Trio's clock (seconds).
        size: bytes of the memory budget that it takes.
    """

    key: CallKey
    _table: KeyTable
    call: Call | None = field(default=None, init=False)
    claim: Claim | None = field(default=None, init=False)
    outcome: LegOutcome = field(default=None, init=False)
    answered: bool = field(default=False, init=False)
    owner: str | None = field(default=None, init=False)
    task_target: OwnTarget | None = field(default=None, init=False)
    until: float = field(default=0.0, init=False)
    size: int = field(default=KEY_SIZE, init=False)
    _waiting: dict[ReplyTarget, KeyedRequest | None] | None = field(default=None, init=False)
    """What waits; None of the requests if the call was answering it already: it gets the outcome, whatever that is."""

    def decide(self) -> Repeat:
        """Decide what a repeat gets."""
        if self.outcome is not None:
            return Repeat.OUTCOME
        if self._waiting is not None:
            return Repeat.WAIT
        is_abandoned = self.call is not None and self.call.actor.cancel_reason in NO_REPLY_REASONS
        return Repeat.LOST if self.answered or is_abandoned else Repeat.JOIN

    # the requests that wait

    @property
    def method(self) -> str:
        return KEYED_METHOD

    @property
    def requests(self) -> list[KeyedRequest]:
        """Those that wait until the call runs, the oldest first."""
        return [request for request in (self._waiting or {}).values() if request is not None]

    def wait(self, request: KeyedRequest) -> None:
        """Let a request wait."""
        self._waiting = self._waiting or {}
        self._waiting[request.target] = request
        request.target.work = self

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        target.finish(None)
        self.disconnect(target)

    def disconnect(self, target: ReplyTarget) -> None:
        waiting, task_target = self._waiting, self.task_target
        if waiting is None or waiting.pop(target, self) is self or waiting or task_target is None:
            return
        if task_target.work is not None:
            task_target.work.withdraw(task_target, CancelReason.CLIENT)

    def run(self, call: Call) -> None:
        """Note that this call runs for the requests that wait, of which it answers the oldest already."""
        others = self.requests[1:]
        self._waiting, self.call, call.keyed = None, call, self
        for request in others:
            request.join(call)

    def answer(self, outcome: LegOutcome, owner: str | None = None) -> None:
        """Send the requests that wait the outcome; none waits any more.

        Args:
            owner: see `KeyedRequest.finish`.
        """
        waiting, self._waiting = self._waiting, None
        for target, request in (waiting or {}).items():
            if target.finished:
                continue
            if request is None:
                target.finish(outcome)
            else:
                request.finish(outcome, owner)

    # the end of the call

    @property
    def is_stored(self) -> bool:
        return self.claim is not None

    def end_leg(self, outcome: LegOutcome, targets: Iterable[ReplyTarget] = ()) -> bool:
        if self.answered or (outcome is None and self.claim is not None):
            return False
        self.answered = True
        if self.claim is None:
            self._keep(outcome)
            return False
        self._waiting = dict.fromkeys(targets)
        for target in self._waiting:
            target.work = self
        self.claim.end_soon(outcome, self._stored)
        return True

    def _stored(self, outcome: LegOutcome) -> None:
        """Let the outcome be known here, which is in the store, and send it."""
        self._keep(outcome)
        if self.call is None:
            self._over()
        self.answer(outcome)

    def _keep(self, outcome: LegOutcome) -> None:
        """Give this outcome to repeats."""
        self.outcome = outcome
        self._table.draw(self, len(outcome.raw) if isinstance(outcome, Encoded) else 0)

    def end(self) -> None:
        self.call = None
        if self.claim is not None and not self.answered:
            self.claim.leave()
            self.drop()
        elif self._waiting is None:
            self._over()

    def end_as_task(self, claim: Claim | None, answer: LegOutcome) -> None:
        """Keep the answer to a request that creates a task, and send it; if there is no task, its key is that of no call.

        Args:
            claim: of the key in the store; None without one.
        """
        if isinstance(answer, Encoded):
            self.answered = True
            self._keep(answer)
            self._over()
        else:
            self.drop()
            if claim is not None:
                claim.remove()
        target, self.task_target = self.task_target, None
        if target is not None and target.finished:
            # They have come while the task was taken back, because all others had gone.
            self.answer(WITHDRAWN)
        else:
            self.answer(answer, self.owner)

    def _over(self) -> None:
        # It knows this key, for the case that another process runs the call.
        self.claim = None
        self._table.ended(self)

    def drop(self) -> None:
        """Forget the key: nothing has run under it, or the store knows what has. Those that wait still get an answer."""
        self.claim = None
        self._table.drop(self)

    def handing_over(self) -> Sequence[Change]:
        return () if self.claim is None else self.claim.handing_over()

    def handed_over(self) -> None:
        self.claim = None

    def runs_elsewhere(self) -> None:
        """End the call, which another process runs now. A repeat gets there what the store has under the key."""
        call = self.call
        if call is None:
            return
        call.keyed = self.call = None
        self.drop()
        if call.is_answering:
            call.end_leg(CALL_LOST)
        call.actor.cancel(CancelReason.EXPIRED)


class KeyTable:
    """The keys of the calls of one service.

    Args:
        grace: seconds for which an outcome is kept after its call is over.
        memory: the budget that keys and outcomes are kept in; where that has no room for a caller its oldest go.
    """

    __slots__ = ("_account", "_dropping", "_forgotten_until", "_grace", "_kept", "_open", "_used")

    def __init__(self, grace: float, memory: MemoryBudget) -> None:
        self._grace = grace
        self._open: dict[bytes, KeyedCall] = {}
        outcomes, sizes = Quota(KEYED_OUTCOMES), Quota(KEYED_OUTCOME_BYTES)
        self._kept: OldestFirst[bytes, KeyedCall] = OldestFirst(outcomes, sizes, self._outcome_dropped)
        self._used: OldestFirst[bytes, tuple[float, bytes]] = OldestFirst(Quota(USED_KEYS), None, self._key_dropped)
        """When each key is forgotten whose outcome is gone, and the digest of its request."""
        self._dropping = trio.lowlevel.ParkingLot()
        self._forgotten_until: dict[str | None, float] = {}
        self._account = memory.open_table()

    def find(self, key: CallKey) -> KeyedCall | None:
        """Return the call under a key, while it runs or its outcome is kept; otherwise None.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
        """
        known = self._open.get(key.digest) or self._kept.get(key.digest)
        if known is not None and known.key.request != key.request:
            raise other_request()
        return known

    def was_used(self, key: CallKey) -> bool:
        """Return whether a call has run under this key whose outcome is gone. Raises as `find` does."""
        used = self._used.get(key.digest)
        if used is not None and used[1] != key.request:
            raise other_request()
        return used is not None

    def check_room(self, owner: str | None) -> None:
        """Raise `LimitExceeded` if the memory budget has no room for one more key of a principal."""
        # Outcomes first; where there are none, keys before their time.
        self._kept.fit(self._account, owner, KEY_SIZE)
        self._used.fit(self._account, owner, KEY_SIZE)
        self._account.check(KEY_SIZE, owner)

    def begin(self, key: CallKey) -> KeyedCall:
        """Note that a call begins under this key, in place of one that was lost."""
        if (lost := self._kept.pop(key.digest)) is not None:
            self._account.give_back(lost[0].size, key.owner)
        elif self._used.pop(key.digest) is not None:
            self._account.give_back(KEY_SIZE, key.owner)
        keyed = self._open[key.digest] = KeyedCall(key, self)
        self._account.draw(KEY_SIZE, key.owner)
        return keyed

    def draw(self, keyed: KeyedCall, size: int) -> None:
        """Count the bytes of an outcome."""
        keyed.size += size
        self._account.draw(size, keyed.key.owner)
        if self._kept.get(keyed.key.digest) is keyed:
            self._kept.grow(keyed.key.digest, size)

    def drop(self, keyed: KeyedCall) -> None:
        """Forget a key without an outcome."""
        if self._open.get(keyed.key.digest) is keyed:
            del self._open[keyed.key.digest]
        self._account.give_back(keyed.size, keyed.key.owner)
        # Its outcome may still come, which is counted then until it is sent: another process runs the call meanwhile.
        keyed.size = 0

    def ended(self, keyed: KeyedCall) -> None:
        """Keep the outcome of a call that is over, for the grace period."""
        digest = keyed.key.digest
        # A repeat may have begun the call again while the lost one was cleaning up.
        if self._open.get(digest) is not keyed:
            self._account.give_back(keyed.size, keyed.key.owner)
            return
        del self._open[digest]
        keyed.until = trio.current_time() + self._grace
        if self._grace:
            self._kept.add(digest, keyed, keyed.key.owner, keyed.size)
        else:
            self._keep_key(digest, keyed)
        self._kept.fit(self._account, keyed.key.owner)
        if len(self._kept) <= 1:
            self._dropping.unpark()

    def _outcome_dropped(self, digest: bytes, kept: Kept[KeyedCall]) -> None:
        self._keep_key(digest, kept[0])

    def _keep_key(self, digest: bytes, keyed: KeyedCall) -> None:
        """Keep the key of a call whose outcome is dropped."""
        self._account.give_back(keyed.size - KEY_SIZE, keyed.key.owner)
        self._used.add(digest, (keyed.until + KEY_LIFE, keyed.key.request), keyed.key.owner)

    def _key_dropped(self, _digest: bytes, kept: Kept[tuple[float, bytes]]) -> None:
        """Note that a key was dropped before its time."""
        (until, _), caller, _ = kept
        self._account.give_back(KEY_SIZE, caller)
        owner = cast("str | None", caller)
        self._forgotten_until[owner] = max(self.forgotten_until(owner), until)
        if len(self._forgotten_until) > MAX_FORGETFUL:
            self._forgotten_until = {None: max(self._forgotten_until.values())}

    def forgotten_until(self, owner: str | None) -> float:
        """Return until when a key of this principal may be unknown although its call has run here: it was dropped early.

        Returns:
            a time on Trio's clock (seconds); 0 if no key was dropped early.
        """
        return max(self._forgotten_until.get(owner, 0.0), self._forgotten_until.get(None, 0.0))

    async def drop_in_time(self) -> None:
        """Drop each outcome, and then its key, when its time is up. Runs until cancelled."""
        never = math.inf
        while True:
            outcome, key = self._kept.first, self._used.first
            with trio.move_on_at(min(never if outcome is None else outcome.until, never if key is None else key[0])):
                # Woken when the first outcome is kept; the others are over later than it is.
                await self._dropping.park()
            now = trio.current_time()
            while (outcome := self._kept.first) is not None and outcome.until <= now:
                self._kept.evict_oldest()
            # Keys whose outcomes were evicted early are removed late by at most the grace period.
            while (key := self._used.first) is not None and key[0] <= now:
                over = self._used.pop(next(iter(self._used)))
                self._account.give_back(KEY_SIZE, None if over is None else over[1])

    def close(self) -> None:
        """Forget all keys, and give back what they took of the memory budget."""
        self._open.clear()
        self._kept.close()
        self._used.close()
        self._account.close()

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"<KeyTable open={len(self._open)} kept={len(self._kept)} used={len(self._used)}>"
