"""The syntax of a resource's URI (RFC 3986, as far as a server checks it before it looks for the resource)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final
from urllib.parse import quote, urljoin

from ...errors import RemoteProtocolError
from ...types import JsonObject, JsonValue
from ..jsonrpc import INVALID_PARAMS

MAX_URI = 8 * 1024
"""Characters of a URI. What is compared with it costs time for each of them; RFC 9110, 4.1 asks for 8,000 at least."""

KEPT: Final = "trio-mcp://"
"""The start of the URI of a result that was too large to be sent, and was kept."""
KEPT_HERE: Final = f"{KEPT}results/"
"""The start of that of the server itself; a random name follows. Of a server behind a mounted proxy it begins with the prefix."""

# The patterns are compiled when they are first used, by `re`, which keeps them.
_URI: Final = r"[A-Za-z][A-Za-z0-9+.-]*:[^ ]+"


def is_uri(text: str) -> bool:
    """Return whether the text begins with a scheme and holds no spaces or control characters."""
    # Not a full parser of RFC 3986: many clients do not encode characters beyond ASCII, and the handler decides what exists.
    return len(text) <= MAX_URI and re.fullmatch(_URI, text) is not None and text.isprintable()


def check_uri(uri: str) -> None:
    """Raise unless `uri` is a URI.

    Raises:
        RemoteProtocolError: -32602; the message names it.
    """
    if not is_uri(uri):
        too_long = f"has {len(uri)} characters; the limit is {MAX_URI}"
        problem = too_long if len(uri) > MAX_URI else "needs a scheme, such as file: or https:"
        raise RemoteProtocolError(f"{uri[:128]!r} is not a URI: it {problem}", code=INVALID_PARAMS)


def ascii_uri(uri: str) -> str | None:
    """Return the URI with characters beyond ASCII encoded, as an expansion has them; None if it is over `MAX_URI`."""
    if len(uri) > MAX_URI:
        return None
    if uri.isascii():
        return uri
    try:
        ascii_bytes, all_bytes = len(uri.encode("ascii", "ignore")), len(uri.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return None
    if ascii_bytes + 3 * (all_bytes - ascii_bytes) > MAX_URI:
        return None
    return re.sub(r"[^\x00-\x7f]+", lambda found: quote(found[0]), uri)


# The normal form of a URI (RFC 3986, 6.2.2 and 6.2.3): two that are equal in it name the same resource. Many clients send it in
# place of what a server listed: their URL type writes hosts in lower case, and a slash behind a bare host.

_ESCAPE: Final = r"%[0-9A-Fa-f]{2}"
_AUTHORITY: Final = r"//[^/?#]*"
_LITERAL: Final = r"\{[^}]*\}|[^{]+"
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443"}


def normal_uri(uri: str) -> str:
    """Return the normal form of a URI, or of an RFC 6570 template."""
    scheme, colon, rest = uri.partition(":")
    scheme, rest = scheme.lower(), re.sub(_ESCAPE, _normal_escape, ascii_uri(rest) or rest)
    if (found := re.match(_AUTHORITY, rest)) is None:
        return f"{scheme}{colon}{rest}"
    user, at, host = found[0].rpartition("@")
    # The names of variables keep their case.
    host = re.sub(_LITERAL, lambda part: part[0] if part[0][0] == "{" else part[0].lower(), host)
    host = host.removesuffix(_DEFAULT_PORTS.get(scheme, ":")).removesuffix(":")
    if (scheme, host) == ("file", "//localhost"):
        host = "//"
    path = rest[found.end() :]
    if scheme in _DEFAULT_PORTS and path[:1] != "/":
        path = f"/{path}"
    if "/." in path:
        path = urljoin("http://host", path).removeprefix("http://host")
    return f"{scheme}:{user}{at}{host}{path}"


def _normal_escape(found: re.Match[str]) -> str:
    character = chr(int(found[0][1:], 16))
    return character if character in _UNRESERVED else found[0].upper()


def is_kept(uri: object) -> bool:
    """Return whether something is the URI of a result that was kept, by whichever server."""
    return isinstance(uri, str) and uri.startswith(KEPT)


def is_kept_here(uri: str) -> bool:
    """Return whether a URI is that of a result which the server itself has kept, or may have."""
    return uri.startswith(KEPT_HERE) and "/" not in uri[len(KEPT_HERE) :]


# Which resources a resource is a part of (L-RES-1s).
#
# `resources/updated` may name "a sub-resource of the one that the client actually subscribed to". The specification defines
# no
# syntax for that, so both sides use the widest reading of RFC 3986: a part differs from the whole by a path below it, a query
# or
# a fragment. If the reading is too wide, the client reads a resource once more than it had to. If it is too narrow, the
# client
# keeps an outdated one.

MAX_LEVELS: Final = 256
"""Separators of a URI that are looked at for its ancestors."""

_SEPARATOR: Final = "[/?#]"


def ancestor_uris(uri: str) -> Iterator[str]:
    """Yield `uri` and every URI that it is a part of: `file:///a/b` is a part of `file:///a/` and of `file:///a`."""
    yield uri
    for separator in islice(re.finditer(_SEPARATOR, uri), MAX_LEVELS):
        yield uri[: separator.start()]
        if separator[0] == "/":
            yield uri[: separator.end()]


def is_part_of(uri: str, whole: str) -> bool:
    """Return whether `whole` is one of `ancestor_uris(uri)`, without listing them; both in their normal form, if need be."""
    if not uri.startswith(whole):
        uri, whole = normal_uri(uri), normal_uri(whole)
        if not uri.startswith(whole):
            return False
    return len(uri) == len(whole) or whole.endswith("/") or uri[len(whole)] in "/?#"


# The URIs of results that were too large to be sent, in the JSON of the results that link to them.
#
# trio-mcp://results/9fK...          kept by the server itself
# trio-mcp://notes/results/9fK...    kept by the one behind a proxy that is mounted as "notes"


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
