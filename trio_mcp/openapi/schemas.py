"""Schemas of a document as JSON Schema 2020-12, each complete in itself.

    OpenAPI 3.0                                        JSON Schema 2020-12
    {"type": "string", "nullable": true}               {"type": ["string", "null"]}
    {"minimum": 0, "exclusiveMinimum": true}           {"exclusiveMinimum": 0}
    {"example": "Rex"}                                 {"examples": ["Rex"]}
    {"format": "byte"}                                 {"contentEncoding": "base64"}

What only the API writes (`readOnly`) is left out of requests, and what only callers write (`writeOnly`) out of responses. Members
that mean something to OpenAPI alone (`xml`, `externalDocs`) and extensions (`x-...`) are dropped. A `discriminator` becomes the
values of its property for which each branch is meant.

References are copied to where they are used, as `plain_schemas.inlined` does it for the schemas of Python types; a schema that
refers to itself keeps its `$ref`, into the `$defs` that come with it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, cast

from ..protocol.schema.json_schema import ValidSchema, check_keywords
from ..protocol.schema.references import Pattern
from ..server.values.schemas import inlined, referred, subschemas, with_subschemas
from ..types import JsonObject, JsonValue
from .parts import FreeNames, References, UnsupportedOperation

Direction: TypeAlias = Literal["request", "response"]

DROPPED: Final = frozenset(
    {
        "$anchor",
        "$defs",
        "$dynamicAnchor",
        "$id",
        "$recursiveAnchor",
        "$recursiveRef",
        "$schema",
        "discriminator",
        "example",
        "externalDocs",
        "nullable",
        "xml",
    }
)
ANYTHING: Final[JsonObject] = {}


class SchemaReader:
    """Converts the schemas of one document.

    Args:
        old: the document is OpenAPI 3.0, whose schemas are a dialect of their own.
        max_depth: how deep a schema may be nested.
    """

    def __init__(self, references: References, *, old: bool, max_depth: int) -> None:
        self._references = references
        self._old = old
        self._max_depth = max_depth
        self._definitions: dict[Direction, Definitions] = {"request": {}, "response": {}}
        self._waiting: list[tuple[str, JsonObject, Direction]] = []
        """Definitions that are not yet converted: in a list, since a chain of them can be longer than the stack."""
        self._names: dict[str, str] = {}
        """By the references that lead to them."""
        self._free = FreeNames()
        self._patterns: dict[str, int] = {}
        """The weights of all patterns of the document."""
        self._failed: dict[str, UnsupportedOperation] = {}
        """Why definitions cannot be used, by their names."""
        self.notes: dict[str, None] = {}
        """What was changed in schemas that were read since this was last emptied; an ordered set."""

    def resolved(self, schema: JsonObject | bool | None) -> JsonObject:
        """Return a schema of the document, as it is written, without `$ref` at its top; `{}` if everything is valid."""
        return self._references.resolved(schema) if isinstance(schema, dict) else ANYTHING

    def part(self, schema: JsonObject | bool | None, direction: Direction) -> JsonObject:
        """Return a schema whose references lead into `$defs`, for a larger one that `complete` completes.

        Raises:
            UnsupportedOperation: a reference leads out of the document or to nothing.
        """
        if schema is None or schema is True:
            return {}
        if schema is False:
            return {"not": {}}
        part = self._converted(schema, direction)
        while self._waiting:
            self._define(*self._waiting.pop())
        return part

    def complete(self, schema: JsonObject, direction: Direction, what: str) -> JsonObject:
        """Return a schema that was made of such parts, complete in itself.

        Raises:
            UnsupportedOperation: it is not valid, or nested too deep, which `what` names; or a definition that it needs cannot be
                used.
        """
        # Before the definitions are copied into it: each of them was checked, and may be in many schemas.
        check_part(schema, what)
        used: Definitions = {}
        self._collect(schema, direction, used)
        whole, kept = inlined({**schema, "$defs": {**used}} if used else schema)
        if kept is not None:
            self.notes[f"{what} keeps $ref, which some hosts do not resolve: {kept}"] = None
        depth = depth_of(whole)
        if depth > self._max_depth:
            raise UnsupportedOperation(f"{what} is nested {depth} levels deep; the limit is {self._max_depth}")
        return self.valid(whole, what)

    def valid(self, schema: JsonObject, what: str) -> ValidSchema:
        """Return a schema that was put together of parts that `part` returned, which have been checked.

        Raises:
            UnsupportedOperation: it is over a limit.
        """
        try:
            return ValidSchema(schema, sum(self._patterns.values()))
        except ValueError as error:
            raise UnsupportedOperation(f"{what}: {error}") from None

    def _collect(self, schema: JsonObject, direction: Direction, used: Definitions) -> None:
        """Add the definitions that a schema needs to `used`, and those that they need."""
        waiting = [schema]
        while waiting:
            schema = waiting.pop()
            name = referred(schema)
            if name in self._failed:
                raise self._failed[name]
            if name is not None and name not in used:
                used[name] = self._definitions[direction][name]
                waiting.append(used[name])
            waiting += subschemas(schema)

    def _converted(self, schema: JsonObject, direction: Direction) -> JsonObject:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._reference(reference, schema, direction)
        if "$dynamicRef" in schema:
            raise UnsupportedOperation("a schema has a $dynamicRef, which is not supported")
        made = {key: value for key, value in schema.items() if key not in DROPPED and not key.startswith("x-")}
        self._tidy(schema, made)
        with_number_bounds(schema, made)
        self._without_one_sided(made, direction)
        converted = with_subschemas(made, lambda inner: self._converted(inner, direction))
        if isinstance(discriminator := schema.get("discriminator"), dict):
            converted = self._decided(schema, converted, discriminator)
        return nullable(converted) if self._old and schema.get("nullable") is True else converted

    def _decided(self, schema: JsonObject, converted: JsonObject, discriminator: JsonObject) -> JsonObject:
        """Return a schema whose branches differ in the value of a property; in many documents they overlap without it."""
        name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
        composed = next((key for key in ("oneOf", "anyOf") if isinstance(converted.get(key), list)), None)
        if composed is None or not isinstance(name, str):
            return converted
        mapping = mapping if isinstance(mapping, dict) else {}
        branches: list[JsonValue] = []
        pairs = zip(
            cast("list[JsonValue]", schema[composed]), cast("list[JsonValue]", converted[composed]), strict=True
        )
        for written, branch in pairs:
            values = self._values_of(written, name, mapping)
            decides: JsonObject = {"properties": {name: {"enum": [*(values or ())]}}}
            branches.append(branch if values is None else {"allOf": [branch, decides]})
        return {**{key: value for key, value in converted.items() if key != composed}, "anyOf": branches}

    def _values_of(self, branch: JsonValue, name: str, mapping: JsonObject) -> list[str] | None:
        """Return the values of the property that choose a branch; None if it has no name, or says by itself which those are."""
        reference = branch.get("$ref") if isinstance(branch, dict) else None
        if not isinstance(reference, str):
            return None
        target = self._references.target(reference)
        properties = target.get("properties") if isinstance(target, dict) else None
        own = properties.get(name) if isinstance(properties, dict) else None
        if isinstance(own, dict) and ("const" in own or "enum" in own):
            return None
        short = reference.rpartition("/")[2]
        mapped = [value for value, to in mapping.items() if to in (reference, short)]
        # The name of a schema chooses it too, unless that is mapped to another one.
        return mapped if short in mapping else [*mapped, short]

    def _reference(self, reference: str, schema: JsonObject, direction: Direction) -> JsonObject:
        """Return the reference to a definition, which `part` converts unless it was already."""
        target = self._references.target(reference)
        if not isinstance(target, dict):
            return {} if target is True else {"not": {}}
        name = self._name_of(reference)
        definitions = self._definitions[direction]
        if name not in definitions:
            # Known before it is converted, because it may refer to itself.
            definitions[name] = {}
            self._waiting.append((name, target, direction))
        made: JsonObject = {"$ref": f"#/$defs/{name}"}
        if self._old:
            # In 3.0 the members beside a reference do not count; many documents write these two there, and mean them.
            if isinstance(description := schema.get("description"), str):
                made["description"] = description
            return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") is True else made
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self._converted(beside, direction), **made}

    def _define(self, name: str, schema: JsonObject, direction: Direction) -> None:
        try:
            made = self._converted(schema, direction)
            check_part(made, "a schema")
            self._definitions[direction][name] = made
        except UnsupportedOperation as error:
            # Raised by `complete`, for whatever needs it.
            self._failed[name] = error

    def _name_of(self, reference: str) -> str:
        name = self._names.get(reference)
        if name is None:
            base = "".join(character if character.isalnum() else "_" for character in reference.rpartition("/")[2])
            name = self._names[reference] = self._free.take(base)
        return name

    def _tidy(self, schema: JsonObject, made: JsonObject) -> None:
        """Correct what many documents get wrong, and what no host needs."""
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not self._is_pattern(pattern):
            del made["pattern"]
            self.notes[f"the pattern {pattern!r:.80} is not checked: it needs backtracking, or is wrong"] = None
        examples = schema.get("examples")
        if "example" in schema:
            made["examples"] = [schema["example"]]
        elif examples is not None and not isinstance(examples, list):
            del made["examples"]
        if isinstance(required := schema.get("required"), list):
            # Names are strings, and so hashable; `check_schema` refuses what is not.
            made["required"] = (
                list(dict.fromkeys(required)) if all(isinstance(each, str) for each in required) else required
            )
        if schema.get("format") == "byte" and "contentEncoding" not in made:
            made["contentEncoding"] = "base64"

    def _is_pattern(self, text: str) -> bool:
        """Return whether a pattern can be checked in linear time."""
        if text not in self._patterns:
            try:
                self._patterns[text] = Pattern(text).weight
            except ValueError:
                return False
        return True

    def _without_one_sided(self, made: JsonObject, direction: Direction) -> None:
        """Remove the properties that only the other side writes."""
        properties = made.get("properties")
        if not isinstance(properties, dict):
            return
        mark = "readOnly" if direction == "request" else "writeOnly"
        gone = {name for name, each in properties.items() if isinstance(each, dict) and self._resolves_to(each, mark)}
        if not gone:
            return
        made["properties"] = {name: each for name, each in properties.items() if name not in gone}
        required = made.get("required")
        if isinstance(required, list):
            made["required"] = [name for name in required if name not in gone]

    def _resolves_to(self, schema: JsonObject, mark: str) -> bool:
        return schema.get(mark) is True or ("$ref" in schema and self._references.resolved(schema).get(mark) is True)


Definitions: TypeAlias = dict[str, JsonObject]


def with_number_bounds(schema: JsonObject, made: JsonObject) -> None:
    """Change the exclusive bounds of 3.0, which are flags, to those of 2020-12, which are numbers. Documents of 3.1 have both."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        flag = schema.get(exclusive)
        if isinstance(flag, bool):
            del made[exclusive]
            if flag and bound in made:
                made[exclusive] = made.pop(bound)


def nullable(schema: JsonObject) -> JsonObject:
    """Return a schema that allows null too."""
    kind = schema.get("type")
    if not isinstance(kind, str):
        # Without a type, `nullable` says nothing in 3.0. Documents mean it all the same where they compose schemas.
        return {"anyOf": [schema, {"type": "null"}]} if schema else schema
    made: JsonObject = {**schema, "type": [kind, "null"]}
    enum = schema.get("enum")
    if isinstance(enum, list) and None not in enum:
        made["enum"] = [*enum, None]
    return made


def check_part(schema: JsonObject, what: str) -> None:
    """Raise `UnsupportedOperation` if the keywords of a schema are not valid. What it refers to is checked by itself."""
    try:
        check_keywords(schema, what)
    except ValueError as error:
        raise UnsupportedOperation(str(error)) from None


def depth_of(value: JsonValue) -> int:
    """Return how deep a value is nested."""
    # Level by level: what long chains of references became can be deeper than the stack.
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return depth
