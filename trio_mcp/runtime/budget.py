"""Budgets of tokens: a tree of counters, as the branches of a call are one.

What a branch uses is counted in its own budget and in every one above it, before anybody is refused: so the counters always
tell what was used, also by what was used in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import BranchLimit


class Budget:
    """What a call or a branch, with everything below it, may use.

    Args:
        limit: tokens, from 0 on.
        parent: the budget that it is a part of.
        whose: who may use it, for the error.
    """

    __slots__ = ("limit", "parent", "used", "whose")

    def __init__(self, limit: int, parent: Budget | None = None, whose: str = "this call") -> None:
        self.limit = limit
        self.parent = parent
        self.whose = whose
        self.used = 0

    def count(self, tokens: int) -> None:
        """Note that so many were used, here and in every budget above, whether it may be or not."""
        for budget in self._chain():
            budget.used += tokens

    def charge(self, tokens: int) -> None:
        """The same, and refuse to go on where that was too much.

        Raises:
            BranchLimit: one of the budgets is exceeded; of several it is the innermost.
        """
        self.count(tokens)
        self._refuse(lambda budget: budget.used > budget.limit)

    def check(self) -> None:
        """Refuse to begin where nothing is left.

        Raises:
            BranchLimit: one of the budgets is used up; of several it is the innermost.
        """
        self._refuse(lambda budget: budget.used >= budget.limit)

    def _refuse(self, over: Callable[[Budget], bool]) -> None:
        for budget in self._chain():
            if over(budget):
                raise BranchLimit(
                    f"{budget.whose} may use {budget.limit} tokens, and has used {budget.used}",
                    kind="tokens",
                    limit=budget.limit,
                    used=budget.used,
                )

    def _chain(self) -> Iterator[Budget]:
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def __repr__(self) -> str:
        return f"<Budget {self.used}/{self.limit}>"
