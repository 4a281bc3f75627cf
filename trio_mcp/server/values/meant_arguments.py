"""Arguments that a model or a language wrote in another way than the schema has them, and that have one meaning only.

{"tags": "[\"a\", \"b\"]"}      for {"type": "array"}       a list: no string is valid here
{"tags": "[\"a\", \"b\"]"}      for {}                      the text, as it is
{"count": 3.0}                for {"type": "integer"}     3
"""

from __future__ import annotations

from typing import Final

from ...errors import RemoteProtocolError
from ...protocol.strict_json import loads
from ...types import JsonObject, JsonValue

MAX_REFERENCES: Final = 8
"""How many schemas in one another are searched for one that takes a string."""


def meant_arguments(arguments: JsonObject, schema: JsonObject) -> JsonObject:
    """Return arguments as they are meant; the same object if all of them are written as the schema has them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return arguments
    meant = {
        name: found
        for name, value in arguments.items()
        if isinstance(value, str | float) and (found := _meant(value, properties.get(name), schema)) is not value
    }
    return {**arguments, **meant} if meant else arguments


def _meant(value: str | float, schema: JsonValue, root: JsonObject) -> JsonValue:
    if not isinstance(schema, dict):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and schema.get("type") == "integer" else value
    if value.lstrip()[:1] not in ("[", "{") or admits_string(schema, root):
        return value
    try:
        parsed = loads(value.encode())
    except RemoteProtocolError:
        return value
    return parsed if isinstance(parsed, list | dict) else value


def admits_string(schema: JsonValue, root: JsonObject, depth: int = MAX_REFERENCES) -> bool:
    """Return whether a string may be valid; True if that is unknown.

    Args:
        root: has the `$defs` that references lead to.
    """
    if not isinstance(schema, dict) or depth == 0:
        return schema is not False
    kinds = schema.get("type", "string")
    if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
        return False
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(choices := schema.get("enum"), list):
        return any(isinstance(each, str) for each in choices)
    if isinstance(reference := schema.get("$ref"), str):
        definitions = root.get("$defs")
        target = definitions.get(reference.removeprefix("#/$defs/"), True) if isinstance(definitions, dict) else True
        return admits_string(target, root, depth - 1)
    for keyword, decide in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        options = schema.get(keyword)
        if isinstance(options, list) and not decide(admits_string(each, root, depth - 1) for each in options):
            return False
    return True
