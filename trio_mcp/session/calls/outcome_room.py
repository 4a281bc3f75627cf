"""How many bytes of outcomes one process keeps in the store: no caller can fill the room of the others."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SHARES: Final = 4
"""Once half of the room is taken, one owner may have this fraction of all of it, as in the memory budget."""


@dataclass(slots=True, eq=False)
class OutcomeRoom:
    """The room, in bytes, and who has taken what of it until when.

    Args:
        clock: the time in Unix seconds.
    """

    limit: int
    _clock: Callable[[], float]
    _taken: deque[tuple[float, str | None, int]] = field(default_factory=deque[tuple[float, str | None, int]])
    """When each outcome expires, whose it is, and its size; all are kept for the same time."""
    _total: int = 0
    _per_owner: Counter[str | None] = field(default_factory=Counter[str | None])

    def take(self, owner: str | None, size: int, seconds: float) -> bool:
        """Take room for an outcome; return False, and take nothing, if there is none.

        Args:
            owner: the principal; callers without one share what one owner may have.
            seconds: for which it is kept.
        """
        now = self._clock()
        while self._taken and self._taken[0][0] <= now:
            self._give_back(*self._taken.popleft()[1:])
        total, owned = self._total + size, self._per_owner[owner] + size
        if total > self.limit or (total > self.limit // 2 and owned > self.limit // SHARES):
            return False
        self._taken.append((now + seconds, owner, size))
        self._total, self._per_owner[owner] = total, owned
        return True

    def _give_back(self, owner: str | None, size: int) -> None:
        self._total -= size
        self._per_owner[owner] -= size
        if not self._per_owner[owner]:
            del self._per_owner[owner]
