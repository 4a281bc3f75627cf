"""Idempotency keys in a durable store: the next process knows what ran under a key, has its outcome, or goes on with it.

`session/idempotency.py` says what the record of a key has when, and what becomes of writes that the store makes late.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import trio

from ...base.logs import RepeatedRecords
from ...base.named_tuples import NamedTuple
from ...base.shared_limits import STORED_OUTCOMES
from ...errors import LimitExceeded, RemoteProtocolError
from ...protocol.jsonrpc import INVALID_PARAMS, Encoded, ErrorDetail
from ...protocol.revisions import IDEMPOTENCY_KEY
from ...protocol.strict_json import dumps
from ...runtime import Supervisor
from ...runtime.quota import Quota
from ...storage import Change, Expect, Forget, Record, Store, StoreConflict, StoreError, StoreTimeout
from ...types import JsonValue
from ..replies import LegOutcome
from .settling import FencedRecord, Settling, Unsettled
from .stored_journal import LOG_KIND, Holding

KEY_KIND: Final = "key"
"""The kind of the records of keys."""

KEY_LIFE: Final = 600.0
"""Seconds for which a key is known after the outcome of its call was dropped."""

OPEN_SECONDS: Final = 86400.0
"""For how long the key of a call is kept whose process ended."""

UNUSED_SECONDS: Final = 60.0
"""For how long it is kept that nothing has run under a key: longer than a write can be late."""

MOST_REFUSALS: Final = 3
"""How often the store may refuse an outcome, before it is asked to take the key without."""

ANYBODY: Final = ""
"""Who holds what callers without a principal have stored: they share the part of one caller, and no principal is empty."""

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at the record of a call that another process runs."""

WAIT_SECONDS: Final = 14.0
"""How long a repeat waits for such a call: over HTTP a response that is silent for longer begins, and cannot be a 503 then."""

STILL_RUNS: Final = "the call that this request repeats still runs, or ends; send the request again in a moment"


class RunsElsewhere(LimitExceeded):
    """Another process runs the call of a key, or a repeat there was faster."""


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


def other_request() -> RemoteProtocolError:
    """Return the error for a key that another request has used."""
    return RemoteProtocolError(
        f'params._meta["{IDEMPOTENCY_KEY}"]: this key was used for another request; each call needs a new one',
        code=INVALID_PARAMS,
    )


class StoredKey(NamedTuple):
    """What a store has under a key.

    Attributes:
        request: the digest of what the request asks for.
        node: the process that runs the call; empty if none does.
        is_over: nothing more is run under the key.
        outcome: of the first leg; None if it is not known.
        owner: who may ask for the task that the outcome names; None if it names none.
        is_unused: nothing has run under the key.
        claim: tells the claims of one process apart.
    """

    request: str
    node: str = ""
    is_over: bool = False
    outcome: LegOutcome = None
    owner: str | None = None
    is_unused: bool = False
    claim: int = 0

    def encode(self) -> bytes:
        members: dict[str, JsonValue] = {"request": self.request, "node": self.node, "over": self.is_over}
        if self.owner is not None:
            members["owner"] = self.owner
        if self.is_unused:
            members["unused"] = True
        if self.claim:
            members["claim"] = self.claim
        if isinstance(self.outcome, Encoded):
            members["result"] = self.outcome.raw.decode()
        elif self.outcome is not None:
            members["error"] = [self.outcome.code, self.outcome.message, self.outcome.data]
        return dumps(members)

    @classmethod
    def decode(cls, data: bytes) -> StoredKey:
        """Read what `encode` wrote. Raises `StoreError` for anything else: another version of this package wrote it."""
        try:
            members = cast("dict[str, object]", json.loads(data))
            request, node, is_over = (
                cast("str", members["request"]),
                cast("str", members["node"]),
                bool(members["over"]),
            )
            outcome: LegOutcome = None
            if "result" in members:
                outcome = Encoded(cast("str", members["result"]).encode())
            elif "error" in members:
                code, message, data_member = cast("tuple[int, str, JsonValue]", members["error"])
                outcome = ErrorDetail(code, message, data_member)
            owner, is_unused = cast("str | None", members.get("owner")), bool(members.get("unused"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"the record of an idempotency key is not one of this version: {error}") from None
        return cls(request, node, is_over, outcome, owner, is_unused)


@dataclass(slots=True, eq=False)
class Claim(Holding):
    """A key that this process has claimed for a call. Its version in the store is the proof that this process runs the call.

    What the record is to be next is noted, and repeats here go by it at once; it is written by then or later.

    Attributes:
        is_adopted: an earlier run may have left something in the log of the key.
        owner: who may ask for the task that the outcome will name; None if it names none.
        on_lost: called when another process runs the call.
    """

    _keys: KeyStore
    key: CallKey
    record: FencedRecord
    is_adopted: bool = False
    owner: str | None = field(default=None, init=False)
    on_lost: Callable[[], None] | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)
    """This process has settled the key: a legacy session has the call now, or its outcome is stored."""

    @property
    def name(self) -> str:
        """Names the record, and the log of what runs under the key."""
        return self.key.digest.hex()

    async def end(self, outcome: LegOutcome) -> None:
        """Note the outcome of a call, and store it; return after the first attempt."""
        await self._keys.settle(self._keys.over(self, outcome))

    def end_soon(self, outcome: LegOutcome, then: Callable[[LegOutcome], None]) -> None:
        """Note the outcome of a call, and store it in a task, which calls `then` with it after the first attempt."""
        self._keys.settle_soon(self._keys.over(self, outcome), partial(then, outcome))

    def leave(self) -> None:
        """Leave a call that was cancelled for its client to a repeat."""
        self._keys.settle_soon(self._keys.left(self))

    def remove(self) -> None:
        """Leave a key under which nothing has run to the next request."""
        self._keys.settle_soon(self._keys.unused(self))

    def give_up(self) -> None:
        """Leave a key under which this process runs nothing to the next request, with what an earlier run has left."""
        self._keys.settle_soon(self._keys.given_up(self))

    def creating(self, outcome: LegOutcome, undo: Sequence[Change]) -> list[Change]:
        """Return the changes that store the answer of a request which creates a task, for the write that stores the task.

        Args:
            undo: changes that undo the others of that write, for `take_back`.
        """
        wanted = self._keys.made_over(self, outcome, self.owner)
        put = self.record.begin(wanted.stored.encode(), self._keys.until(wanted), undo)
        return [put, *wanted.along]

    async def take_back(self) -> None:
        """Leave the key of a task that was not created to the next request, and undo what was, or will be, written with it.

        Returns after the first attempt, which is made also while the caller is cancelled.
        """
        await self._keys.settle(self._keys.unused(self))

    def handing_over(self) -> list[Change]:
        """Return the changes after which a session goes on with the call, for a write with those that put it there.

        If they are made late, the call is not left to a repeat as well.
        """
        wanted = self._keys.made_over(self, None)
        put = self.record.begin(wanted.stored.encode(), self._keys.until(wanted), is_last=True)
        return [put, *wanted.along]

    # the proof, for the log of the call

    def held(self) -> Sequence[Change]:
        return [] if self._is_over else [Expect(KEY_KIND, self.name, self.record.version)]

    async def renew(self) -> bool:
        found = await self._keys.read(self.name)
        if found is None:
            return False
        # Another process puts its own name first, in the version after this one, and settles the key in a later one.
        is_next = found.version == self.record.version + 1
        self._is_over = is_next and StoredKey.decode(found.value).is_over
        return self._is_over or found.version == self.record.version

    def lost(self) -> None:
        if self.on_lost is not None:
            self.on_lost()


@dataclass(slots=True, eq=False)
class Wanted:
    """What the record of a key is to be.

    Attributes:
        seconds: for which it is kept from then on.
        along: what is changed in the same step.
        unsettled: writes it, after a first attempt has failed.
        refusals: how often the store has refused it.
    """

    claim: Claim
    stored: StoredKey
    seconds: float
    along: Sequence[Change] = ()
    unsettled: Unsettled | None = None
    refusals: int = 0


@dataclass(slots=True, eq=False)
class KeyStore:
    """The keys in the store of a service.

    Args:
        node: returns the name of this process.
        grace: seconds for which an outcome is kept in memory too.
        records: counts how often the store failed.
        supervisor: has the tasks that write without being waited for.
    """

    _store: Store
    _node: Callable[[], str]
    _grace: float
    _records: RepeatedRecords
    _supervisor: Supervisor
    _settling: Settling
    _clock: Callable[[], float] = time.time
    _claims: int = field(default=0, init=False)
    _wanted: dict[bytes, Wanted] = field(default_factory=dict, init=False)
    """What is being written, or has to be written again, by the digests of the keys."""
    _quota: Quota = field(default_factory=lambda: Quota(STORED_OUTCOMES), init=False)
    """How many bytes of outcomes each caller has in the store. An outcome over its share is stored without its bytes."""
    _expiring: deque[tuple[float, str, int]] = field(default_factory=deque, init=False)
    """When each outcome expires, whose it is, and its size; all are kept for the same time."""

    async def claim(self, key: CallKey, is_wanted: Callable[[], bool] = lambda: True) -> Claim | StoredKey:
        """Claim a key for a call; return what is known under it if that is over.

        A call that another process runs is waited for, up to `WAIT_SECONDS`.

        Args:
            is_wanted: whether that is still waited for.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
            LimitExceeded: a process that lives still runs the call, or too many records are not settled.
            StoreError: whatever the store raises; nothing may be run.
        """
        self._claims += 1
        mine, known = StoredKey(key.request.hex(), self._node(), claim=self._claims), self._wanted.get(key.digest)
        if known is None:
            self._settling.check_room(key.owner)
            claim = Claim(self, key, FencedRecord(self._store, KEY_KIND, key.digest.hex()))
        else:
            if known.stored.request != mine.request:
                raise other_request()
            if known.stored.is_over:
                return known.stored
            claim = self._take_over(known)
        try:
            await self._put_claim(claim, mine, is_taken_over=known is not None)
        except StoreConflict:
            return await self._adopt_in_time(key, mine, is_wanted)
        return claim

    def _take_over(self, known: Wanted) -> Claim:
        """Go on with a record that is not settled: the next write of it fences those that may still come."""
        del self._wanted[known.claim.key.digest]
        if known.unsettled is not None:
            known.unsettled.stop()
        known.claim.is_adopted = not known.stored.is_unused
        return known.claim

    async def _put_claim(self, claim: Claim, mine: StoredKey, *, is_taken_over: bool = False) -> None:
        try:
            await claim.record.put(mine.encode(), self._clock() + OPEN_SECONDS)
        except StoreConflict:
            raise
        except (StoreError, trio.Cancelled):
            # It may be there later, of this process, which runs nothing under it. A record that was taken over still has to be
            # given up, even if this write was certainly not made.
            if is_taken_over or not claim.record.is_settled:
                self._settle_later(self.given_up(claim))
            raise

    async def _adopt_in_time(self, key: CallKey, mine: StoredKey, is_wanted: Callable[[], bool]) -> Claim | StoredKey:
        until = trio.current_time() + WAIT_SECONDS
        while True:
            try:
                return await self._adopt(key, mine)
            except RunsElsewhere:
                if trio.current_time() >= until or not is_wanted():
                    raise
            await trio.sleep(LOOK_SECONDS)

    async def _adopt(self, key: CallKey, mine: StoredKey) -> Claim | StoredKey:
        stored = await self.read(key.digest.hex())
        if stored is None:
            # Its time is over, perhaps while this process stood still: the call may have run.
            raise LimitExceeded(STILL_RUNS)
        known = StoredKey.decode(stored.value)
        if known.request != mine.request:
            raise other_request()
        if known.is_over:
            return known
        if known.node == self._node():
            # A call that runs here, and a record that is not settled, are found before.
            return known._replace(is_over=True)
        if known.node and await self._store.is_alive(known.node):
            raise RunsElsewhere(STILL_RUNS)
        record = FencedRecord(self._store, KEY_KIND, stored.key, version=stored.version, value=stored.value)
        claim = Claim(self, key, record, is_adopted=not known.is_unused)
        try:
            await self._put_claim(claim, mine)
        except StoreConflict:
            # Another repeat was faster.
            raise RunsElsewhere(STILL_RUNS) from None
        return claim

    async def read(self, name: str) -> Record | None:
        """Return the record of a key; None if there is none. Raises `StoreError`."""
        return await self._store.read(KEY_KIND, name)

    # what a record is to be

    def made_over(self, claim: Claim, outcome: LegOutcome, owner: str | None = None) -> Wanted:
        """Return the record of a call that is over, with its outcome if there is room, without what would be needed to go on.

        Args:
            owner: who may ask for the task that the outcome names.
        """
        outcome = self._bounded(claim.key.owner, outcome)
        over = StoredKey(claim.key.request.hex(), is_over=True, outcome=outcome, owner=owner)
        return Wanted(claim, over, self._grace + KEY_LIFE, [Forget(LOG_KIND, claim.name)])

    def over(self, claim: Claim, outcome: LegOutcome) -> Wanted:
        """Note that a call is over."""
        return self._note(self.made_over(claim, outcome))

    def left(self, claim: Claim) -> Wanted:
        """Note that no process runs a call, which a repeat may go on with."""
        return self._note(Wanted(claim, StoredKey(claim.key.request.hex()), OPEN_SECONDS))

    def unused(self, claim: Claim) -> Wanted:
        """Note that nothing has run under a key."""
        return self._note(Wanted(claim, StoredKey(claim.key.request.hex(), is_unused=True), UNUSED_SECONDS))

    def given_up(self, claim: Claim) -> Wanted:
        """Note that this process has run nothing under a key."""
        return self.left(claim) if claim.is_adopted else self.unused(claim)

    def _note(self, wanted: Wanted) -> Wanted:
        """Go by this from now on, whatever the store has."""
        self._wanted[wanted.claim.key.digest] = wanted
        return wanted

    def until(self, wanted: Wanted) -> float:
        """Return when a record expires that is written now, in Unix seconds."""
        return self._clock() + wanted.seconds

    def _bounded(self, owner: str | None, outcome: LegOutcome) -> LegOutcome:
        """Return an outcome if its owner has room for it, else None: a repeat then hears that it is not known."""
        now, holder = self._clock(), ANYBODY if owner is None else owner
        while self._expiring and self._expiring[0][0] <= now:
            self._quota.give_back(*self._expiring.popleft()[1:])
        size = 0 if outcome is None else size_of(outcome)
        if outcome is None or self._quota.refusal(holder, size) is not None:
            return None
        self._quota.add(holder, size)
        self._expiring.append((now + self._grace + KEY_LIFE, holder, size))
        return outcome

    # writing it

    def settle_soon(self, wanted: Wanted, then: Callable[[], None] = lambda: None) -> None:
        """Write what is wanted in a task, which calls `then` after the first attempt."""
        self._supervisor.spawn(self._settle_then, wanted, then)

    async def _settle_then(self, wanted: Wanted, then: Callable[[], None]) -> None:
        await self.settle(wanted)
        then()

    async def settle(self, wanted: Wanted) -> None:
        """Write what is wanted; return after the first attempt, also if it fails.

        It is made also while the caller is cancelled: a call may end because the server does.
        """
        with trio.CancelScope(shield=True):
            if await self._settling.has_settled(partial(self._write, wanted)):
                return
        if self._is_wanted(wanted):
            self._settle_later(wanted)

    def _settle_later(self, wanted: Wanted) -> None:
        stored, owner = wanted.stored, wanted.claim.key.owner
        size = 0 if stored.outcome is None else size_of(stored.outcome)
        if not self._settling.has_room(size, owner):
            wanted.stored, size = stored._replace(outcome=None), 0
        wanted.unsettled = self._settling.begin(partial(self._write, wanted), owner, size)

    async def _write(self, wanted: Wanted) -> None:
        # Nothing is awaited between this and the turn at the record: who takes it over writes after this.
        if not self._is_wanted(wanted):
            return
        try:
            await self._put(wanted)
        except StoreConflict:
            self._forget(wanted)
            raise
        self._forget(wanted)

    async def _put(self, wanted: Wanted) -> None:
        try:
            await self._put_as(wanted, wanted.stored)
        except (StoreConflict, StoreTimeout):
            raise
        except StoreError:
            wanted.refusals += 1
            if wanted.refusals < MOST_REFUSALS or wanted.stored.outcome is None:
                raise
            # A store that takes this and not the outcome may never take it: many have a limit for values.
            stored = wanted.stored._replace(outcome=None, owner=None)
            await self._put_as(wanted, stored)
            wanted.stored = stored

    async def _put_as(self, wanted: Wanted, stored: StoredKey) -> None:
        await wanted.claim.record.put(stored.encode(), self.until(wanted), wanted.along)

    def _forget(self, wanted: Wanted) -> None:
        if self._is_wanted(wanted):
            del self._wanted[wanted.claim.key.digest]

    def _is_wanted(self, wanted: Wanted) -> bool:
        return self._wanted.get(wanted.claim.key.digest) is wanted


def size_of(outcome: Encoded | ErrorDetail) -> int:
    """Return about how many bytes an outcome takes in the store."""
    return len(outcome.raw) if isinstance(outcome, Encoded) else len(outcome.message) + len(dumps(outcome.data))
