"""The URIs of results that were too large to be sent, in the JSON of the results that link to them.

trio-mcp://results/9fK...          kept by the server itself
trio-mcp://notes/results/9fK...    kept by the one behind a proxy that is mounted as "notes"
"""

from __future__ import annotations

from collections.abc import Callable

from ...types import JsonObject, JsonValue
from .uris import is_kept


def with_links(result: JsonObject, rename: Callable[[str], str]) -> JsonObject:
    """Return a result whose links have other URIs, also where its texts name them; the same one if it has no such link.

    Args:
        result: of a `tools/call`, with links, or of the `resources/read` of one.
        rename: returns the new URI.
    """
    for member in ("content", "contents"):
        parts = result.get(member)
        if isinstance(parts, list) and (renamed := {uri: rename(uri) for part in parts for uri in _uris(part)}):
            result = {**result, member: [_with_uris(part, renamed) for part in parts]}
    return result


def _uris(part: JsonValue) -> list[str]:
    """Return the URI of a link or of contents, if it is one of these."""
    uri = part.get("uri") if isinstance(part, dict) else None
    return [uri] if isinstance(uri, str) and is_kept(uri) else []


def _with_uris(part: JsonValue, renamed: dict[str, str]) -> JsonValue:
    if not isinstance(part, dict):
        return part
    uri, text = part.get("uri"), part.get("text")
    if isinstance(uri, str):
        # Contents: their text is that of the result.
        return {**part, "uri": renamed.get(uri, uri)}
    if isinstance(text, str):
        for before, after in renamed.items():
            text = text.replace(before, after)
        return {**part, "text": text}
    return part
