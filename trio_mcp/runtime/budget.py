"""Token budgets: a tree of counters, like the branches of a call.

The tokens of a branch are counted in its own budget and in every budget above it, before a limit is checked. So the counters are
right even if the call then fails: the model has been paid for.
"""

# Example: `call = TokenBudget(100)` and `branch = TokenBudget(80, call)`, after the body has used 30 tokens itself
#
#   step                 branch   call   result
#   branch.charge(60)    60       90
#   branch.check()       60       90     both have tokens left
#   branch.charge(15)    75       105    raises, for the call: the branch is within its limit
#   branch.check()       75       105    raises, for the call
#
# A limit can be exceeded, by the tokens of one answer, because its length is not known before. The alternative, to reserve
# the most that an answer may have, would let parallel branches refuse each other tokens that none of them uses.

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import BranchLimit


@dataclass(slots=True, eq=False, repr=False)
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

    # Two comparisons: after an answer, exactly the limit is fine; before a question, it leaves no token for the answer.
    def _refuse(self, over: Callable[[TokenBudget], bool]) -> None:
        for budget in self._chain():
            if over(budget):
                why = f"{budget.owner} may use {budget.limit} tokens, and has used {budget.used}"
                raise BranchLimit(why, kind="tokens", limit=budget.limit, used=budget.used)

    def _chain(self) -> Iterator[TokenBudget]:
        budget: TokenBudget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def __repr__(self) -> str:
        return f"<TokenBudget {self.used}/{self.limit}>"
