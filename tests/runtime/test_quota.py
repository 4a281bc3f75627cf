"""A quota: who may have how much of a limit, and that what was held is free again."""

from __future__ import annotations

import pytest
from actors import CUPS
from naming import naming, unnamed

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime.quota import Quota


def full(quota: Quota, caller: object) -> int:
    """Let a caller take what it gets; return how much it holds then."""
    taken = 0
    while quota.refusal(caller) is None:
        quota.take(caller)
        taken += 1
    return taken


@pytest.mark.parametrize(("limit", "half", "quarter"), [(1, 1, 0), (2, 1, 1), (3, 2, 1), (8, 4, 2), (100, 50, 25)])
def test_a_caller_gets_half_and_each_that_comes_later_a_quarter(limit: int, half: int, quarter: int) -> None:
    quota = Quota(CUPS, limit)
    assert (full(quota, "first"), full(quota, "second")) == (half, quarter)


def test_a_caller_that_is_alone_gets_everything() -> None:
    quota = Quota(CUPS)
    assert (full(quota, None), full(quota, "second")) == (8, 0)


def test_a_refusal_names_the_limit_and_what_is_too_much_and_counts_nothing() -> None:
    quota = Quota(CUPS)
    assert full(quota, "first") == 4
    with pytest.raises(LimitExceeded, match=naming("8 cups", "quarter", "2", "Kitchen.cups")):
        quota.take("first")
    assert quota.in_use == 4
    assert full(quota, "second") + full(quota, "third") == 4
    with pytest.raises(LimitExceeded, match=naming("8 cups", "limit", "Kitchen.cups")):
        quota.take("fourth")


def test_what_is_given_back_is_for_others_and_not_for_a_caller_over_its_share() -> None:
    quota = Quota(CUPS)
    assert full(quota, "first") + full(quota, "second") == 6
    quota.give_back("first")
    assert quota.refusal("first") is not None
    assert full(quota, "third") == 2
    quota.give_back("first", 2)
    assert full(quota, "first") == 1


def test_a_cap_counts_from_the_first_one_on_and_for_a_caller_that_is_alone() -> None:
    for caller in ("guest", None):
        quota = Quota(CUPS, per_caller=3)
        assert full(quota, caller) == 3
        assert unnamed(str(quota.refusal(caller)), "3 of your cups", "Kitchen.cups_per_guest") == []
        assert quota.refusal(caller, capped=False) is None


def test_the_default_cap_does_not_count_for_a_caller_that_is_alone() -> None:
    capped = CUPS._replace(per_caller=3)
    assert (full(Quota(capped), "guest"), full(Quota(capped), None)) == (3, 8)


def test_more_than_one_is_taken_as_a_whole_or_not_at_all() -> None:
    quota = Quota(CUPS)
    quota.take("first", 4)
    with pytest.raises(LimitExceeded):
        quota.take("second", 3)
    quota.take("second", 2)
    assert quota.in_use == 6


def test_a_caller_that_holds_nothing_takes_no_memory() -> None:
    quota = Quota(CUPS)
    for number in range(1000):
        quota.take(number)
        quota.give_back(number)
    assert repr(quota) == "<Quota cups: 0/8 callers=0>"
