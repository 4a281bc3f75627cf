"""What a client makes of a response that rejects a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER
from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND, ErrorResponse, Malformed, Request, Unanswered, parse

LOST: Final = "the server no longer knows the session"


def refusal(
    request: Request, sent: Mapping[str, str], status: int, body: bytes
) -> ErrorResponse | Malformed | Unanswered:
    """What a refused request is told: the server's own error if the body holds one, else the status and the text.

    In a session 404 means that it is lost, whatever the body says (L-HTTP-19c), unless that is about this request's method.
    """
    message = parse(body)
    error = message.error if isinstance(message, ErrorResponse) else None
    if status == 404 and SESSION_HEADER in sent and (error is None or error.code != METHOD_NOT_FOUND):
        return Unanswered(request.id, LOST, session_lost=True)
    if error is not None:
        return ErrorResponse(request.id, error)
    return Malformed(RemoteProtocolError(f"the server answered HTTP {status}{excerpt(body)}"), request.id)


def excerpt(body: bytes) -> str:
    """What a refusal says, to be put behind its status."""
    text = body.decode("utf-8", "replace").strip()[:200]
    return f": {text}" if text else ""
