"""Records whose last write is unknown: each is written again, with growing pauses, until the store says what it has.

What must not start a call again is removed from the store in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ...base.backoff import RECONNECT_BACKOFF, Backoff
from ...base.logs import RepeatedRecords
from ...base.named_tuples import NamedTuple
from ...base.shared_limits import UNSETTLED
from ...runtime import MemoryBudget, Supervisor
from ...runtime.quota import Quota
from ...storage import Change, Fenced, Put, Record, Store, StoreConflict, StoreFull, UnreadableRecord
from ..envelope import UNSETTLED_SIZE

AT_ONCE: Final = 16
"""How many of them are written at a time: a store that is slow must not get more slow by it."""

SETTLE_BACKOFF: Final[Backoff] = RECONNECT_BACKOFF

LAST_SECONDS: Final = 2.0
"""How long the last attempts may take when the server is shut down."""


@dataclass(slots=True, eq=False)
class Unsettled:
    """A record that is written again until it is known.

    Attributes:
        caller: whose it is.
        is_counted: it counts in the limit. What runs already may add one that there is no room for, which does not: it would take
            the room of other callers.
    """

    size: int
    caller: Hashable | None
    is_counted: bool
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def stop(self) -> None:
        """Leave the record as it is; what is written at this moment is unknown."""
        self.scope.cancel()


class Settling:
    """The unsettled records of one service. Each has a task of the supervisor, which tries once more as the server is shut down.

    Callers share the limit of how many there are; a caller is a principal, or None. One that has no room for another begins no
    work that would write it.

    Args:
        memory: the budget that they are kept in.
        records: counts how often the store failed.
    """

    def __init__(self, supervisor: Supervisor, memory: MemoryBudget, records: RepeatedRecords) -> None:
        self._supervisor = supervisor
        self._account = memory.open_table()
        self._records = records
        self._unsettled: set[Unsettled] = set()
        self._quota = Quota(UNSETTLED)
        self._turns = trio.CapacityLimiter(AT_ONCE)

    def check_room(self, caller: Hashable | None) -> None:
        """Raise `LimitExceeded` if a caller may not begin work whose record would be one too many."""
        self._quota.check(caller)
        self._account.check(UNSETTLED_SIZE, caller)

    def has_room(self, size: int, caller: Hashable | None) -> bool:
        """Return whether these bytes may be kept for a record of a caller."""
        return self._account.has_room(size, caller)

    async def settle(
        self, attempt: Callable[[], Awaitable[None]], caller: Hashable | None, seconds: float
    ) -> Unsettled | None:
        """Make an attempt, also while the caller is cancelled, and go on in a task if it fails.

        Args:
            caller: whose the record is.
            seconds: for which the first attempt is waited for.

        Returns:
            the record, if it is not settled yet.
        """
        is_settled = False
        with trio.move_on_after(seconds, shield=True):
            is_settled = await self.has_settled(attempt)
        return None if is_settled else self.begin(attempt, caller)

    def begin(self, attempt: Callable[[], Awaitable[None]], caller: Hashable | None = None, size: int = 0) -> Unsettled:
        """Make attempts in a task, the first after a pause, until one of them settles the record.

        Args:
            caller: whose it is.
            size: bytes that are kept for it.
        """
        unsettled = Unsettled(UNSETTLED_SIZE + size, caller, self._quota.refusal(caller) is None)
        self._unsettled.add(unsettled)
        if unsettled.is_counted:
            self._quota.add(caller)
        self._account.draw(unsettled.size, caller)
        self._supervisor.spawn(self._run, unsettled, attempt)
        return unsettled

    async def _run(self, unsettled: Unsettled, attempt: Callable[[], Awaitable[None]]) -> None:
        failures, is_settled = 0, False
        try:
            with unsettled.scope:
                while not is_settled:
                    await trio.sleep(SETTLE_BACKOFF.delay(failures))
                    failures += 1
                    async with self._turns:
                        is_settled = await self.has_settled(attempt)
        finally:
            if not is_settled and not unsettled.scope.cancel_called:
                with trio.CancelScope(shield=True), trio.move_on_after(LAST_SECONDS):
                    await self.has_settled(attempt)
            self._unsettled.remove(unsettled)
            if unsettled.is_counted:
                self._quota.give_back(unsettled.caller)
            self._account.give_back(unsettled.size, unsettled.caller)

    async def has_settled(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Make an attempt; return whether the record is settled. A failure is logged.

        Args:
            attempt: raises `StoreConflict` if the record is another's now, and anything else if it has to be made again.
        """
        try:
            await attempt()
        except StoreConflict as error:
            self._records.log("a record was not written: %s", error)
        except Exception as error:  # noqa: BLE001  whatever a store raises
            self._records.log("the store did not keep what a call has done; it is written again: %s", error)
            return False
        return True

    def __len__(self) -> int:
        return len(self._unsettled)

    def __repr__(self) -> str:
        return f"<Settling {len(self)}>"


# A record that one process writes in a store whose writes may be made late: after their time limit, in any order, or never.
#
# A write that fails without a conflict is *unknown*: nothing says whether it will be made. But every `Put` names the version
# that
# it replaces, so of all writes that name one version at most one is made, and versions of a record only rise while it exists.
# So
# the next write is the fence: once it is made, the unknown ones never are; if it is a conflict, a read shows which of them
# was.

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
            StoreFull, Fenced: nothing was written.
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
                except (StoreFull, Fenced):
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
