"""Budgets: what was used is counted everywhere first, and the innermost budget that is exceeded is the one that is named."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from naming import naming

from trio_mcp.errors import BranchLimit, LimitExceeded
from trio_mcp.runtime import TokenBudget


def test_a_charge_counts_all_the_way_up_before_it_is_refused() -> None:
    call = TokenBudget(100)
    branch = TokenBudget(10, call, "a branch")
    leaf = TokenBudget(1000, branch)
    with pytest.raises(BranchLimit, match=naming("a branch", 10, 11)) as caught:
        leaf.charge(11)
    assert (leaf.used, branch.used, call.used) == (11, 11, 11)
    assert (caught.value.kind, caught.value.limit, caught.value.used) == ("tokens", 10, 11)
    assert isinstance(caught.value, LimitExceeded)


def test_the_budget_of_the_call_is_named_as_such() -> None:
    with pytest.raises(BranchLimit, match=naming("this call", 10)):
        TokenBudget(1000, TokenBudget(10)).charge(11)


def test_where_nothing_is_left_nothing_is_begun() -> None:
    branch = TokenBudget(20, TokenBudget(10))
    branch.charge(9)
    branch.check()
    branch.charge(1)
    with pytest.raises(BranchLimit, match=naming("this call", 10)):
        branch.check()


def test_a_count_over_the_budget_is_recorded_and_only_the_check_raises() -> None:
    budget = TokenBudget(10)
    budget.count(11)
    assert budget.used == 11
    with pytest.raises(BranchLimit):
        budget.check()


def test_the_repr_shows_what_is_used() -> None:
    budget = TokenBudget(10)
    budget.count(3)
    assert repr(budget) == "<TokenBudget 3/10>"


@given(
    parents=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 200)), max_size=8),
    charges=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 60)), max_size=30),
)
def test_each_budget_has_counted_what_was_used_in_it_and_below(
    parents: list[tuple[int, int]], charges: list[tuple[int, int]]
) -> None:
    """Whatever the tree and the order: the counters are sums, and a refusal names the nearest one that is over."""
    tree = [TokenBudget(100)]
    for parent, limit in parents:
        tree.append(TokenBudget(limit, tree[parent % len(tree)]))
    own = [0] * len(tree)
    for where, tokens in charges:
        budget = tree[where % len(tree)]
        own[where % len(tree)] += tokens
        refused: BranchLimit | None = None
        try:
            budget.charge(tokens)
        except BranchLimit as error:
            refused = error
        over = next((each for each in lineage(budget) if each.used > each.limit), None)
        assert (over and (over.limit, over.used)) == (refused and (refused.limit, refused.used))
    for budget in tree:
        assert budget.used == sum(used for each, used in zip(tree, own, strict=True) if budget in lineage(each))


def lineage(budget: TokenBudget | None) -> list[TokenBudget]:
    return [] if budget is None else [budget, *lineage(budget.parent)]
