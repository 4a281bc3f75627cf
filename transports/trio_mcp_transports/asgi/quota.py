"""How many of something may be held, in all and by each principal."""

from __future__ import annotations

from collections import Counter


class Places:
    """Counts what is held, so that one principal cannot take what is there for all.

    What is held by nobody (no `authenticate=`) counts in all only: there everybody is nobody.

    Args:
        what: is held, in the plural, for the refusals.
        limit: of them in all.
        per_principal: of them by one principal.
    """

    def __init__(self, what: str, limit: int, per_principal: int) -> None:
        self.limit = limit
        self._what = what
        self._per_principal = per_principal
        self._taken = 0
        self._by_principal: Counter[str] = Counter()

    def refusal(self, principal: str | None) -> str | None:
        """Why there is no place for one more of this principal's; None: there is one."""
        if self._taken >= self.limit:
            return f"This server already holds {self.limit} {self._what}, which is its limit. Try again later."
        if self.is_full_for(principal):
            return f"You already hold {self._per_principal} {self._what}, which is the limit. End some of them first."
        return None

    def is_full_for(self, principal: str | None) -> bool:
        """The principal's own places are taken."""
        return principal is not None and self._by_principal[principal] >= self._per_principal

    def take(self, principal: str | None) -> None:
        """One more is held."""
        self._taken += 1
        if principal is not None:
            self._by_principal[principal] += 1

    def give_back(self, principal: str | None) -> None:
        """One is held no longer."""
        self._taken -= 1
        if principal is not None:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]

    def __len__(self) -> int:
        return self._taken

    def __repr__(self) -> str:
        return f"<Places {self._what} {self._taken}/{self.limit}>"
