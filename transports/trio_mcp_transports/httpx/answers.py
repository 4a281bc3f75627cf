"""What a client makes of a response that rejects a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_mcp.errors import RemoteProtocolError, RequestRejected
from trio_mcp.printable import one_line, shown_url
from trio_mcp.protocol.http.headers import SESSION_HEADER
from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND, ErrorResponse, Malformed, Request, Unanswered, parse

SESSION_LOST_MESSAGE: Final = "the server no longer knows the session"

MAX_LOCATION: Final = 500
"""Characters of the URL of a redirection that an error shows."""

WORTH_A_RETRY: Final = (408, 425, 429)
"""Statuses that blame the time of a request (Request Timeout, Too Early, Too Many Requests), and not the request."""


def error_reply(
    request: Request, session: Mapping[str, str], status: int, body: bytes, location: str = ""
) -> ErrorResponse | Malformed | Unanswered:
    """Return the reply to a request that was rejected: the server's error if the body has one, else one with status and text.

    In a session 404 means that the session is lost, whatever the body says (L-HTTP-19c), unless that is about this request's
    method.

    Args:
        session: the headers that named the session; empty if the request belongs to none.
        location: the URL that the response redirects to; empty if to none.
    """
    message = parse(body)
    error = message.error if isinstance(message, ErrorResponse) else None
    # A modern server answers 404 to an unknown method, which says nothing about a session.
    if status == 404 and SESSION_HEADER in session and (error is None or error.code != METHOD_NOT_FOUND):
        return Unanswered(request.id, SESSION_LOST_MESSAGE, session_lost=True)
    if error is not None:
        return ErrorResponse(request.id, error)
    kind = RequestRejected if 400 <= status < 500 and status not in WORTH_A_RETRY else RemoteProtocolError
    more = redirection(location) if 300 <= status < 400 and location else excerpt(body)
    return Malformed(kind(f"the server answered HTTP {status}{more}"), request.id)


def redirection(location: str) -> str:
    """Return where a response redirects to, to be put behind the status."""
    # A client does not go there: what it sends may be secret.
    return f": it redirects to {one_line(shown_url(location[:MAX_LOCATION]))}; give that URL if the server is there"


def excerpt(body: bytes) -> str:
    """Return the beginning of a body, to be put behind the status, in one line: it may be a page of HTML."""
    text = " ".join(body[:10_000].decode("utf-8", "replace").split())[:200]
    return f": {text}" if text else ""
