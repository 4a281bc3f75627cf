"""The JSON Schemas that a form may have: flat objects, reduced to the keywords that the specification allows (L-ELI-3s)."""

from __future__ import annotations

from typing import cast

from ..protocol.schema.references import dereference
from ..types import JsonObject, JsonValue

KEYWORDS = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set[str](),
    "array": {"minItems", "maxItems", "items"},
}
COMMON = {"type", "title", "description", "default"}
FORMATS = {"email", "uri", "date", "date-time"}


class FormError(TypeError):
    """A type cannot be shown as a form; the message names the member that is not allowed."""


def flatten_schema(schema: JsonObject, name: str) -> JsonObject:
    """Return the schema that pydantic generates for a model, reduced to the keywords of a form."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise FormError(f"{name}: a form needs at least one field")
    fields = {member: form_field(f"{name}.{member}", value, schema) for member, value in properties.items()}
    required = schema.get("required")
    return {"type": "object", "properties": cast("JsonValue", fields), **({"required": required} if required else {})}


def form_field(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Return the schema of one member of a form."""
    merged = resolve_field(path, schema, root)
    kind = merged.get("type")
    if not isinstance(kind, str) or kind not in KEYWORDS:
        raise FormError(f"{path}: a form field is a string, number, boolean or choice, not {kind or 'a union'}")
    if kind == "array":
        merged["items"] = choice_schema(path, merged.get("items"), root)
    kept = {key: value for key, value in merged.items() if key in COMMON or key in KEYWORDS[kind]}
    # Other formats are pydantic's, such as "password": the specification allows four, and a client may reject the rest.
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    # `seat: str | None = None`: the specification has no null default, and leaving the field out means the same.
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def resolve_field(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Follow `$ref`, take the one real type of an optional, and write a constant as a choice of one."""
    merged = dereference(schema, root) if isinstance(schema, dict) else None
    if merged is None:
        raise FormError(f"{path}: not a schema")
    options = merged.pop("anyOf", None)
    if isinstance(options, list):
        real = [option for option in options if not (isinstance(option, dict) and option.get("type") == "null")]
        if len(real) != 1:
            raise FormError(f"{path}: a form field has one type, not a union of {len(real)}")
        merged = {**resolve_field(path, real[0], root), **merged}
    if "const" in merged:
        merged["enum"] = [merged.pop("const")]
    choices = merged.get("enum")
    if isinstance(choices, list) and not all(isinstance(choice, str) for choice in choices):
        raise FormError(f"{path}: the choices of a form field are strings")
    return merged


def choice_schema(path: str, schema: JsonValue, root: JsonObject) -> JsonObject:
    """Return the schema of the items of a multiple choice."""
    chosen = resolve_field(f"{path}[]", schema, root)
    if chosen.get("type") == "string" and "oneOf" in chosen:
        return {"anyOf": chosen["oneOf"]}
    if chosen.get("type") != "string" or "enum" not in chosen:
        raise FormError(f"{path}: a list in a form is a multiple choice: list[Literal[...]] or list[an Enum]")
    return {"type": "string", "enum": chosen["enum"]}
