"""The heads of requests: the usual ones are read by one pattern, and what it takes, h11 takes with the same meaning.

The pattern refuses nothing. A head that does not match is left to h11, which reads all of HTTP/1.1 and answers what is wrong.
"""

from __future__ import annotations

import re
from typing import Final

import h11

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.base.values import make_tuple

from ..asgi.access import SHARED_TEXTS, Headers
from .response import says_close

# RFC 9110, 5.5 and 5.6.2, without folded lines, empty values and bytes outside of ASCII. A field ends where its line does: no
# part of the pattern can match in two ways, so it takes linear time.
HEAD: Final = re.compile(
    rb"(POST|GET|DELETE|OPTIONS) (/[!-\"$-~]*+) HTTP/1\.1\r\n"
    rb"((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[ \t]*+[!-~][ \t!-~]*+\r\n){1,100}+)\r\n"
)
FIELD: Final = re.compile(r"([^:]++):[ \t]*+([^\r]++)\r\n")
LENGTH: Final = re.compile(r"[0-9]{1,9}+")

MAX_HEAD: Final = 8 * 1024

LEFT_TO_H11: Final = frozenset({"transfer-encoding", "expect", "upgrade", "te", "trailer", "http2-settings"})
"""Fields that change how a request is framed or answered."""


class RequestHead(NamedTuple):
    """The head of a request.

    Attributes:
        method: in upper case.
        target: a path with its query, as it was sent; `*` or an authority in the forms of RFC 9112, 3.2.3 and 3.2.4.
        headers: by their names in lower case; None if one may have come twice.
        end: where the body begins.
        length: of the body; None if it is sent in chunks.
        lines: the headers as they came, names in lower case; empty if `headers` are there.
        keeps_alive: the client may send another request on the connection.
        takes_chunks: it speaks HTTP/1.1.
        is_upgrade: it asks for a WebSocket.
        expects_continue: it sends the body after a 100 response (RFC 9110, 10.1.1).
    """

    method: str
    target: str
    headers: dict[str, str] | None
    end: int
    length: int | None
    lines: Headers = ()
    keeps_alive: bool = True
    takes_chunks: bool = True
    is_upgrade: bool = False
    expects_continue: bool = False


def read_head(data: bytes, max_bytes: int = MAX_HEAD) -> RequestHead | None:
    """Return the head with which `data` begins; None if it has not come whole, or is for h11 to read."""
    match = HEAD.match(data, 0, max_bytes)
    if match is None:
        return None
    method, target, lines = match[1].decode(), match[2].decode(), match[3].decode()
    fields = FIELD.findall(lines)
    headers: dict[str, str] = {
        SHARED_TEXTS.get(name := raw.lower(), name): value.rstrip(" \t") for raw, value in fields
    }
    # A name that came twice is rare, and of some of them one must not.
    if len(headers) != len(fields) or "host" not in headers or not LEFT_TO_H11.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    length = headers.get("content-length")
    if method != "POST":
        return RequestHead(method, target, headers, match.end(), 0) if length is None else None
    if length is None or LENGTH.fullmatch(length) is None:
        return None
    return make_tuple(RequestHead, (method, target, headers, match.end(), int(length), (), True, True, False, False))


def head_of(request: h11.Request, *, is_upgrade: bool) -> RequestHead:
    """Return the head that h11 has read, whose body begins with what that has not read."""
    framing = dict(request.headers)
    is_chunked = b"transfer-encoding" in framing
    is_newest = request.http_version >= b"1.1"
    return RequestHead(
        request.method.decode("ascii").upper(),
        request.target.decode("latin-1"),
        None,
        0,
        None if is_chunked else int(framing.get(b"content-length", 0)),
        list(request.headers),
        is_newest and not says_close(request.headers),
        is_newest,
        is_upgrade,
        is_newest and framing.get(b"expect", b"").lower() == b"100-continue",
    )


# What is checked of a request that h11 has read, before its application is started.

# These two are lists of tokens (RFC 9110, 5.6.2).
ASCII_ONLY: Final = frozenset({b"connection", b"sec-websocket-protocol"})
# How long a body may be whose rest is read and discarded when its request was answered before it came.
MAX_DISCARDED_BYTES: Final = 64 * 1024
# Lines of a head. Each is kept as several objects while its request runs, however short it is.
MAX_HEADERS: Final = 100


def check_request(request: h11.Request, max_head: int) -> tuple[int | None, bool]:
    """The status to refuse `request` with, or None; and whether it asks for a WebSocket."""
    if len(request.headers) > MAX_HEADERS:
        return 431, False
    length = len(request.target)
    upgrade = connection = b""
    framings = 0
    for name, value in request.headers:
        length += len(name) + len(value)
        if name in ASCII_ONLY and not value.isascii():
            return 400, False
        if name == b"upgrade":
            upgrade = value
        elif name == b"connection":
            connection += b"," + value
        elif name == b"content-length" or name == b"transfer-encoding":
            framings += 1
    if not request.http_version.startswith(b"1."):
        return 505, False
    # h11 applies its limit to a head that is incomplete. One that came whole in a single read was never measured.
    if length > max_head:
        return 431, False
    # Two ways to frame one body: RFC 9112, 6.1 lets a server refuse what request smuggling needs.
    if framings > 1:
        return 400, False
    websocket = (
        request.method == b"GET"
        and upgrade.strip().lower() == b"websocket"
        and any(token.strip() == b"upgrade" for token in connection.lower().split(b","))
    )
    return None, websocket


# Requests whose target is a whole URI (RFC 9112, 3.2.2), as clients send them to a forward proxy.
#
# Such a request becomes one for the path of that URI, with the URI's authority in place of its Host field, before anything
# else
# looks at it. So every later check (names of servers, middleware, allowed hosts) sees one path and one host, and none can be
# bypassed by a target and a Host that disagree.

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
