"""Which process carries a leg on, of those that share a durable store: the first that claims it.

A `requestState` can reach several processes, and a call whose process has ended could then go on in each of them.
"""

from __future__ import annotations

import time
from typing import Final

from ...storage import Put, Record, Store, StoreConflict

CLAIM_KIND: Final = "claim"
"""The kind of the records in a store."""

ATTEMPTS: Final = 3
"""How often another process may be faster, or a claim may expire while it is read."""


async def claim_leg(store: Store, node: str, call_id: str, leg: int, lifetime: float) -> str:
    """Return the process that carries on a call after this leg: this one, or another that claimed it first and lives.

    The claim of a process that has ended is taken over, by one other. A process may claim a leg again, as it does for a copy of
    the request. After a cancel the leg may be claimed.

    Args:
        node: this process.
        lifetime: seconds for which the claim counts: no less than that of the state.

    Raises:
        StoreError: whatever the store raises; the leg may be claimed.
    """
    key = f"{call_id}.{leg}"
    claim = Record(CLAIM_KIND, key, node.encode(), expires_at=time.time() + lifetime)
    for _ in range(ATTEMPTS):
        try:
            await store.write([Put(claim)])
        except StoreConflict:
            found = await store.read(CLAIM_KIND, key)
        else:
            return node
        if found is not None:
            holder = found.value.decode()
            if holder == node or await store.is_alive(holder):
                return holder
        claim = claim._replace(version=0 if found is None else found.version)
    raise StoreConflict("other processes claim the same leg, again and again")
