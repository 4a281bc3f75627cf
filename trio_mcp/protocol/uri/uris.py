"""The syntax of a resource's URI (RFC 3986, as far as a server checks it before it looks for the resource)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from ...errors import RemoteProtocolError
from ..jsonrpc import INVALID_PARAMS

MAX_URI = 8 * 1024
"""Characters of a URI. What is compared with it costs time for each of them; RFC 9110, 4.1 asks for 8,000 at least."""

KEPT: Final = "trio-mcp://"
"""The start of the URI of a result that was too large to be sent, and was kept."""
KEPT_HERE: Final = f"{KEPT}results/"
"""The start of that of the server itself; a random name follows. Of a server behind a mounted proxy it begins with the prefix."""

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^ ]+")


def is_uri(text: str) -> bool:
    """Return whether the text begins with a scheme and holds no spaces or control characters."""
    # Not a full parser of RFC 3986: many clients do not encode characters beyond ASCII, and the handler decides what exists.
    return len(text) <= MAX_URI and _URI.fullmatch(text) is not None and text.isprintable()


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


def is_kept(uri: object) -> bool:
    """Return whether something is the URI of a result that was kept, by whichever server."""
    return isinstance(uri, str) and uri.startswith(KEPT)


def is_kept_here(uri: str) -> bool:
    """Return whether a URI is that of a result which the server itself has kept, or may have."""
    return uri.startswith(KEPT_HERE) and "/" not in uri[len(KEPT_HERE) :]
