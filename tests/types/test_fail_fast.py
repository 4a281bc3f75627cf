"""A value with many mistakes costs no more errors than one with few: validation stops at the first wrong item of a container."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

import trio_mcp.types as types
from trio_mcp.types import JsonObject, JsonValue, Model
from trio_mcp.types.base import CONTAINERS, fail_fast_validator

MANY = 1_000
WRONG: list[JsonValue] = [{}] * MANY
NAMED: JsonObject = {str(number): {} for number in range(MANY)}

MODELS = [each for each in vars(types).values() if isinstance(each, type) and issubclass(each, Model)]


def containers_in(node: object) -> list[dict[str, object]]:
    """Everything in a core schema that looks like a container, also where it is none."""
    if isinstance(node, list | tuple):
        return [found for item in node for found in containers_in(item)]
    if not isinstance(node, dict):
        return []
    kind = node.get("type")
    own = [node] if isinstance(kind, str) and kind in CONTAINERS else []
    return own + [found for key, value in node.items() if key != "serialization" for found in containers_in(value)]


def test_every_container_of_every_model_fails_at_its_first_wrong_item() -> None:
    for model in MODELS:
        model.model_rebuild()
        assert all(each.get("fail_fast") for each in containers_in(model.__pydantic_core_schema__)), model


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (types.Implementation, {"name": "a", "version": "1", "icons": WRONG}),
        (types.ListToolsResult, {"tools": WRONG}),
        (types.CallToolResult, {"content": WRONG}),
        (types.ListToolsResult, {"tools": [{"name": "a", "inputSchema": {}, "icons": WRONG}] * MANY}),
    ],
)
def test_a_message_with_many_mistakes_makes_few_errors(model: type[Model], value: JsonValue) -> None:
    with pytest.raises(ValidationError) as raised:
        model.model_validate(value, by_alias=True, by_name=False)
    assert raised.value.error_count() < 20


class Leg(BaseModel):
    stops: list[int]


class Trip(BaseModel):
    legs: list[Leg]
    again: Trip | None = None


@dataclass
class Bag:
    weights: list[int]


class Row(TypedDict):
    cells: list[int]


Nested: TypeAlias = list[list[int]]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (list[int], WRONG),
        (Sequence[int], WRONG),
        (deque[int], WRONG),
        (tuple[int, ...], WRONG),
        (set[int], ["a", *map(str, range(MANY))]),
        (AbstractSet[int], ["a" + str(number) for number in range(MANY)]),
        (dict[str, int], NAMED),
        (Mapping[str, int], NAMED),
        (OrderedDict[str, int], NAMED),
        (dict[int, str], {"a" + str(number): "" for number in range(MANY)}),
        (Nested, [["a"] * MANY] * MANY),
        (list[int] | dict[str, int], WRONG),
        (Leg, {"stops": WRONG}),
        (list[Leg], [{"stops": WRONG}] * MANY),
        (Trip, {"legs": [], "again": {"legs": [{"stops": WRONG}] * MANY}}),
        (Bag, {"weights": WRONG}),
        (list[Row], [{"cells": WRONG}] * MANY),
    ],
    ids=str,
)
def test_an_authors_type_stops_at_its_first_wrong_item_at_every_level(annotation: object, value: JsonValue) -> None:
    validator = fail_fast_validator(annotation)
    with pytest.raises(ValidationError) as raised:
        validator.validate_python(value)
    assert raised.value.error_count() < 5
