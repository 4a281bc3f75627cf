"""Which process runs a call in rounds, of those that share a durable store: the one whose name is in the claim of the call.

A `requestState` can reach several processes, in any order, and with it a call could go on in each of them. A call has one record,
its *claim*, and every write of its log names the version of that record. So of two processes the first that writes has the call;
no step of the other one runs, and nothing of it gets into the log.

Each leg after the first is claimed before it begins, also by the process in which the call is parked: of several that get the
same leg, one runs it. A process that replays a call reads the log then: nothing is added to what it reads. One in which the call
is parked, and which has been overtaken, forgets it, as what another process has done since is in the log alone. It goes on as
any other process does, once the other one has ended.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

import trio

from ...base.named_tuples import NamedTuple
from ...protocol.strict_json import dumps
from ...storage import Change, Expect, Put, Record, Store, StoreConflict, StoreError
from .settling import FencedRecord, Settling, Unsettled

# What is in the claim, and what a process gets that is about to run the leg after leg `n`:
#
#     the claim names             because                                         the process
#     none, or no process         no process has claimed it, or it was          claims it
#                                 given back
#     itself                      the call is parked here                         claims the next leg
#     itself                      it replayed the call, and forgot it             claims it again, for another run
#     one that has ended                                                          takes it over
#     one that lives, a leg < n   and has sealed this state: it ended that leg,   takes it over
#                                 and has begun no step since
#     one that lives, otherwise   it may run a step, or has what is newer         refuses the request: -32000
#
# The claim also names the run that has written to the log last, or was parked and has claimed the leg that runs. As long as that
# is its own, or none, a run goes on although another one has claimed the call meanwhile, as it took this process for dead: it
# puts its own claim in the place of the other, which then has lost the call. A call that is parked here, and whose log another
# run has written to, is out of date: it is replayed.
#
# A process that has claimed a call and starts none gives the claim back: it puts there again what was there before. The store may
# be late: see `settling.py` for what is unknown, and for the task that writes it again. The next request for the call
# in this process goes on with the same record, whose write is the fence.


CLAIM_KIND: Final = "claim"
"""The kind of the records in a store."""

ATTEMPTS: Final = 3
"""How often another process may be faster, or a claim may expire while it is read."""

MOST_OVERTAKEN: Final = 1000
"""Calls of which it is remembered that they were parked here, and went on elsewhere."""

GIVE_BACK_SECONDS: Final = 2.0
"""Seconds for which a request waits until the claim of a call that it has not started is given back."""

GIVEN_BACK_SECONDS: Final = 60.0
"""For how long a claim is kept at least that was given back: longer than a write can be late."""


class Claimant(NamedTuple):
    """Who runs a call, as the record says.

    Attributes:
        node: the process; empty for none.
        leg: the leg that had ended when it last claimed the call.
        run: names one run of the call.
        writer: the run that has written to the log last; empty for none.
    """

    node: str = ""
    leg: int = 0
    run: str = ""
    writer: str = ""

    def encode(self) -> bytes:
        return dumps([self.node, self.leg, self.run, self.writer])

    @classmethod
    def decode(cls, data: bytes) -> Claimant:
        """Read what `encode` wrote. Raises `StoreError` for anything else: another version of this package wrote it."""
        try:
            node, leg, run, writer = cast("tuple[str, int, str, str]", json.loads(data))
        except (TypeError, ValueError) as error:
            raise StoreError(f"the claim of a call is not one of this version: {error}") from None
        return cls(node, leg, run, writer)


UNCLAIMED: Final = Claimant()


def after(mine: Claimant, before: Claimant) -> Claimant:
    """Return what is put in the place of a claim: the run that has written to the log last stays named, if it is another one."""
    return mine if before.writer in ("", mine.writer) else mine._replace(writer=before.writer)


@dataclass(slots=True, eq=False)
class CallClaim:
    """A call that this process has claimed, or tries to.

    Attributes:
        mine: what it puts into the record.
        before: what was there.
        before_until: when that expires, in Unix seconds.
        caller: the principal that the call belongs to.
        unsettled: gives the claim back, after a first attempt has failed.
    """

    record: FencedRecord
    mine: Claimant
    before: Claimant = UNCLAIMED
    before_until: float = 0.0
    caller: str | None = None
    unsettled: Unsettled | None = None

    @property
    def is_overtaken(self) -> bool:
        """Whether another run has written to the log, so that what is parked here is out of date."""
        return self.mine.writer != self.mine.run


@dataclass(slots=True, eq=False)
class CallClaims:
    """The claims of one service.

    Args:
        node: returns the name of this process.
        lifetime: seconds for which a claim counts: no less than that of a state.
    """

    _store: Store
    _node: Callable[[], str]
    _lifetime: float
    _settling: Settling
    _runs: int = field(default=0, init=False)
    _turns: dict[str, trio.Event] = field(default_factory=dict[str, trio.Event], init=False)
    """The calls that are being claimed here."""
    _given_back: dict[str, CallClaim] = field(default_factory=dict[str, CallClaim], init=False)
    """Claims of which the store has not confirmed that they were given back."""
    _overtaken: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None], init=False)

    def note_overtaken(self, call_id: str) -> None:
        """Note that a call was parked here, and that another process runs it now."""
        self._overtaken[call_id] = None
        if len(self._overtaken) > MOST_OVERTAKEN:
            self._overtaken.popitem(last=False)

    def was_overtaken(self, call_id: str) -> bool:
        """Return whether a call that was parked here may go on here once more, when the process that runs it has ended."""
        return call_id in self._overtaken

    @asynccontextmanager
    async def turn(self, call_id: str) -> AsyncGenerator[None]:
        """Let one request at a time claim a call and start it: a copy that waits finds the call, or makes the next attempt."""
        while (other := self._turns.get(call_id)) is not None:
            await other.wait()
        done = self._turns[call_id] = trio.Event()
        try:
            yield
        finally:
            del self._turns[call_id]
            done.set()

    async def claim(
        self, call_id: str, leg: int, sealed_by: str, caller: str | None = None, held: HeldCall | None = None
    ) -> CallClaim | None:
        """Claim a call for a run from the end of this leg on; return None if another process runs it. Take a `turn` first.

        Either start the call or give the claim back.

        Args:
            sealed_by: the process that sealed the state.
            caller: the principal that the call belongs to.
            held: what says that this process runs the call, which is parked here; None for a new run.

        Raises:
            LimitExceeded: too many records are not settled.
            StoreError: whatever the store raises; nothing may be run. So it is after a cancel.
        """
        mine = self._mine(leg) if held is None else held.next_claimant(leg)
        claim = taken_back = self._take_back(call_id)
        if claim is None:
            self._settling.check_room(caller)
            claim = CallClaim(FencedRecord(self._store, CLAIM_KIND, call_id), mine, caller=caller)
            if held is not None:
                held.describe(claim)
        claim.mine = after(mine, claim.before)
        for _ in range(ATTEMPTS):
            try:
                await claim.record.put(claim.mine.encode(), time.time() + self._lifetime)
            except StoreConflict:
                found = await self._store.read(CLAIM_KIND, call_id)
            except BaseException:
                # It may be there later. A claim that was taken back still has to be given back, even if this write was certainly
                # not made.
                if claim is taken_back or not claim.record.is_known:
                    self._give_back_later(claim)
                raise
            else:
                return claim
            claim = self._after(call_id, mine, found, caller)
            if not await self._is_free(claim.before, leg, sealed_by):
                return None
        raise StoreConflict("other processes claim the same call, again and again")

    def held(
        self, call_id: str, leg: Callable[[], int], on_lost: Callable[[], None], claim: CallClaim | None = None
    ) -> HeldCall:
        """Return what says that this process runs a call.

        Args:
            leg: returns the leg that has ended last.
            on_lost: called when another process runs the call.
            claim: that of the call; None if this process has not claimed it.
        """
        if claim is None:
            return HeldCall(self._store, call_id, self._mine(leg()), leg, self._lifetime, on_lost)
        return HeldCall(self._store, call_id, claim.mine, leg, self._lifetime, on_lost, claim.record.version)

    def _mine(self, leg: int) -> Claimant:
        self._runs += 1
        return Claimant(self._node(), leg, f"{self._node()} {self._runs}")

    def _take_back(self, call_id: str) -> CallClaim | None:
        """Go on with a record that is not settled: the next write of it fences those that may still come."""
        claim = self._given_back.pop(call_id, None)
        if claim is not None and claim.unsettled is not None:
            claim.unsettled.stop()
            claim.unsettled = None
        return claim

    def _after(self, call_id: str, mine: Claimant, found: Record | None, caller: str | None) -> CallClaim:
        if found is None:
            return CallClaim(FencedRecord(self._store, CLAIM_KIND, call_id), mine, caller=caller)
        record = FencedRecord(self._store, CLAIM_KIND, call_id, version=found.version, value=found.value)
        before = Claimant.decode(found.value)
        return CallClaim(record, after(mine, before), before, found.expires_at, caller)

    async def _is_free(self, other: Claimant, leg: int, sealed_by: str) -> bool:
        """Return whether this process may run a call that another one has claimed; see the table above."""
        if other.node in ("", self._node()) or (other.leg < leg and other.node == sealed_by):
            return True
        return not await self._store.is_alive(other.node)

    async def give_back(self, claim: CallClaim) -> None:
        """Let other processes have a call that was claimed and not started; return after the first attempt.

        It is made also while the caller is cancelled. If it fails, it is made again in a task.
        """
        self._given_back[claim.record.key] = claim
        # The request still has its turn: no other one takes the claim back before `unsettled` is set.
        attempt = partial(self._put_back, claim)
        claim.unsettled = await self._settling.settle(attempt, claim.caller, GIVE_BACK_SECONDS)

    def _give_back_later(self, claim: CallClaim) -> None:
        self._given_back[claim.record.key] = claim
        claim.unsettled = self._settling.begin(partial(self._put_back, claim), claim.caller)

    async def _put_back(self, claim: CallClaim) -> None:
        # Nothing is awaited between this and the turn at the record: who takes it back writes after this.
        if self._given_back.get(claim.record.key) is not claim:
            return
        expires_at = max(claim.before_until, time.time() + GIVEN_BACK_SECONDS)
        try:
            await claim.record.put(claim.before.encode(), expires_at)
        except StoreConflict:
            self._forget(claim)
            raise
        self._forget(claim)

    def _forget(self, claim: CallClaim) -> None:
        if self._given_back.get(claim.record.key) is claim:
            del self._given_back[claim.record.key]


@dataclass(slots=True, eq=False)
class HeldCall:
    """Says that this process runs a call (`Holding`): by a claim, which it makes before a leg, or with its first write in one.

    Args:
        mine: the claim of this run.
        version: of the record; 0 if there is none.
    """

    _store: Store
    _call_id: str
    _mine: Claimant
    _leg: Callable[[], int]
    _lifetime: float
    _on_lost: Callable[[], None]
    _version: int = 0
    _has_written: bool = field(default=False, init=False)
    """The record says that this run has written to the log last."""

    def next_claimant(self, leg: int) -> Claimant:
        """Return what claims the leg after `leg` for the call that is parked here."""
        return self._mine._replace(leg=leg, writer=self._mine.run)

    def describe(self, claim: CallClaim) -> None:
        """Let a claim go on from the record as it was written here last."""
        if self._version:
            claim.record.version, claim.before = self._version, self._mine
            claim.before_until = time.time() + self._lifetime

    def take(self, claim: CallClaim) -> None:
        """Go on under a claim that was made for this run."""
        self._know(claim.mine, claim.record.version)

    def held(self) -> Sequence[Change]:
        leg = self._leg()
        if self._has_written and leg <= self._mine.leg:
            return [Expect(CLAIM_KIND, self._call_id, self._version)]
        value = self._mine._replace(leg=leg, writer=self._mine.run).encode()
        expires_at = time.time() + self._lifetime
        return [Put(Record(CLAIM_KIND, self._call_id, value, expires_at=expires_at, version=self._version))]

    def kept(self, changes: Sequence[Change]) -> None:
        match changes:
            case [Put(claim)]:
                self._know(Claimant.decode(claim.value), claim.version + 1)

    async def renew(self) -> bool:
        found = await self._store.read(CLAIM_KIND, self._call_id)
        # After its time there is none, and no state either of which another process could know.
        claimant, version = (UNCLAIMED, 0) if found is None else (Claimant.decode(found.value), found.version)
        if claimant.writer not in ("", self._mine.run):
            return claimant.run == self._mine.run and self._know(claimant, version)
        return self._know(claimant, version)

    def _know(self, claimant: Claimant, version: int) -> bool:
        self._version, self._has_written = version, claimant.run == claimant.writer == self._mine.run
        if self._has_written:
            self._mine = claimant
        return True

    def lost(self) -> None:
        self._on_lost()
