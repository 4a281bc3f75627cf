"""Token budgets: a tree of counters, like the branches of a call.

The tokens of a branch are counted in its own budget and in every budget above it, before a limit is checked. So the counters are
right even if the call then fails: the model has been paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import BranchLimit


@dataclass(slots=True, eq=False)
class TokenBudget:
    """The tokens that a call or a branch, with everything below it, may use.

    Args:
        limit: tokens, from 0 on.
        parent: the budget that it is a part of.
        owner: who may use it, for the error message.
    """

    limit: int
    parent: TokenBudget | None = None
    owner: str = "this call"
    used: int = 0

    def count(self, tokens: int) -> None:
        """Add used tokens here and in every budget above, without checking a limit."""
        for budget in self._chain():
            budget.used += tokens

    def charge(self, tokens: int) -> None:
        """Add used tokens like `count`, then check the limits.

        Raises:
            BranchLimit: a budget is exceeded; the innermost of them if there are several.
        """
        self.count(tokens)
        self._refuse(lambda budget: budget.used > budget.limit)

    def check(self) -> None:
        """Raise if no tokens are left.

        Raises:
            BranchLimit: a budget is used up; the innermost of them if there are several.
        """
        self._refuse(lambda budget: budget.used >= budget.limit)

    def _refuse(self, over: Callable[[TokenBudget], bool]) -> None:
        for budget in self._chain():
            if over(budget):
                raise BranchLimit(
                    f"{budget.owner} may use {budget.limit} tokens, and has used {budget.used}",
                    kind="tokens",
                    limit=budget.limit,
                    used=budget.used,
                )

    def _chain(self) -> Iterator[TokenBudget]:
        budget: TokenBudget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def __repr__(self) -> str:
        return f"<TokenBudget {self.used}/{self.limit}>"
