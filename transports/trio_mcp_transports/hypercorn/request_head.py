"""The heads of plain POSTs, read by one pattern: what it takes, h11 takes with the same meaning.

It refuses nothing. A head that does not match is left to h11, which reads all of HTTP/1.1 and answers what is wrong.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ..asgi.messages import Headers

# RFC 9110, 5.5 and 5.6.2, without folded lines, empty values and bytes outside of ASCII. A field ends where its line does: no
# part of the pattern can match in two ways, so it takes linear time.
HEAD: Final = re.compile(
    rb"POST (/[!-\"$-~]*+) HTTP/1\.1\r\n((?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[ \t]*+[!-~][ \t!-~]*+\r\n){1,100}+)\r\n"
)
FIELD: Final = re.compile(rb"([^:]++):[ \t]*+([^\r]++)\r\n")
LENGTH: Final = re.compile(rb"[0-9]{1,9}+")

MAX_HEAD: Final = 8 * 1024

LEFT_TO_H11: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"})
"""Fields that change how a request is framed or answered."""


class RequestHead(NamedTuple):
    """The head of a POST.

    Attributes:
        target: a path, as it was sent.
        headers: names in lower case.
        end: where the body begins.
        length: of the body.
    """

    target: bytes
    headers: Headers
    end: int
    length: int


def read_head(data: bytes, max_bytes: int = MAX_HEAD) -> RequestHead | None:
    """Return the head with which `data` begins; None if it has not come whole, or is for h11 to read."""
    match = HEAD.match(data, 0, max_bytes)
    if match is None:
        return None
    headers = [(name.lower(), value.rstrip(b" \t")) for name, value in FIELD.findall(match[2])]
    fields = dict(headers)
    length = fields.get(b"content-length")
    if length is None or b"host" not in fields or LENGTH.fullmatch(length) is None:
        return None
    if not LEFT_TO_H11.isdisjoint(fields) or fields.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    # A name that came twice is rare, and of some of them one must not.
    if len(fields) != len(headers):
        return None
    return RequestHead(match[1], headers, match.end(), int(length))
