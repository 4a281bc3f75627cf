"""Records whose last write is unknown: each is written again, with growing pauses, until the store says what it has.

What must not start a call again is removed from the store in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

import trio

from ...backoff import RECONNECT_BACKOFF, Backoff
from ...logs import RepeatedRecords
from ...runtime import MemoryBudget, Supervisor
from ...runtime.quota import Quota
from ...shared_limits import UNSETTLED
from ...storage import StoreConflict
from ..sizes import UNSETTLED_SIZE

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
