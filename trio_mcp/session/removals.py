"""Removing from a store what must not start a call, or a session, again: tried until the store has done it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from ..backoff import Backoff
from ..logs import RepeatedRecords
from ..runtime import Supervisor
from ..storage import StoreConflict

Removal: TypeAlias = Callable[[], Awaitable[object]]
"""Removes something from a store. It may be done twice, and raises `StoreConflict` if there is nothing to remove any more."""

ATTEMPT_SECONDS: Final = 5.0
"""How long the store may take for one attempt."""

LAST_SECONDS: Final = 2.0
"""How long the last attempts may take when the server is shut down."""

MOST_WAITING: Final = 10_000
"""Removals that may wait for the store; the oldest is given up for a further one."""

BACKOFF: Final = Backoff(first=0.5)

NOT_REMOVED: Final = "the store did not remove what is over; it is tried again"
GIVEN_UP: Final = "a store failed for so long that something was not removed, and may go on in another process"


class Removals:
    """Tries removals again that a store may not have made.

    A task of the supervisor does so while there are any. When the server is shut down, each is tried once more.

    Args:
        records: counts how often the store failed.
    """

    __slots__ = ("_is_running", "_records", "_supervisor", "_waiting")

    def __init__(self, supervisor: Supervisor, records: RepeatedRecords) -> None:
        self._supervisor = supervisor
        self._records = records
        self._waiting: deque[Removal] = deque()
        self._is_running = False

    def add(self, removal: Removal) -> None:
        """Try a removal soon, and again until it is done."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._records.log(GIVEN_UP, level=logging.ERROR)
        self._waiting.append(removal)
        if not self._is_running:
            self._is_running = True
            self._supervisor.spawn(self._run)

    async def _run(self) -> None:
        failures = 0
        try:
            while self._waiting:
                await trio.sleep(BACKOFF.delay(failures))
                failures = 0 if await self._try_all() else failures + 1
        finally:
            self._is_running = False
            with trio.CancelScope(shield=True), trio.move_on_after(LAST_SECONDS):
                await self._try_all()

    async def _try_all(self) -> bool:
        """Try those that wait until one fails; return whether none did."""
        while self._waiting:
            # The one that fails waits behind the others: what is wrong may be wrong with it alone.
            removal = self._waiting[0]
            self._waiting.rotate(-1)
            if not await self._is_done(removal):
                return False
            # It may have been given up for others meanwhile.
            if removal in self._waiting:
                self._waiting.remove(removal)
        return True

    async def _is_done(self, removal: Removal) -> bool:
        try:
            with trio.fail_after(ATTEMPT_SECONDS):
                await removal()
        except StoreConflict:
            return True
        except Exception as error:  # noqa: BLE001  whatever a store raises
            self._records.log(NOT_REMOVED, level=logging.ERROR, exc_info=error)
            return False
        return True

    def __repr__(self) -> str:
        return f"<Removals {len(self._waiting)}>"
