"""How many bytes of outcomes one process keeps in the store: no caller can fill the room of the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...runtime.quota import Quota
from ...shared_limits import STORED_OUTCOMES

ANYBODY = ""
"""The owner of what callers without a principal have stored: no principal is empty."""


@dataclass(slots=True, eq=False)
class OutcomeRoom:
    """The room, in bytes, and who has taken what of it until when.

    Args:
        clock: the time in Unix seconds.
    """

    limit: int
    _clock: Callable[[], float]
    _taken: deque[tuple[float, str, int]] = field(default_factory=deque[tuple[float, str, int]])
    """When each outcome expires, whose it is, and its size; all are kept for the same time."""
    _quota: Quota = field(init=False)

    def __post_init__(self) -> None:
        self._quota = Quota(STORED_OUTCOMES, self.limit)

    def take(self, owner: str | None, size: int, seconds: float) -> bool:
        """Take room for an outcome; return False, and take nothing, if there is none.

        Args:
            owner: the principal; callers without one share what one owner may have.
            seconds: for which it is kept.
        """
        now = self._clock()
        while self._taken and self._taken[0][0] <= now:
            self._quota.give_back(*self._taken.popleft()[1:])
        # Callers without a principal share one caller's part.
        holder = ANYBODY if owner is None else owner
        if self._quota.refusal(holder, size) is not None:
            return False
        self._quota.add(holder, size)
        self._taken.append((now + seconds, holder, size))
        return True
