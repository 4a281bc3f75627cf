"""Every limit that callers share: one caller cannot use it up, and docs/limits.md says what there is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from holders import HOLDERS, KEEPERS, LIMIT, NEVER_ALONE, Hold
from limits_page import PAGE, with_section
from naming import unnamed

from trio_mcp.base.shared_limits import SHARED_LIMITS, SharedLimit

HALF, QUARTER = LIMIT // 2, LIMIT // 4


def name_of(value: object) -> str:
    return value.what if isinstance(value, SharedLimit) else ""


def test_every_limit_of_the_table_is_filled_by_a_test() -> None:
    assert {*(limit for limit, _ in HOLDERS), *KEEPERS} == set(SHARED_LIMITS)
    assert len({limit.what for limit in SHARED_LIMITS}) == len(SHARED_LIMITS)


@pytest.mark.parametrize(("limit", "opened"), HOLDERS, ids=name_of)
async def test_a_caller_that_has_half_of_a_limit_gets_no_more_and_others_are_served(
    limit: SharedLimit, opened: Callable[[], AbstractAsyncContextManager[Hold]]
) -> None:
    async with opened() as hold:
        for caller, share in (("alice", HALF), ("bob", QUARTER), ("carl", QUARTER)):
            assert [await hold(caller) for _ in range(share)] == [None] * share
            refused = await hold(caller)
            assert refused is not None
            assert unnamed(refused, limit.what) == []
            if caller != "carl":
                assert unnamed(refused, "quarter") == []
                assert limit.option in refused
        refused = await hold("dora")
        assert refused is not None
        assert unnamed(refused, limit.what) == []


@pytest.mark.parametrize(("limit", "opened"), [each for each in HOLDERS if each[0] not in NEVER_ALONE], ids=name_of)
async def test_a_caller_that_is_alone_has_all_of_a_limit(
    limit: SharedLimit, opened: Callable[[], AbstractAsyncContextManager[Hold]]
) -> None:
    async with opened() as hold:
        assert [await hold(None) for _ in range(LIMIT)] == [None] * LIMIT
        refused = await hold(None)
        assert refused is not None
        assert unnamed(refused, limit.what, limit.option) == []


@pytest.mark.parametrize("limit", KEEPERS, ids=name_of)
async def test_a_caller_over_its_share_pushes_out_nothing_of_others(limit: SharedLimit) -> None:
    async with KEEPERS[limit]() as keep:
        kept = [keep("bob"), *(keep("alice") for _ in range(3 * LIMIT))][-1]
        assert kept["bob"] == 1
        assert QUARTER <= kept["alice"] <= HALF


@pytest.mark.parametrize("limit", [each for each in KEEPERS if each not in NEVER_ALONE], ids=name_of)
async def test_of_what_is_kept_for_a_caller_that_is_alone_the_oldest_goes(limit: SharedLimit) -> None:
    async with KEEPERS[limit]() as keep:
        assert [keep(None)[None] for _ in range(LIMIT + 2)][-1] >= LIMIT - 1


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_section(page) == page, "run `python -m tests.base.shared_limits`"
