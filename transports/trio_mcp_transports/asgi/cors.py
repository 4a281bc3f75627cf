"""CORS: which pages of a browser may call, and what they may read of the responses (Fetch, 3.2).

Before a browser sends what a form could not send, as every message of MCP, it asks the server (the preflight). A page of another
origin gets a response only if the headers of that allow it. Cookies are never allowed: a page sends its token itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from .access import Access, Headers
from .requests import Request
from .responses import Response

ALLOW_ORIGIN: Final = b"access-control-allow-origin"
VARY: Final = (b"vary", b"origin")
"""For caches, also where the origin is not allowed."""
EXPOSE: Final = (b"access-control-expose-headers", b"mcp-session-id, retry-after, www-authenticate, x-request-id")
"""The response headers that a client needs."""
PRIVATE_NETWORK: Final = (b"access-control-allow-private-network", b"true")
MAX_AGE: Final = (b"access-control-max-age", b"600")
"""Seconds for which a browser need not ask again."""

REQUEST_HEADERS: Final = (
    "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id"
)
"""The request headers that every client may send."""
MAX_ASKED: Final = 1024
"""Characters of the names of further headers that a preflight may ask for."""
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAMES: Final = re.compile(rf"{_NAME}(?:[ \t]*,[ \t]*{_NAME})*")


def is_preflight(request: Request) -> bool:
    """Return whether a browser asks what a page may send; it sends no credentials with that (Fetch, 4.8)."""
    return request.method == "OPTIONS" and request.header("access-control-request-method") is not None


class Cors:
    """What the responses of one application say to browsers.

    Args:
        accesses: who may reach its servers; an origin that one of them allows may read what is not said by a single server.
    """

    def __init__(self, accesses: Collection[Access]) -> None:
        self._accesses = accesses

    def headers(self, request: Request, origin: str, response: Response) -> Headers:
        """Return what is added to the response to a request with this origin."""
        # The application of one server among several has decided.
        if any(line is VARY for line in response.headers):
            return ()
        if not any(access.allows_origin(origin) for access in self._accesses):
            return (VARY,)
        added: list[tuple[bytes, bytes]] = [VARY]
        given = dict(response.headers)
        # Public documents are for every origin, and custom routes may say it themselves. Browsers refuse two values.
        if ALLOW_ORIGIN not in given:
            added += [(ALLOW_ORIGIN, origin.encode("latin-1")), EXPOSE]
            if is_preflight(request) and (methods := given.get(b"allow")) is not None:
                added += preflight_headers(request, methods)
        if request.header("access-control-request-private-network") == "true":
            added.append(PRIVATE_NETWORK)
        return added


def preflight_headers(request: Request, methods: bytes) -> Headers:
    """Return what a preflight asks for, at a path with these methods."""
    headers = allowed_headers(request.header("access-control-request-headers") or "")
    return [
        (b"access-control-allow-methods", methods),
        (b"access-control-allow-headers", headers.encode()),
        MAX_AGE,
    ]


def allowed_headers(asked: str) -> str:
    """Return the names of the headers that a page may send: those of MCP, and those that it asks for.

    A server may have its key in any header, and tools have headers for their parameters. If the names are not valid or too
    long, they are those of MCP alone.
    """
    if len(asked) > MAX_ASKED or not _NAMES.fullmatch(asked):
        return REQUEST_HEADERS
    names = [*REQUEST_HEADERS.split(", "), *(name.strip().lower() for name in asked.split(","))]
    return ", ".join(dict.fromkeys(names))
