"""The one back-off of the package: how long the delays are, and that they are spread."""

from __future__ import annotations

import pytest

from trio_mcp.base.backoff import Backoff


@pytest.mark.parametrize(("failures", "expected"), [(0, 0.5), (1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (10_000, 30.0)])
def test_each_failure_multiplies_the_delay_up_to_the_longest(failures: int, expected: float) -> None:
    assert Backoff(0.5, random=lambda: 0.0).delay(failures) == expected


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_takes_up_to_its_share_of_a_delay(chance: float, expected: float) -> None:
    assert Backoff(1.0, random=lambda: chance).delay(2) == expected


def test_without_jitter_chance_changes_nothing() -> None:
    assert Backoff(1.0, factor=3.0, longest=100.0, jitter=0.0).delay(3) == 27.0


def test_delays_are_spread_by_default() -> None:
    delays = {Backoff().delay(3) for _ in range(50)}
    assert len(delays) > 1
    assert all(2.0 <= delay <= 4.0 for delay in delays)
