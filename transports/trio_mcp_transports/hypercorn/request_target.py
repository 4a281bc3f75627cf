"""Requests whose target is a whole URI (RFC 9112, 3.2.2), as clients send them to a forward proxy.

Such a request becomes one for the path of that URI, with the URI's authority in place of its Host field, before anything else
looks at it. So every later check (names of servers, middleware, allowed hosts) sees one path and one host, and none can be
bypassed by a target and a Host that disagree.
"""

from __future__ import annotations

import re
from typing import Final

import h11

WHOLE_URI: Final = re.compile(rb"([A-Za-z][-+.0-9A-Za-z]*+)://([^/?#]*+)(.*+)")
# RFC 3986, 3.2.2 and 3.2.3, without a user, which RFC 9110, 4.2.4 has servers treat as an error, and without an empty host
# (4.2.1).
AUTHORITY: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]++\]|[-._~0-9A-Za-z%!$&'()*+,;=]++)(?::[0-9]*+)?")


def resolve_target(request: h11.Request, *, is_tls: bool) -> tuple[int | None, h11.Request]:
    """Return the status to refuse the target of `request` with, or None; and the request with the path of its target.

    A request whose target is a path, `*` or an authority is returned as it is.

    Args:
        is_tls: the connection is secured.
    """
    if request.target.startswith(b"/") or request.method == b"CONNECT":
        return None, request
    uri = WHOLE_URI.fullmatch(request.target)
    if uri is None:
        return None, request
    scheme, authority, path = uri[1].lower(), uri[2], uri[3]
    # The Host field is not used, but one that is invalid is refused all the same (RFC 9112, 3.2).
    hosts = [value for name, value in request.headers if name == b"host" and value]
    if not all(map(AUTHORITY.fullmatch, [authority, *hosts])):
        return 400, request
    # RFC 9110, 7.4: a URI of https must be rejected on a connection without TLS, and one of another scheme is not ours.
    if scheme != (b"https" if is_tls else b"http"):
        return 421, request
    others = [line for line in request.headers.raw_items() if line[0].lower() != b"host"]
    return None, h11.Request(
        method=request.method,
        target=own_target(request.method, path),
        headers=[(b"Host", authority), *others],
        http_version=request.http_version,
    )


def own_target(method: bytes, path: bytes) -> bytes:
    """Return the target of a request for a URI with this path and query, as its server gets it."""
    if not path and method == b"OPTIONS":
        return b"*"  # the server as a whole (RFC 9112, 3.2.4)
    return path if path.startswith(b"/") else b"/" + path
