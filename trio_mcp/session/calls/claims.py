"""Which process carries a leg on, of those that share a durable store: the first that claims it.

A `requestState` can reach several processes, and a call whose process has ended could then go on in each of them.

A process that replays a call claims the leg first. One in which the call is parked goes on without: it claims the leg with the
first step that it runs, in the same write as the intent (`HeldLeg`). Of the two, the first that writes has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...storage import Change, Expect, Put, Record, Store, StoreConflict

CLAIM_KIND: Final = "claim"
"""The kind of the records in a store."""

ATTEMPTS: Final = 3
"""How often another process may be faster, or a claim may expire while it is read."""


class LegClaim(NamedTuple):
    """Who carries on a call after a leg, by the record in the store and its version."""

    node: str
    version: int


async def claim_leg(store: Store, node: str, call_id: str, leg: int, lifetime: float) -> LegClaim:
    """Return who carries on a call after this leg: this process, or another that claimed it first and lives.

    The claim of a process that has ended is taken over, by one other. A process may claim a leg again, as it does for a copy of
    the request. After a cancel the leg may be claimed.

    Args:
        node: this process.
        lifetime: seconds for which the claim counts: no less than that of the state.

    Raises:
        StoreError: whatever the store raises; the leg may be claimed.
    """
    claim = new_claim(node, call_id, leg, lifetime)
    for _ in range(ATTEMPTS):
        try:
            await store.write([Put(claim)])
        except StoreConflict:
            found = await store.read(CLAIM_KIND, claim.key)
        else:
            return LegClaim(node, claim.version + 1)
        if found is not None:
            holder = found.value.decode()
            if holder == node or await store.is_alive(holder):
                return LegClaim(holder, found.version)
        claim = claim._replace(version=0 if found is None else found.version)
    raise StoreConflict("other processes claim the same leg, again and again")


def new_claim(node: str, call_id: str, leg: int, lifetime: float) -> Record:
    """Return the record that claims a leg."""
    return Record(CLAIM_KIND, f"{call_id}.{leg}", node.encode(), expires_at=time.time() + lifetime)


@dataclass(slots=True, eq=False)
class HeldLeg:
    """Says that this process carries a call on (`Holding`): the claim of the leg that it runs, which it makes if there is none.

    Args:
        leg: returns the leg that has ended last, which is the one to claim.
        lifetime: seconds for which a claim counts.
        on_lost: called when another process carries the call on.
        claimed: the leg that this process has claimed already, and the version of its record.
    """

    _store: Store
    _node: str
    _call_id: str
    _leg: Callable[[], int]
    _lifetime: float
    _on_lost: Callable[[], None]
    _claimed: tuple[int, int] = (-1, 0)

    def held(self) -> Sequence[Change]:
        leg = self._leg()
        if leg == self._claimed[0]:
            return [Expect(CLAIM_KIND, f"{self._call_id}.{leg}", self._claimed[1])]
        return [Put(new_claim(self._node, self._call_id, leg, self._lifetime))]

    def kept(self, changes: Sequence[Change]) -> None:
        match changes:
            case [Put(claim)]:
                self._claimed = (int(claim.key.rpartition(".")[2]), claim.version + 1)

    async def renew(self) -> bool:
        leg = self._leg()
        found = await self._store.read(CLAIM_KIND, f"{self._call_id}.{leg}")
        if found is not None and found.value.decode() != self._node:
            return False
        self._claimed = (-1, 0) if found is None else (leg, found.version)
        return True

    def lost(self) -> None:
        self._on_lost()
