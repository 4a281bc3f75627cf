"""A tool's arguments as a person writes them: `city=Lisbon seats=2`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import cast

from ..protocol.schema.references import dereference
from ..types import JsonObject, JsonValue, Tool
from .failure import Failed, Status

KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def pairs(texts: Iterable[str], where: str = "", form: str = "key=value") -> list[tuple[str, str]]:
    """Each `key=value`, split; `form` is what it is called where it stands.

    Raises:
        Failed: one has no key or no equals sign; `where` says which option it was given to.
    """
    split: list[tuple[str, str]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Failed(f"{where}{text!r} is not {form}", Status.USAGE)
        split.append((key, value))
    return split


def read_arguments(tool: Tool, texts: Iterable[str], whole: str | None) -> JsonObject:
    """The arguments of a call: the JSON object `whole`, if given, with every `key=value` put into it.

    A value is JSON where it is JSON and the tool's schema does not want text there; otherwise it is text.

    Raises:
        Failed: something is not `key=value`, is given twice, or `whole` is no JSON object.
    """
    arguments = read_object(whole)
    given: set[str] = set()
    for key, text in pairs(texts):
        if key in given:
            raise Failed(f"{key!r} is given twice", Status.USAGE)
        given.add(key)
        arguments[key] = read_value(text, kinds(property_of(tool, key), tool.input_schema))
    return arguments


def read_object(text: str | None) -> JsonObject:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Failed(f"--json is not JSON: {error}", Status.USAGE) from error
    if not isinstance(value, dict):
        raise Failed('--json takes an object, such as \'{"city": "Lisbon"}\'', Status.USAGE)
    return cast("JsonObject", value)


def read_value(text: str, wanted: set[str]) -> JsonValue:
    """One value: text where only text is wanted, or where it may be and the text is JSON of no other wanted kind."""
    if wanted == {"string"}:
        return text
    try:
        value = cast("JsonValue", json.loads(text, parse_constant=refuse))
    except ValueError:
        return text
    kind = KINDS.get(type(value), "null")
    fits = kind in wanted or (kind == "integer" and "number" in wanted)
    return text if "string" in wanted and not fits else value


def refuse(constant: str) -> JsonValue:
    """JSON has no NaN and no Infinity (RFC 8259 section 6)."""
    raise ValueError(constant)


def signature(tool: Tool) -> str:
    """How to call a tool: its name, and its arguments with their kinds, the optional ones in brackets."""
    required = tool.input_schema.get("required")
    needed = required if isinstance(required, list) else []
    words = [tool.name]
    for name in properties(tool):
        word = f"{name}={shape(property_of(tool, name), tool.input_schema)}"
        words.append(word if name in needed else f"[{word}]")
    return " ".join(words)


def shape(schema: JsonObject, root: JsonObject) -> str:
    choices = (dereference(schema, root) or {}).get("enum")
    if isinstance(choices, list):
        return "|".join(map(str, choices))
    return "|".join(sorted(kinds(schema, root) - {"null"})) or "any"


def kinds(schema: JsonObject, root: JsonObject) -> set[str]:
    """The kinds of JSON that a schema takes; empty when it does not say."""
    schema = dereference(schema, root) or {}
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {str(item) for item in kind}
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        return {found for option in options if isinstance(option, dict) for found in kinds(option, root)}
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {KINDS.get(type(choice), "null") for choice in choices} if isinstance(choices, list) else set()


def property_of(tool: Tool, name: str) -> JsonObject:
    found = properties(tool).get(name)
    return found if isinstance(found, dict) else {}


def properties(tool: Tool) -> JsonObject:
    found = tool.input_schema.get("properties")
    return found if isinstance(found, dict) else {}
