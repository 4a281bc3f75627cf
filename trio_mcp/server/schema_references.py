"""References in the JSON Schemas that pydantic generates: data is not searched for them, and an unknown one is an error.

Pydantic follows each `$ref` that it finds, also in a default, which may be any JSON. And it raises a bare `KeyError` for one that
leads to nothing.

    def run(pipeline: dict[str, Any] = {"$ref": "#/steps/1"})       the default stays as it is
    Field(json_schema_extra={"$ref": "#/$defs/Step"})               `UnknownReference`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from pydantic import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonRef, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from ..types import JsonObject, JsonValue

# The keywords of 2020-12 under which there are schemas: one by its name, in a list, or by names that an author chose.
SINGLE: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
NAMED: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""The keywords whose value is data, in which `$ref` is a name like any other."""


class UnknownReference(PydanticUserError):
    """An author's schema has a `$ref` that leads to nothing."""

    def __init__(self, reference: object) -> None:
        super().__init__(
            f"its schema has the $ref {reference!r:.80}, which leads to nothing: write the schema in its place",
            code=None,
        )


class Data:
    """Takes the place of data that looks like a reference, while a schema is generated."""

    __slots__ = ("value",)
    __match_args__ = ("value",)

    def __init__(self, value: JsonValue) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and other.value == self.value

    def __hash__(self) -> int:
        # Pydantic hashes the parts of schemas, to find those that are equal.
        return hash(repr(self.value))


class ReferenceSafeSchema(GenerateJsonSchema):
    """Generates schemas.

    Raises:
        UnknownReference: a `$ref` in what an author wrote leads to nothing.
    """

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return cast("JsonObject", with_data(super().generate(schema, mode)))

    def generate_inner(self, schema: object) -> JsonSchemaValue:
        # Also of the fields of a model, whose type pydantic does not make public.
        return without_data(super().generate_inner(cast("core_schema.CoreSchema", schema)))

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return without_data(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return without_data(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return without_data(super().typed_dict_schema(schema))

    def get_schema_from_definitions(self, json_ref: JsonRef) -> JsonSchemaValue | None:
        # An author may have written anything.
        if not isinstance(json_ref, str):
            raise UnknownReference(json_ref)
        try:
            return super().get_schema_from_definitions(json_ref)
        except KeyError:
            pass
        raise UnknownReference(json_ref)

    def get_json_ref_counts(self, json_schema: JsonSchemaValue) -> dict[JsonRef, int]:
        try:
            return super().get_json_ref_counts(json_schema)
        except KeyError as error:
            reference = error.args[0]
        raise UnknownReference(reference)


def without_data(schema: JsonObject) -> JsonObject:
    """Return a schema in which data that holds a `$ref` is set apart."""
    apart = {
        key: cast("JsonValue", Data(value)) if key in DATA and holds_reference(value) else value
        for key, value in schema.items()
    }
    return with_subschemas(apart, without_data)


def with_data(value: JsonValue) -> JsonValue:
    """Return a schema with its data in place again."""
    match cast("object", value):
        case Data(data):
            return data
        case dict():
            return {key: with_data(item) for key, item in cast("JsonObject", value).items()}
        case list():
            return [with_data(item) for item in cast("list[JsonValue]", value)]
        case _:
            return value


def holds_reference(value: JsonValue) -> bool:
    """Return whether data has a member `$ref`, however deep."""
    if isinstance(value, dict):
        return "$ref" in value or any(map(holds_reference, value.values()))
    return isinstance(value, list) and any(map(holds_reference, value))


def subschemas(schema: JsonObject) -> list[JsonObject]:
    """Return the schemas directly in a schema."""
    found: list[JsonObject] = []

    def note(subschema: JsonObject) -> JsonObject:
        found.append(subschema)
        return subschema

    with_subschemas(schema, note)
    return found


def with_subschemas(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return a copy of a schema in which each schema directly in it is changed; what only looks like one stays as it is."""

    def changed(value: JsonValue) -> JsonValue:
        return change(value) if isinstance(value, dict) else value

    copy: JsonObject = {}
    for key, value in schema.items():
        if key in SINGLE:
            copy[key] = changed(value)
        elif key in LISTED and isinstance(value, list):
            copy[key] = [changed(item) for item in value]
        elif key in NAMED and isinstance(value, dict):
            copy[key] = {name: changed(item) for name, item in value.items()}
        else:
            copy[key] = value
    return copy
