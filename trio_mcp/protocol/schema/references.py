"""`$ref` in the schemas that pydantic writes, and in those that are only shown to a person.

A reference is a JSON Pointer (RFC 6901) into the document. Full resolution, with `$id`, anchors and dynamic references, is needed
only where values are validated: `compiled` leaves that to `referencing`, because jsonschema resolves with it too, and a second
resolver could disagree with it about what a schema means.
"""

from __future__ import annotations

from urllib.parse import unquote

from ...types.base import JsonObject, JsonValue


def dereference(schema: JsonObject, root: JsonObject) -> JsonObject | None:
    """Return a copy of `schema` without `$ref`: the members of its target, and over them its own.

    Returns:
        None if a reference leads out of `root`, to no schema, or back to itself.
    """
    merged, followed = dict(schema), set[str]()
    while isinstance(reference := merged.pop("$ref", None), str):
        target = at_pointer(reference, root)
        if not isinstance(target, dict) or reference in followed:
            return None
        followed.add(reference)
        merged = {**target, **merged}
    return merged


def at_pointer(reference: str, root: JsonObject) -> JsonValue:
    """Return the value in `root` that a reference such as `#/$defs/Cabin` names, or None."""
    document, _, pointer = reference.partition("#")
    # A pointer is empty or starts with a slash; anything else is an anchor.
    if document or (pointer and not pointer.startswith("/")):
        return None
    found: JsonValue = root
    for step in unquote(pointer).split("/")[1:]:
        if not isinstance(found, dict):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found
