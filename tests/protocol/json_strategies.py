"""Random JSON values."""

from __future__ import annotations

from hypothesis import strategies as st

from trio_mcp.types import JsonValue

Values = st.SearchStrategy[JsonValue]
ANY_INTEGER = st.integers()


def json_values(integers: st.SearchStrategy[int] = ANY_INTEGER) -> Values:
    """Return a strategy for values that nest."""
    numbers = integers | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(st.none() | st.booleans() | numbers | st.text(), containers, max_leaves=8)


def containers(inner: Values) -> Values:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
