"""The JSON Schemas that pydantic generates, as hosts and models can read them.

Many hosts pass a schema to a model that does not resolve `$ref`, so that each definition is copied to where it is used. Titles
that pydantic makes of names are left out: they repeat the name of the property, and cost tokens in every conversation.

    {"$defs": {"Leg": {"title": "Leg", ...}}, "properties": {"out": {"$ref": "#/$defs/Leg"}, "back": {"$ref": "#/$defs/Leg"}}}
    {"properties": {"out": {...}, "back": {...}}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final, cast

from pydantic import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonRef, JsonSchemaMode, JsonSchemaValue, NoDefault
from pydantic_core import core_schema, to_jsonable_python

from ...base.named_tuples import NamedTuple
from ...protocol.strict_json import dumps
from ...types import JsonObject, JsonValue

# References in the JSON Schemas that pydantic generates: data is not searched for them, and an unknown one is an error.
#
# Pydantic follows each `$ref` that it finds, also in a default, which may be any JSON. And it raises a bare `KeyError` for
# one that
# leads to nothing.
#
#     def run(pipeline: dict[str, Any] = {"$ref": "#/steps/1"})       the default stays as it is
#     Field(json_schema_extra={"$ref": "#/$defs/Step"})               `UnknownReference`

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


def can_be_json(value: object) -> bool:
    """Return whether JSON can hold a value as pydantic writes it."""
    try:
        return not unencodable(to_jsonable_python(value))
    except ValueError:
        return False


def unencodable(value: JsonValue) -> str:
    """Return which member of a value JSON cannot hold, and why; empty if it can hold all of them."""
    try:
        dumps(value)
    except ValueError as error:
        return str(error)
    return ""


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

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> object:
        # Left out like any other default that JSON cannot hold: a call without the argument gets it all the same.
        default: object = super().get_default_value(schema)
        return default if default is NoDefault or can_be_json(default) else NoDefault

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


MAX_INLINED: Final = 64 * 1024
"""Bytes that a schema may have without `$ref`; a larger one keeps its definitions."""

DEFINITION: Final = "#/$defs/"


class PlainSchema(ReferenceSafeSchema):
    """Generates schemas in which only an author's titles are left. Raises as `ReferenceSafeSchema` does."""

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        return self._without_enum_titles(super().generate(schema, mode))

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002  overrides
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        config = schema["cls"].model_config
        titled = config.get("title") is not None or config.get("model_title_generator") is not None
        return super().model_schema(schema) if titled else without_name(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._classes(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return self._classes(super().typed_dict_schema(schema), schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        self._enum_names.add(schema["cls"].__name__)
        return super().enum_schema(schema)

    @cached_property
    def _enum_names(self) -> set[str]:
        return set()

    def _without_enum_titles(self, schema: JsonObject) -> JsonObject:
        # At the end, because pydantic gives an enum its title after `enum_schema`.
        if "enum" in schema and schema.get("title") in self._enum_names:
            schema = {key: value for key, value in schema.items() if key != "title"}
        return with_subschemas(schema, self._without_enum_titles)

    def _classes(
        self, made: JsonSchemaValue, schema: core_schema.DataclassSchema | core_schema.TypedDictSchema
    ) -> JsonSchemaValue:
        cls = schema.get("cls")
        # Not the config in the schema: of a TypedDict, its title is the name.
        titled = getattr(cls, "__pydantic_config__", {}).get("title") is not None
        return made if cls is None or titled else without_name(made, cls)


def without_name(schema: JsonSchemaValue, cls: type) -> JsonSchemaValue:
    """Return the schema of a class without the title that is its name."""
    if schema.get("title") == cls.__name__:
        del schema["title"]
    return schema


class Inlined(NamedTuple):
    """A schema without `$ref`; or one that keeps some, and why."""

    schema: JsonObject
    kept: str | None = None


def inlined(schema: JsonObject) -> Inlined:
    """Return a schema that pydantic has generated with its definitions copied to where they are used.

    A recursive definition stays. If the schema would have more than `MAX_INLINED` bytes, all of them do.
    """
    definitions = cast("dict[str, JsonObject]", schema.get("$defs", {}))
    if not definitions:
        return Inlined(schema)
    inliner = Inliner(definitions)
    recursive = inliner.recursive
    body = {key: value for key, value in schema.items() if key != "$defs"}
    followed = set[str | None]()
    # The schema itself may be nothing but a reference, and both eras want to read `"type": "object"` in it.
    while (name := referred(body)) in definitions and name not in followed:
        followed.add(name)
        body = {**definitions[name], **{key: value for key, value in body.items() if key != "$ref"}}
    plain = inliner.plain(body)
    if recursive:
        kept = {name: inliner.plain(definitions[name]) for name in sorted(inliner.used)}
        plain = {**plain, "$defs": cast("JsonValue", kept)} if kept else plain
    if encoded_size(plain, inliner.sizes) > MAX_INLINED:
        return Inlined(schema, f"without it, it would have more than {MAX_INLINED} bytes")
    return Inlined(plain, f"{', '.join(sorted(recursive))} refers to itself" if inliner.used else None)


class Inliner:
    """Copies definitions to where they are used.

    Attributes:
        recursive: the definitions that lead back to themselves.
        used: the recursive definitions that the result refers to.
        sizes: what `encoded_size` knows of the copies.
    """

    def __init__(self, definitions: Mapping[str, JsonObject]) -> None:
        self.used: set[str] = set()
        self.sizes: dict[int, int] = {}
        self._definitions = definitions
        # Shared and not copied, so that a schema of a few lines that doubles with each takes no more memory than it has lines.
        self._done: dict[str, JsonObject] = {}
        groups = list(components(definitions))
        leading_back = (names for names in groups if len(names) > 1 or names[0] in references(definitions[names[0]]))
        self.recursive = frozenset(name for names in leading_back for name in names)
        # After what they lead to, so that neither the copies nor their sizes need more of the stack than one definition.
        for name in (names[0] for names in groups if names[0] not in self.recursive):
            self._done[name] = self.plain(definitions[name])
            encoded_size(self._done[name], self.sizes)

    def plain(self, schema: JsonObject) -> JsonObject:
        """Return a schema without the references that can be resolved."""
        name = referred(schema)
        if name is None or name not in self._definitions:
            return with_subschemas(without_mapping(schema), self.plain)
        if name in self.recursive:
            # All of those, because they refer to each other.
            self.used |= self.recursive
            return schema
        # Members beside a reference are the field's own: its description is nearer than that of the type.
        beside = self.plain({key: value for key, value in schema.items() if key != "$ref"})
        return {**self._done[name], **beside}


def without_mapping(schema: JsonObject) -> JsonObject:
    """Return a schema without the member of OpenAPI that names definitions."""
    return {key: value for key, value in schema.items() if key != "discriminator" or not isinstance(value, dict)}


def referred(schema: JsonObject) -> str | None:
    """Return the name of the definition that a schema refers to, or None."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(DEFINITION):
        return reference.removeprefix(DEFINITION)
    return None


def components(definitions: Mapping[str, JsonObject]) -> Iterator[list[str]]:
    """Yield the definitions, those that lead to each other together, after all that they lead to (Tarjan's algorithm)."""
    lowest: dict[str, int] = {}
    numbers: dict[str, int] = {}
    done, found = set[str](), list[str]()
    # A list and no recursion: a path can be longer than the stack.
    path: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        lowest[name] = numbers[name] = len(numbers)
        found.append(name)
        path.append((name, iter(dict.fromkeys(references(definitions[name])))))

    for start in definitions:
        if start not in numbers:
            enter(start)
        while path:
            name, targets = path[-1]
            target = next((each for each in targets if each in definitions and each not in done), None)
            if target is not None and target not in numbers:
                enter(target)
            elif target is not None:
                lowest[name] = min(lowest[name], lowest[target])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == numbers[name]:
                    names = [found.pop()]
                    while names[-1] != name:
                        names.append(found.pop())
                    done.update(names)
                    yield names


def references(schema: JsonObject) -> Iterator[str]:
    """Yield the name of every definition that a schema refers to."""
    name = referred(schema)
    if name is not None:
        yield name
    for subschema in subschemas(schema):
        yield from references(subschema)


def encoded_size(value: JsonValue, known: dict[int, int]) -> int:
    """Return the bytes of a value as compact JSON, in time proportional to its distinct parts.

    Args:
        known: the sizes of the objects and lists that were measured already, by their id.
    """
    if not isinstance(value, dict | list):
        return len(dumps(value))
    size = known.get(id(value))
    if size is None:
        if isinstance(value, dict):
            parts = [len(dumps(key)) + 1 + encoded_size(item, known) for key, item in value.items()]
        else:
            parts = [encoded_size(item, known) for item in value]
        size = known[id(value)] = 2 + sum(parts) + max(0, len(parts) - 1)
    return size


def is_open(schema: JsonObject) -> bool:
    """Return whether some value that matches a schema may hold anything at all."""
    members = set(schema) - {"title", "description", "default", "examples", "deprecated"}
    if not members or schema.get("additionalProperties") is True:
        return True
    if schema.get("type") == "array" and "items" not in schema and "prefixItems" not in schema:
        return True
    return any(map(is_open, subschemas(schema)))
