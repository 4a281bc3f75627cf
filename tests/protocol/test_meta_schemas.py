"""The meta-schemas in one piece accept what the official ones accept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from trio_mcp.protocol.schema.compiled import in_one_piece

OFFICIAL = Draft202012Validator(Draft202012Validator.META_SCHEMA)
OURS = Draft202012Validator(in_one_piece(Draft202012Validator.META_SCHEMA))

KEYWORDS = sorted(in_one_piece(Draft202012Validator.META_SCHEMA)["properties"])  # type: ignore[arg-type]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(-1, 1)
    | st.sampled_from(["a", "#a", "string", "integer", "^a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=400, deadline=None)
def test_both_agree_about_every_value(value: Any) -> None:
    assert OURS.is_valid(value) == OFFICIAL.is_valid(value)


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_both_agree_about_each_keyword(keyword: str) -> None:
    scalars: list[Any] = [None, True, 1, -1, 1.5, "string", "a#b", "1a"]
    for value in [*scalars, [], ["a"], ["a", "a"], [{}], [5], {}, {"a": {}}, {"a": 5}]:
        for schema in (
            {keyword: value},
            {"properties": {"a": {keyword: value}}},
            {"allOf": [{"not": {keyword: value}}]},
        ):
            assert OURS.is_valid(schema) == OFFICIAL.is_valid(schema), schema


def test_one_without_vocabularies_stays_as_it_is() -> None:
    assert in_one_piece(Draft7Validator.META_SCHEMA) == Draft7Validator.META_SCHEMA
