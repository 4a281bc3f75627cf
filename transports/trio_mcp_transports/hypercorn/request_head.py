"""The heads of plain POSTs and GETs, read by one pattern: what it takes, h11 takes with the same meaning.

It refuses nothing. A head that does not match is left to h11, which reads all of HTTP/1.1 and answers what is wrong.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..asgi.access import SHARED_TEXTS

# RFC 9110, 5.5 and 5.6.2, without folded lines, empty values and bytes outside of ASCII. A field ends where its line does: no
# part of the pattern can match in two ways, so it takes linear time.
HEAD: Final = re.compile(
    rb"(POST|GET) (/[!-\"$-~]*+) HTTP/1\.1\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[ \t]*+[!-~][ \t!-~]*+\r\n){1,100}+)\r\n"
)
FIELD: Final = re.compile(r"([^:]++):[ \t]*+([^\r]++)\r\n")
LENGTH: Final = re.compile(r"[0-9]{1,9}+")

MAX_HEAD: Final = 8 * 1024

LEFT_TO_H11: Final = frozenset({"transfer-encoding", "expect", "upgrade", "te", "trailer", "http2-settings"})
"""Fields that change how a request is framed or answered."""


class RequestHead(NamedTuple):
    """The head of a request.

    Attributes:
        method: POST or GET.
        target: a path, as it was sent.
        headers: by their names in lower case; no name came twice.
        end: where the body begins.
        length: of the body; 0 for a GET.
    """

    method: str
    target: str
    headers: dict[str, str]
    end: int
    length: int


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
    if method == "GET":
        return RequestHead(method, target, headers, match.end(), 0) if length is None else None
    if length is None or LENGTH.fullmatch(length) is None:
        return None
    return RequestHead(method, target, headers, match.end(), int(length))
