"""Parse a tool's arguments from the command line, `city=Lisbon seats=2`, and show how to call it."""

# Only the JSON types of a property are read from the schema, to decide between a string and other JSON. Nothing is validated: the
# server does that, and its error names the argument. Examples:
#
#   type of `value`       value=7    value=x    value="7"    value=null
#   string                "7"        "x"        "\"7\""      "null"
#   integer               7          "x"        "7"          null
#   string, null          "7"        "x"        "7"          null
#   any, or unknown       7          "x"        "7"          null

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import cast

from ..protocol.schema.references import dereference
from ..types import JsonObject, JsonValue, Tool
from .errors import CommandError

KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def read_arguments(tool: Tool, given: Sequence[tuple[str, str]], whole: str | None) -> JsonObject:
    """Return the arguments of a call: the JSON object `whole`, if given, with every key and value added to it.

    A value is JSON if it is valid JSON and the tool's schema does not require a string there; otherwise it is a string.

    Raises:
        CommandError: a key is given twice, or `whole` is not a JSON object.
    """
    arguments = read_object(whole)
    check_once(given)
    schemas = properties(tool.input_schema)
    values = {key: read_value(text, kinds(schemas.get(key, {}), tool.input_schema)) for key, text in given}
    return {**arguments, **values}


def check_once(given: Sequence[tuple[str, str]]) -> None:
    """Raise `CommandError` if a key is given twice."""
    # Not the last one: two values for one argument are more likely a typing error than a correction.
    if twice := [key for key, count in Counter(key for key, _ in given).items() if count > 1]:
        raise CommandError(f"{twice[0]!r} is given twice")


def read_object(text: str | None) -> JsonObject:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--args is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CommandError('--args takes an object, such as \'{"city": "Lisbon"}\'')
    return cast("JsonObject", value)


def read_value(text: str, wanted: set[str]) -> JsonValue:
    """Return a value: the text if the schema wants only strings, or allows them and the text is not JSON it wants more."""
    # A string first: a user who writes zip=01234 or name=true for a string means these characters.
    if wanted == {"string"}:
        return text
    try:
        value = cast("JsonValue", json.loads(text, parse_constant=reject))
    except ValueError:
        return text
    kind = KINDS.get(type(value), "null")
    # 7 is parsed as an integer, and is a number too.
    fits = kind in wanted or (kind == "integer" and "number" in wanted)
    return text if "string" in wanted and not fits else value


def reject(constant: str) -> JsonValue:
    """Reject NaN and Infinity, which `json.loads` accepts and JSON does not have (RFC 8259 section 6)."""
    raise ValueError(constant)


def signature(tool: Tool) -> str:
    """Return how to call a tool: its name, and its arguments with their types, the optional ones in brackets."""
    required = tool.input_schema.get("required")
    needed = required if isinstance(required, list) else []
    words = [tool.name]
    for name, schema in properties(tool.input_schema).items():
        word = f"{name}={shape(schema, tool.input_schema)}"
        words.append(word if name in needed else f"[{word}]")
    return " ".join(words)


def shape(schema: JsonObject, root: JsonObject) -> str:
    """Return the type of an argument, or its choices, with bars between them."""
    choices = (dereference(schema, root) or {}).get("enum")
    if isinstance(choices, list):
        # The choices say more than their type, and are what the user types.
        return "|".join(map(str, choices))
    return "|".join(sorted(kinds(schema, root) - {"null"})) or "any"


def kinds(schema: JsonObject, root: JsonObject) -> set[str]:
    """Return the JSON types that a schema allows; empty if it does not restrict them."""
    schema = dereference(schema, root) or {}
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {str(item) for item in kind}
    # What pydantic writes for `int | None`, and what other libraries write for it.
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        return {found for option in options if isinstance(option, dict) for found in kinds(option, root)}
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {KINDS.get(type(choice), "null") for choice in choices} if isinstance(choices, list) else set()


def properties(schema: JsonObject) -> dict[str, JsonObject]:
    """Return the schemas of an object's members, such as a tool's arguments; an empty one for a boolean or a malformed one."""
    found = schema.get("properties")
    members = found.items() if isinstance(found, dict) else ()
    return {name: schema if isinstance(schema, dict) else {} for name, schema in members}
