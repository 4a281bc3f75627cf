"""Circuit breaker for a store that hangs."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.storage import StoreConflict

from ...asgi.authentication import log_failures

PATIENCE: Final = 0.25
"""Seconds that a store may take for one thing."""

PROBE_SECONDS: Final = 1.0
"""Seconds after that in which the store is not asked; then one call finds out whether it works again."""

logger = peer_logger("trio_mcp.http")

# | state  | event                                | next                                         |
# |--------|--------------------------------------|----------------------------------------------|
# | closed | an operation takes too long          | open; one line in the log                    |
# | closed | an operation fails                   | closed; the next one costs no time either    |
# | open   | an operation, within `PROBE_SECONDS` | open; it is not run                          |
# | open   | the first one after that: the probe  | open if it takes too long; else closed       |


class Breaker:
    """Runs operations on one store.

    Args:
        what: the line for the log when an operation was not done.
        records: counts the lines.
    """

    __slots__ = ("_records", "_skips_until", "_what")

    def __init__(self, what: str, records: RepeatedRecords) -> None:
        self._what = what
        self._records = records
        self._skips_until = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether the store has taken too long, and is not known to answer again."""
        return self._skips_until > -math.inf

    async def run(self, operation: Callable[[], Awaitable[object]]) -> bool:
        """Run an operation, and return whether it was done.

        Raises:
            StoreConflict: what the operation wanted to change has changed; the store works.
        """
        now = trio.current_time()
        if now < self._skips_until:
            await trio.lowlevel.checkpoint()
            return False
        was_open = self.is_open
        if was_open:
            # Those that come while it is tried do not try, too.
            self._skips_until = now + PROBE_SECONDS
        done = False
        with trio.move_on_after(PATIENCE) as scope:
            done = await self._tried(operation)
        if scope.cancelled_caught:
            self._skips_until = trio.current_time() + PROBE_SECONDS
            if not was_open:
                self._records.log(f"{self._what}: it takes too long", level=logging.ERROR)
        elif was_open:
            self._skips_until = -math.inf
            logger.info("the store answers again")
        return done

    async def _tried(self, operation: Callable[[], Awaitable[object]]) -> bool:
        """Run an operation; log what it raises, and return whether it was done."""
        conflict: StoreConflict | None = None
        done = False
        with log_failures(self._what, self._records):
            try:
                await operation()
                done = True
            except StoreConflict as error:
                conflict = error
        if conflict is not None:
            raise conflict
        return done
