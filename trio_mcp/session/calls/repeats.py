"""Idempotency keys: the client names a `tools/call`, so that a repeat after a lost connection does not run it a second time.

The first request of a call has no `requestState` that would tell a repeat from a new call. With a key a repeat joins the call
that runs, or gets its outcome, also an interim one: a round, whose state leads on. A key belongs to the authenticated principal;
without authentication to whoever knows it. Requests without a key cost one search in the bytes of their `_meta`.
"""

# Where a key is, and what a repeat of its request gets:
#
#     event                        table      a repeat
#     begin                        `_open`    waits until the call runs or is a task, with the request that began it
#     the call runs                `_open`    joins the call; if that is cancelled because its client has gone: LOST
#     end_leg, of the first leg    `_open`    gets the outcome, also while later legs run or the call is parked; LOST without one.
#                                             It waits for it while it is being stored
#     end                          `_kept`    the same, for the grace period
#     then                         `_used`    LOST, for KEY_LIFE
#     then                         -          is a new call, unless it says that it is a repeat: see `may_have_run`
#
# Where there are too many, or the memory budget has no room, the oldest move on early: of a caller over its share its own
# (`OldestFirst`). A call that is LOST runs again only if its tool says that this does no harm (`runs_again`); else the error says
# that its outcome is unknown.

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

import trio

from ...base.shared_limits import KEYED_OUTCOME_BYTES, KEYED_OUTCOMES, USED_KEYS
from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Encoded, ErrorDetail
from ...protocol.revisions import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, REPEAT_OF
from ...protocol.sealing.request_state import request_digest
from ...runtime import MemoryBudget
from ...runtime.oldest_first import Kept, OldestFirst
from ...runtime.quota import Quota
from ...storage import Change
from ...types import Model
from ..replies import LegOutcome, ReplyTarget
from ..sizes import KEY_SIZE
from .facts import RequestFacts

C = TypeVar("C")

KEYED_METHOD: Final = "tools/call"
"""The requests that may have a key. The others read, and are simply sent again."""

KEY_MARK: Final = IDEMPOTENCY_KEY.encode()
"""Without these bytes a `_meta` has no key."""

MAX_KEY: Final = 128
"""Characters of a key."""

KEY_LIFE: Final = 600.0
"""Seconds for which a key is known after the outcome of its call was dropped."""

MAX_FORGETFUL: Final = 100
"""Principals of which it is known until when keys may be unknown that they have used; of more, all count alike."""

CALL_LOST: Final = ErrorDetail(
    INTERNAL_ERROR,
    "This request repeats a call whose outcome is not known here: it was cancelled because its client went away, or it ended too "
    "long ago, or in another process. It may or may not have run, and was not run again.",
    {OUTCOME_UNKNOWN: True},
)


class CallKey(NamedTuple):
    """The key of one request.

    Attributes:
        digest: of the key and its owner.
        request: the digest of what the request asks for; all repeats ask for the same.
        repeat_of: the instance of the server that the first request was meant for; None if this is not said to be a repeat.
        owner: the principal; None without authentication.
    """

    digest: bytes
    request: bytes
    repeat_of: str | None
    owner: str | None = None


def read_key(facts: RequestFacts, params: Model) -> CallKey | None:
    """Return the key of a request, if it has one.

    Raises:
        RemoteProtocolError: -32602, it is malformed; the message names the member.
    """
    if KEY_MARK not in facts.terms.meta.raw:
        return None
    meta = facts.meta
    if IDEMPOTENCY_KEY not in meta:
        return None
    key, repeat_of = meta[IDEMPOTENCY_KEY], meta.get(REPEAT_OF)
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise malformed(IDEMPOTENCY_KEY)
    if repeat_of is not None and (not isinstance(repeat_of, str) or len(repeat_of) > MAX_KEY):
        raise malformed(REPEAT_OF)
    owner = b"\0" if facts.principal is None else b"\1%b\0" % facts.principal.encode()
    # The result of another revision looks different, so the revision is a part of what is asked for.
    request = f"{facts.protocol_version} {request_digest(params)}"
    return CallKey(short_digest(owner + key.encode()), short_digest(request.encode()), repeat_of, facts.principal)


def malformed(member: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f'params._meta["{member}"]: must be a string of 1 to {MAX_KEY} characters', code=INVALID_PARAMS
    )


def other_request() -> RemoteProtocolError:
    """Return the error for a key that another request has used."""
    return RemoteProtocolError(
        f'params._meta["{IDEMPOTENCY_KEY}"]: this key was used for another request; each call needs a new one',
        code=INVALID_PARAMS,
    )


def short_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


class Repeat(Enum):
    """What a repeat of a request gets; see the table at the head of the module."""

    WAIT = "what the requests get that wait already"
    JOIN = "the outcome of the call, when it has one"
    OUTCOME = "the outcome that was kept"
    LOST = "another run, or an error"


class RepeatablePlan(Protocol):
    """What `runs_again` asks of a plan."""

    @property
    def repeatable(self) -> bool: ...


def runs_again(plan: RepeatablePlan) -> bool:
    """Decide whether a call runs again whose outcome is lost; else its caller hears that the outcome is unknown."""
    return plan.repeatable


def may_have_run(key: CallKey, instance: str, *, forgotten_until: float, alone: bool) -> bool:
    """Return whether the call of a repeat whose key is unknown may have run: in another process, or too long ago.

    Args:
        instance: of this process.
        forgotten_until: see `KeyedCalls`.
        alone: no other process may have received the first request in place of this one.
    """
    if key.repeat_of is None:
        return False
    return key.repeat_of != instance or not alone or trio.current_time() < forgotten_until


class OutcomeStore(Protocol):
    """Stores the outcome of one call, for the next process."""

    def store_and_answer(self, keyed: KeyedCall[Any], outcome: LegOutcome, targets: Sequence[ReplyTarget]) -> None:
        """Store the outcome, then let it be known here, and send it. Meanwhile repeats wait."""

    def leave(self) -> None:
        """Leave the call, which was cancelled for its client and has ended, to a repeat."""

    def handing_over(self) -> list[Change]:
        """Return the changes after which nothing is run under the key any more, because a session goes on with the call."""
        ...


class KeyedCall(Generic[C]):
    """What is known under one key.

    Attributes:
        call: None when it is over, and until it is created.
        stored: where its outcome is stored; None if it dies with this process.
        outcome: of its first leg; None before its end, if it was cancelled for its client, and when it was dropped.
        answered: the first leg has ended.
        owner: who may ask for the task that the outcome names; None if it names none.
        waiting: the `WaitingRequests` while there is no call yet, or no outcome that may be known; None else.
    """

    __slots__ = ("_calls", "answered", "call", "key", "outcome", "owner", "size", "stored", "until", "waiting")

    def __init__(
        self,
        key: CallKey,
        call: C | None,
        calls: KeyedCalls[C],
    ) -> None:
        self.key = key
        self.call = call
        self._calls = calls
        self.outcome: LegOutcome = None
        self.answered = False
        self.owner: str | None = None
        self.stored: OutcomeStore | None = None
        self.waiting: object | None = None
        self.until = 0.0
        """When it moves on to the next table, on Trio's clock (seconds)."""
        self.size = KEY_SIZE

    def end_leg(self, outcome: LegOutcome, targets: Sequence[ReplyTarget] = ()) -> bool:
        """Keep the outcome of the first leg; those of later ones are found by the state that leads to them.

        Returns:
            whether it is sent to the targets from here, once it is stored.
        """
        if self.answered or (outcome is None and self.stored is not None):
            return False
        self.answered = True
        if self.stored is None:
            self.keep(outcome)
            return False
        self.stored.store_and_answer(self, outcome, targets)
        return True

    def keep(self, outcome: LegOutcome) -> None:
        """Give this outcome to repeats."""
        self.outcome = outcome
        self._calls.draw(self, len(outcome.raw) if isinstance(outcome, Encoded) else 0)

    def outcome_stored(self, outcome: LegOutcome) -> None:
        """Give this outcome to repeats, none of which waits any more."""
        self.keep(outcome)
        self.waiting = None
        if self.call is None:
            self._calls.ended(self)

    def end_with(self, outcome: LegOutcome) -> None:
        """The request was answered with this, and no call is left that could be joined."""
        self.end_leg(outcome)
        self.end()

    def end(self) -> None:
        """The call is over."""
        self.call = None
        if self.stored is not None and not self.answered:
            self.stored.leave()
            self.drop()
        elif self.waiting is None:
            self._calls.ended(self)

    def drop(self) -> None:
        """Forget the key: nothing has run under it, or the store knows what has."""
        self._calls.drop(self)

    def decide(self, *, is_abandoned: bool) -> Repeat:
        """Decide what a repeat gets.

        Args:
            is_abandoned: the call is being cancelled because its client has gone.
        """
        if self.outcome is not None:
            return Repeat.OUTCOME
        if self.waiting is not None:
            return Repeat.WAIT
        return Repeat.LOST if self.answered or is_abandoned else Repeat.JOIN


class KeyedCalls(Generic[C]):
    """The keys of the calls of one service.

    Args:
        grace: seconds for which an outcome is kept after its call is over.
        memory: the budget that keys and outcomes are kept in; where that has no room for a caller its oldest go.
    """

    __slots__ = ("_account", "_dropping", "_forgotten_until", "_grace", "_kept", "_open", "_used")

    def __init__(self, grace: float, memory: MemoryBudget) -> None:
        self._grace = grace
        self._open: dict[bytes, KeyedCall[C]] = {}
        outcomes, sizes = Quota(KEYED_OUTCOMES), Quota(KEYED_OUTCOME_BYTES)
        self._kept: OldestFirst[bytes, KeyedCall[C]] = OldestFirst(outcomes, sizes, self._outcome_dropped)
        self._used: OldestFirst[bytes, tuple[float, bytes]] = OldestFirst(Quota(USED_KEYS), None, self._key_dropped)
        """When each key is forgotten whose outcome is gone, and the digest of its request."""
        self._dropping = trio.lowlevel.ParkingLot()
        self._forgotten_until: dict[str | None, float] = {}
        self._account = memory.open_table()

    def find(self, key: CallKey) -> KeyedCall[C] | None:
        """Return the call under a key, or what is left of it while its outcome is kept.

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

    def begin(self, key: CallKey, call: C | None) -> KeyedCall[C]:
        """Note that a call has begun under this key, in place of one that was lost; None for one that becomes a task."""
        if (lost := self._kept.pop(key.digest)) is not None:
            self._account.give_back(lost[0].size, key.owner)
        elif self._used.pop(key.digest) is not None:
            self._account.give_back(KEY_SIZE, key.owner)
        keyed = self._open[key.digest] = KeyedCall(key, call, self)
        self._account.draw(KEY_SIZE, key.owner)
        return keyed

    def draw(self, keyed: KeyedCall[C], size: int) -> None:
        """Count the bytes of an outcome."""
        keyed.size += size
        self._account.draw(size, keyed.key.owner)
        if self._kept.get(keyed.key.digest) is keyed:
            self._kept.grow(keyed.key.digest, size)

    def drop(self, keyed: KeyedCall[C]) -> None:
        """Forget a key without an outcome."""
        if self._open.get(keyed.key.digest) is keyed:
            del self._open[keyed.key.digest]
        self._account.give_back(keyed.size, keyed.key.owner)

    def ended(self, keyed: KeyedCall[C]) -> None:
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

    def _outcome_dropped(self, digest: bytes, kept: Kept[KeyedCall[C]]) -> None:
        self._keep_key(digest, kept[0])

    def _keep_key(self, digest: bytes, keyed: KeyedCall[C]) -> None:
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
        """Drop each outcome, and then its key, when its time is up, for ever; run it as a task."""
        while True:
            times = [time for time in (self._first_outcome_until(), self._first_key_until()) if time is not None]
            with trio.move_on_at(min(times, default=float("inf"))):
                # Woken when the first outcome is kept; the others are over later than it is.
                await self._dropping.park()
            now = trio.current_time()
            while (until := self._first_outcome_until()) is not None and until <= now:
                self._kept.evict_oldest()
            # Keys whose outcomes were evicted early are removed late by at most the grace period.
            while (until := self._first_key_until()) is not None and until <= now:
                over = self._used.pop(next(iter(self._used)))
                self._account.give_back(KEY_SIZE, None if over is None else over[1])

    def _first_outcome_until(self) -> float | None:
        first = self._kept.first
        return None if first is None else first.until

    def _first_key_until(self) -> float | None:
        first = self._used.first
        return None if first is None else first[0]

    def close(self) -> None:
        """Forget all keys, and give back what they took of the memory budget."""
        self._open.clear()
        self._kept.close()
        self._used.close()
        self._account.close()

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"<KeyedCalls open={len(self._open)} kept={len(self._kept)} used={len(self._used)}>"
