"""What is checked of a request that h11 has read, before its application is started."""

from __future__ import annotations

from typing import Final

import h11

# These two are lists of tokens (RFC 9110, 5.6.2).
ASCII_ONLY: Final = frozenset({b"connection", b"sec-websocket-protocol"})
# How long a body may be whose rest is read and discarded when its request was answered before it came.
MAX_DISCARDED_BYTES: Final = 64 * 1024
# Lines of a head. Each is kept as several objects while its request runs, however short it is.
MAX_HEADERS: Final = 100


def has_short_body(request: h11.Request) -> bool:
    """Whether the head promises so short a body that its rest may be read and discarded."""
    framing = {name: value for name, value in request.headers if name in {b"content-length", b"transfer-encoding"}}
    return b"transfer-encoding" not in framing and int(framing.get(b"content-length", 0)) <= MAX_DISCARDED_BYTES


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
