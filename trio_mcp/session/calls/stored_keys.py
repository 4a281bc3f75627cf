"""Idempotency keys in a durable store: the next process knows what ran under a key, has its outcome, or goes on with it.

A call that must not run twice claims its key before its body runs; its outcome is stored before it is answered. So a key that is
not in the store is one of a call that has not run. Calls that may run twice (`runs_again`) claim nothing, unless a task may come
of them, since it must be one.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, cast

import trio

from ...base.logs import RepeatedRecords
from ...base.shared_limits import STORED_OUTCOMES
from ...errors import LimitExceeded
from ...protocol.jsonrpc import Encoded, ErrorDetail
from ...protocol.strict_json import dumps
from ...runtime import Supervisor
from ...runtime.quota import Quota
from ...storage import Change, Forget, Put, Record, Store, StoreConflict, StoreError, StoreTimeout
from ...types import JsonValue
from ..recovery.log import LOG_KIND
from ..recovery.settling import FencedRecord, Settling, Unsettled
from ..replies import LegOutcome
from .repeats import KEY_LIFE, CallKey, other_request

# How many bytes of outcomes one process keeps in the store: no caller can fill the room of the others.

ANYBODY = ""
"""The owner of what callers without a principal have stored: no principal is empty."""


@dataclass(slots=True, eq=False)
class OutcomeRoom:
    """The room, in bytes, and who has taken what of it until when.

    Args:
        clock: the time in Unix seconds.
    """

    limit: int
    _clock: Callable[[], float]
    _taken: deque[tuple[float, str, int]] = field(default_factory=deque[tuple[float, str, int]])
    """When each outcome expires, whose it is, and its size; all are kept for the same time."""
    _quota: Quota = field(init=False)

    def __post_init__(self) -> None:
        self._quota = Quota(STORED_OUTCOMES, self.limit)

    def take(self, owner: str | None, size: int, seconds: float) -> bool:
        """Take room for an outcome; return False, and take nothing, if there is none.

        Args:
            owner: the principal; callers without one share what one owner may have.
            seconds: for which it is kept.
        """
        now = self._clock()
        while self._taken and self._taken[0][0] <= now:
            self._quota.give_back(*self._taken.popleft()[1:])
        # Callers without a principal share one caller's part.
        holder = ANYBODY if owner is None else owner
        if self._quota.refusal(holder, size) is not None:
            return False
        self._quota.add(holder, size)
        self._taken.append((now + seconds, holder, size))
        return True


# The record of a key, and what a repeat of its request gets from another process:
#
#     event                          record            a repeat
#     claim                          open, of a node   waits while the node lives; else adopts it: see `Claim.is_adopted`
#     the first leg has an outcome   over, with it     the outcome, for KEY_LIFE
#     cancelled for its client       open, of no node  adopts it
#     nothing has run                unused            claims it
#     a legacy session keeps it      over, without     LOST: the session goes on with it
#
# A call that was adopted runs again with what its log has, if its tool may be replayed; else it is LOST.
#
# The store may be late. Every write below names the version that was read or written last, so that the next one fences those
# whose outcome is unknown. A task writes it again until it is known (`settling.py` has both). What the record is to be then
# is in `_wanted`, and a repeat in this process goes by that, whatever the store has:
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


KEY_KIND: Final = "key"
"""The kind of the records of keys."""

NODE_KIND: Final = "node"
"""The kind of the records of processes that have used the store."""

OPEN_SECONDS: Final = 86400.0
"""For how long the key of a call is kept whose process ended."""

NODE_SECONDS: Final = 7 * 86400.0
"""For how long a process is known that used the store."""

UNUSED_SECONDS: Final = 60.0
"""For how long it is kept that nothing has run under a key: longer than a write can be late."""

MAX_STORED_BYTES: Final = STORED_OUTCOMES.limit
"""Bytes of outcomes that one process keeps in the store at a time; a further one is stored without its bytes. One owner may have
half, and a quarter while others need room."""


MOST_REFUSALS: Final = 3
"""How often the store may refuse an outcome, before it is asked to take the key without."""


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
class Claim:
    """A key that this process has claimed for a call.

    Attributes:
        is_adopted: an earlier run may have left something in the log of the key.
    """

    key: CallKey
    record: FencedRecord
    is_adopted: bool = False

    @property
    def name(self) -> str:
        """Names the record, and the log of what runs under the key."""
        return self.key.digest.hex()


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
class StoredKeys:
    """The keys in the store of a service.

    Args:
        node: names this process.
        grace: seconds for which an outcome is kept in memory too.
        records: counts how often the store failed.
        supervisor: has the tasks that write without being waited for.
    """

    _store: Store
    _node: str
    _grace: float
    _records: RepeatedRecords
    _supervisor: Supervisor
    _settling: Settling
    _clock: Callable[[], float] = time.time
    _room: OutcomeRoom = field(init=False)
    _claims: int = field(default=0, init=False)
    _wanted: dict[bytes, Wanted] = field(default_factory=dict, init=False)
    """What is being written, or has to be written again, by the digests of the keys."""

    def __post_init__(self) -> None:
        self._room = OutcomeRoom(MAX_STORED_BYTES, self._clock)

    async def introduce(self) -> None:
        """Let other processes know, from now on, that this one uses the store; a store that fails is logged."""
        record = Record(NODE_KIND, self._node, b"", expires_at=self._clock() + NODE_SECONDS)
        try:
            known = await self._store.read(NODE_KIND, self._node)
            await self._store.write([Put(record if known is None else record._replace(version=known.version))])
        except StoreError as error:
            self._records.log("the store did not take the name of this process: %s", error)

    async def stay_known(self) -> None:
        """Do so again every day, for ever; run it as a task."""
        while True:
            await trio.sleep(NODE_SECONDS / 7)
            await self.introduce()

    async def knows(self, node: str) -> bool:
        """Return whether a process uses this store, or used it lately. Raises `StoreError`."""
        return node == self._node or await self._store.read(NODE_KIND, node) is not None

    async def claim(self, key: CallKey) -> Claim | StoredKey:
        """Claim a key for a call; return what is known under it if that is over.

        Raises:
            RemoteProtocolError: -32602, another request has used the key.
            LimitExceeded: a process that lives runs the call, or too many records are not settled.
            StoreError: whatever the store raises; nothing may be run.
        """
        self._claims += 1
        mine, known = StoredKey(key.request.hex(), self._node, claim=self._claims), self._wanted.get(key.digest)
        if known is None:
            self._settling.check_room(key.owner)
            claim = Claim(key, FencedRecord(self._store, KEY_KIND, key.digest.hex()))
        else:
            if known.stored.request != mine.request:
                raise other_request()
            if known.stored.is_over:
                return known.stored
            claim = self._take_over(known)
        try:
            await self._put_claim(claim, mine, is_taken_over=known is not None)
        except StoreConflict:
            return await self._adopt(key, mine)
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
                self._settle_later(self._given_up(claim))
            raise

    def _given_up(self, claim: Claim) -> Wanted:
        return self._note(self._left(claim) if claim.is_adopted else self._unused(claim))

    async def _adopt(self, key: CallKey, mine: StoredKey) -> Claim | StoredKey:
        stored = await self._store.read(KEY_KIND, key.digest.hex())
        if stored is None:
            raise LimitExceeded(STILL_RUNS)
        known = StoredKey.decode(stored.value)
        if known.request != mine.request:
            raise other_request()
        if known.is_over:
            return known
        if known.node == self._node:
            # A call that runs here, and a record that is not settled, are found before.
            return known._replace(is_over=True)
        if known.node and await self._store.is_alive(known.node):
            raise LimitExceeded(STILL_RUNS)
        record = FencedRecord(self._store, KEY_KIND, stored.key, version=stored.version, value=stored.value)
        claim = Claim(key, record, is_adopted=not known.is_unused)
        try:
            await self._put_claim(claim, mine)
        except StoreConflict:
            # Another repeat was faster.
            raise LimitExceeded(STILL_RUNS) from None
        return claim

    def ending(
        self, claim: Claim, outcome: LegOutcome, owner: str | None = None, undo: Sequence[Change] = ()
    ) -> list[Change]:
        """Return the changes that store an outcome, and remove what would have been needed to go on, for a write with others.

        Args:
            owner: who may ask for the task that the outcome names.
            undo: changes that undo the others of that write.
        """
        wanted = self._over(claim, outcome, owner)
        put = claim.record.begin(wanted.stored.encode(), self._clock() + wanted.seconds, undo)
        return [put, *wanted.along]

    def handing_over(self, claim: Claim) -> list[Change]:
        """Return the changes after which a session goes on with the call, for a write with those that put it there.

        If they are made late, the call is not left to a repeat as well.
        """
        wanted = self._over(claim, None)
        put = claim.record.begin(wanted.stored.encode(), self._clock() + wanted.seconds, is_last=True)
        return [put, *wanted.along]

    def end(self, claim: Claim, outcome: LegOutcome) -> Wanted:
        """Note the outcome of a call, which repeats get from now on; `settle` stores it."""
        return self._note(self._over(claim, outcome))

    def leave(self, claim: Claim) -> None:
        """Leave a call that was cancelled for its client to a repeat."""
        self._supervisor.spawn(self.settle, self._note(self._left(claim)))

    def remove(self, claim: Claim) -> None:
        """Leave a key under which nothing has run to the next request."""
        self._supervisor.spawn(self.settle, self._note(self._unused(claim)))

    def give_up(self, claim: Claim) -> None:
        """Leave a key under which this process runs nothing to the next request, with what an earlier run has left."""
        self._supervisor.spawn(self.settle, self._given_up(claim))

    async def take_back(self, claim: Claim) -> None:
        """Leave the key of a task that was not created to the next request; return after the first attempt."""
        await self.settle(self._note(self._unused(claim)))

    def _over(self, claim: Claim, outcome: LegOutcome, owner: str | None = None) -> Wanted:
        outcome = self._bounded(claim.key.owner, outcome)
        over = StoredKey(claim.key.request.hex(), is_over=True, outcome=outcome, owner=owner)
        return Wanted(claim, over, self._grace + KEY_LIFE, [Forget(LOG_KIND, claim.name)])

    def _left(self, claim: Claim) -> Wanted:
        return Wanted(claim, StoredKey(claim.key.request.hex()), OPEN_SECONDS)

    def _unused(self, claim: Claim) -> Wanted:
        return Wanted(claim, StoredKey(claim.key.request.hex(), is_unused=True), UNUSED_SECONDS)

    def _note(self, wanted: Wanted) -> Wanted:
        """Go by this from now on, whatever the store has."""
        self._wanted[wanted.claim.key.digest] = wanted
        return wanted

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
        await wanted.claim.record.put(stored.encode(), self._clock() + wanted.seconds, wanted.along)

    def _forget(self, wanted: Wanted) -> None:
        if self._is_wanted(wanted):
            del self._wanted[wanted.claim.key.digest]

    def _is_wanted(self, wanted: Wanted) -> bool:
        return self._wanted.get(wanted.claim.key.digest) is wanted

    def _bounded(self, owner: str | None, outcome: LegOutcome) -> LegOutcome:
        """Return an outcome if there is room for it, else None: a repeat then hears that it is not known."""
        has_room = outcome is None or self._room.take(owner, size_of(outcome), self._grace + KEY_LIFE)
        return outcome if has_room else None


def size_of(outcome: Encoded | ErrorDetail) -> int:
    """Return about how many bytes an outcome takes in the store."""
    return len(outcome.raw) if isinstance(outcome, Encoded) else len(outcome.message) + len(dumps(outcome.data))


STILL_RUNS: Final = "the call that this request repeats still runs, or ends; send the request again in a moment"
