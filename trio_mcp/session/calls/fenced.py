"""A record that one process writes in a store whose writes may be made late: after their time limit, in any order, or never.

A write that fails without a conflict is *unknown*: nothing says whether it will be made. But every `Put` names the version that
it replaces, so of all writes that name one version at most one is made, and versions of a record only rise while it exists. So
the next write is the fence: once it is made, the unknown ones never are; if it is a conflict, a read shows which of them was.
"""

# What follows an unknown write A of the version v, when B is to be there in the end (`FencedRecord.put(B)`):
#
#     A                        B, which names v too    then
#     failed, or never lands   is made                 v + 1 is B; A can never land
#     has landed               is a conflict           a read finds A at v + 1; B is written again, and names v + 1
#     lands later              is made                 A is a conflict
#     lands later              is unknown as well      both are in `_unknown`; the next write finds one, or fences both
#     any                      another process's C     a read finds neither: the record is another's, and neither can land
#     any                      this process dies       A, B or what was before is there; the next process reads it, and its own
#                                                      write of that version fences both
#
# Nothing is removed: a record that exists again begins at version 1, and a late write that names 1 would replace it. What stands
# for nothing is a record with a short life, as no write is late by more than that. The log of a call has no version: what is
# appended late to it is not fenced.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from ...storage import Change, Put, Record, Store, StoreConflict, StoreFull, UnreadableRecord


class Attempt(NamedTuple):
    """A write that may have been made, or may be made yet.

    Attributes:
        value: what it puts there.
        along: what it changes in the same step.
        undo: what is changed with the next write if it was made, and is not wanted any more.
        is_last: if it was made, nothing of this process replaces it.
    """

    value: bytes
    along: Sequence[Change] = ()
    undo: Sequence[Change] = ()
    is_last: bool = False


@dataclass(slots=True, eq=False)
class FencedRecord:
    """One record, what this process knows of it, and which of its writes may still be made.

    Attributes:
        version: of the record when it was last known; 0 if there was none.
        value: what it was then.
    """

    _store: Store
    kind: str
    key: str
    owner: str = ""
    version: int = 0
    value: bytes | None = None
    _unknown: list[Attempt] = field(default_factory=list[Attempt])
    """They all name `version`."""
    _along: list[Change] = field(default_factory=list[Change])
    """Changes that are made with the next write."""
    _lock: trio.Lock = field(default_factory=trio.Lock)

    @property
    def is_known(self) -> bool:
        """Whether no write of this process may still be made."""
        return not self._unknown

    @property
    def is_settled(self) -> bool:
        """Whether, besides, everything was made that was to be made along with a write."""
        return not self._unknown and not self._along

    def begin(self, value: bytes, expires_at: float, undo: Sequence[Change] = (), *, is_last: bool = False) -> Put:
        """Return the change that replaces it, for a write that is made elsewhere. Until `made` it is unknown.

        Args:
            undo: changes that undo the others of that write; a later `put` makes them if it finds that it was made.
            is_last: a later `put` that finds that it was made is a conflict.
        """
        self._unknown.append(Attempt(value, undo=undo, is_last=is_last))
        return self._change(value, expires_at)

    def made(self, value: bytes) -> None:
        """Note that the write of `begin` was made."""
        self._landed(Attempt(value))

    async def put(self, value: bytes, expires_at: float, along: Sequence[Change] = ()) -> None:
        """Replace it; return when it is so for certain, and no earlier write can be made any more.

        Args:
            along: changes that are made in the same step, or with a later write of this record if this one fails.

        Raises:
            StoreConflict: another process has written the record; nothing more of this one can be made.
            StoreFull: nothing was written.
            StoreError: it may be written yet. So it is after a cancel.
        """
        self._along += [change for change in along if change not in self._along]
        async with self._lock:
            while self.value != value or self._unknown or self._along:
                attempt = Attempt(value, tuple(self._along))
                # Before the write: a cancel leaves it unknown.
                self._unknown.append(attempt)
                try:
                    await self._store.write([self._change(value, expires_at), *attempt.along])
                except StoreConflict:
                    self._unknown.remove(attempt)
                    await self._read_back()
                except StoreFull:
                    self._unknown.remove(attempt)
                    raise
                else:
                    self._landed(attempt)

    def _change(self, value: bytes, expires_at: float) -> Put:
        return Put(Record(self.kind, self.key, value, self.owner, expires_at, self.version))

    async def _read_back(self) -> None:
        """Find the earlier write that was made. Raises `StoreConflict` if it is not one of this process."""
        try:
            found = await self._store.read(self.kind, self.key)
        except UnreadableRecord:
            # This process could read its own.
            found = None
        if found is not None and found.version == self.version + 1:
            made = [attempt for attempt in self._unknown if attempt.value == found.value]
            if made:
                # Of two with one value, the one that did less: what it did not do is done again.
                found_attempt = min(made, key=lambda attempt: len(attempt.along))
                self._landed(found_attempt)
                if found_attempt.is_last:
                    raise StoreConflict(f"this {self.kind} was handed over")
                self._along += found_attempt.undo
                return
        raise StoreConflict(f"another process has written this {self.kind}, or its time is over")

    def _landed(self, attempt: Attempt) -> None:
        self.version += 1
        self.value = attempt.value
        self._unknown.clear()
        self._along = [change for change in self._along if change not in attempt.along]
