"""Sessions that a store does not have, remembered for a moment."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import trio

UNKNOWN_SECONDS: Final = 1.0
MOST_UNKNOWN: Final = 1_000


class UnknownSessions:
    """Sessions that were looked for and not found: a client that goes on naming one causes one look-up a second.

    Ids are random, and a client learns one when the store has the session. So what is unknown stays so.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = OrderedDict[tuple[str, str | None], float]()

    def add(self, key: str, principal: str | None) -> None:
        """Note that a principal has no session of this key."""
        self._until[key, principal] = trio.current_time() + UNKNOWN_SECONDS
        self._until.move_to_end((key, principal))
        if len(self._until) > MOST_UNKNOWN:
            self._until.popitem(last=False)

    def has(self, key: str, principal: str | None) -> bool:
        """Return whether that was noted within a second."""
        return self._until.get((key, principal), 0.0) > trio.current_time()
