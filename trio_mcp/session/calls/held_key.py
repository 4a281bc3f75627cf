"""The record of an idempotency key, as what says that this process runs its call: the call's log is written with its version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...storage import Change, Expect, Store
from ..recovery.log import Holding
from .stored_keys import KEY_KIND, Claim, StoredKey


@dataclass(slots=True, eq=False)
class HeldKey(Holding):
    """Says that this process runs the call of a key that it has claimed.

    Args:
        on_lost: called when another process runs it.
    """

    _store: Store
    _claim: Claim
    _on_lost: Callable[[], None]
    _is_over: bool = field(default=False, init=False)
    """This process has settled the key: a legacy session has the call now, or its outcome is stored."""

    def held(self) -> Sequence[Change]:
        return [] if self._is_over else [Expect(KEY_KIND, self._claim.name, self._claim.record.version)]

    async def renew(self) -> bool:
        found = await self._store.read(KEY_KIND, self._claim.name)
        if found is None:
            return False
        # Another process puts its own name first, in the version after this one, and settles the key in a later one.
        is_next = found.version == self._claim.record.version + 1
        self._is_over = is_next and StoredKey.decode(found.value).is_over
        return self._is_over or found.version == self._claim.record.version

    def lost(self) -> None:
        self._on_lost()
