"""Writes that wait for a few turns of the event loop, so that what is said meanwhile shares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

# A write costs as much as four turns of the event loop.
GATHERING_TURNS: Final = 4


class Gatherer:
    """Makes the writes that wait, for all connections of a server: one task for each of them would cost more than it saves."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._idle = trio.lowlevel.ParkingLot()

    def add(self, write: Callable[[], None]) -> None:
        """Call `write`, which must not raise, within `GATHERING_TURNS`."""
        self._waiting.append(write)
        self._idle.unpark()

    async def run(self) -> None:
        """Make the writes, for ever."""
        while True:
            if not self._waiting:
                await self._idle.park()
            await trio.lowlevel.checkpoint()
            for _ in range(GATHERING_TURNS - 2):
                await trio.lowlevel.checkpoint()
            waiting, self._waiting = self._waiting, []
            for write in waiting:
                write()
