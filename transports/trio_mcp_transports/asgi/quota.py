"""How many of something may be held, in total and by each principal."""

from __future__ import annotations

from collections import Counter

from .access import SHUTTING_DOWN, HttpRejection


class Quota:
    """Counts held resources, so that one principal cannot use up those of all.

    Without authentication there is no principal: then only the total counts.

    Args:
        what: is held, in the plural, for the messages.
        limit: in total.
        per_principal: by one principal.
    """

    def __init__(self, what: str, limit: int, per_principal: int) -> None:
        self._limit = limit
        self._what = what
        self._per_principal = per_principal
        self.draining = False
        """Nothing more is acquired, because the server is shutting down."""
        self._taken = 0
        self._by_principal: Counter[str] = Counter()

    def check(self, principal: str | None) -> None:
        """Raise `HttpRejection` (503) unless there is capacity for one more of this principal."""
        self.check_not_draining()
        rejection = self.rejection(principal)
        if rejection is not None:
            raise HttpRejection(503, rejection)

    def check_not_draining(self) -> None:
        """Raise `HttpRejection` (503) if the server is shutting down."""
        if self.draining:
            raise HttpRejection(503, SHUTTING_DOWN)

    def rejection(self, principal: str | None) -> str | None:
        """Return the reason to reject one more of this principal, or None if there is capacity."""
        if self._taken >= self._limit:
            return f"This server already holds {self._limit} {self._what}, which is its limit. Try again later."
        if self.is_full_for(principal):
            return f"You already hold {self._per_principal} {self._what}, which is the limit. End some of them first."
        return None

    def is_full_for(self, principal: str | None) -> bool:
        """Return whether the principal holds as many as one principal may."""
        return principal is not None and self._by_principal[principal] >= self._per_principal

    def acquire(self, principal: str | None) -> None:
        """Count one more."""
        self._taken += 1
        if principal is not None:
            self._by_principal[principal] += 1

    def release(self, principal: str | None) -> None:
        """Count one less."""
        self._taken -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                # Else the table would grow with every principal that was ever here.
                del self._by_principal[principal]
