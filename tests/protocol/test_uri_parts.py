"""Which resources a resource is a part of: one rule for the server that announces and for the client that caches."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from trio_mcp.protocol.uri.uris import MAX_LEVELS, ancestor_uris, is_part_of

URIS = st.text("ab:/?#", max_size=12)


@pytest.mark.parametrize(
    ("uri", "whole", "part"),
    [
        ("a://b", "a://b", True),
        ("a://b/c", "a://b", True),
        ("a://b/c", "a://b/", True),
        ("a://b?c", "a://b", True),
        ("a://b#c", "a://b", True),
        ("a://bc", "a://b", False),
        ("a://b?cd", "a://b?c", False),
        ("a://b", "a://b/c", False),
    ],
)
def test_a_part_of_a_resource_is_below_it(uri: str, whole: str, part: bool) -> None:
    assert is_part_of(uri, whole) == part
    assert (whole in ancestor_uris(uri)) == part


@given(URIS, st.integers(0, 12), URIS)
def test_both_functions_state_one_rule(uri: str, end: int, other: str) -> None:
    for whole in (uri[:end], other):
        assert is_part_of(uri, whole) == (whole in ancestor_uris(uri))


def test_a_long_uri_has_a_limited_number_of_ancestors() -> None:
    assert len(list(ancestor_uris("/" * 10_000))) == 1 + 2 * MAX_LEVELS
