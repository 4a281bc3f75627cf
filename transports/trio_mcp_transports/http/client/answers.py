"""What the answer to a POST means for the request that it carried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeGuard

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER
from trio_mcp.protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    Unanswered,
    decoded,
    parse,
)
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.session import Sent

LOST = "the server no longer knows the session"

MAX_SESSION_ID = 4096
SESSION_ID = re.compile(f"[!-~]{{0,{MAX_SESSION_ID}}}")


def is_notice(message: Sent, method: str) -> TypeGuard[Notification]:
    return isinstance(message, Notification) and message.method == method


def answers(request: Request, message: Message | Malformed) -> bool:
    return isinstance(message, Response | ErrorResponse) and message.id == request.id


def unanswering(request: Request, body: bytes, message: Message | Malformed) -> Malformed | Unanswered:
    """A whole body is the answer to its request, or the request has none: one that was cancelled ends so (L-CAN-2b)."""
    if not body:
        return Unanswered(request.id, "the server ended the request without an answer")
    if isinstance(message, Malformed):
        return Malformed(message.error, request.id)
    return Unanswered(request.id, "the server answered something else than what was asked")


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


def session_opened(request: Request, message: Message | Malformed, headers: Mapping[str, str]) -> dict[str, str] | None:
    """What later messages repeat in their headers, if this is the answer to `initialize`: session and version (L-HTTP-17c, -20c).

    Raises:
        RemoteProtocolError: no header can repeat the session id (L-HTTP-16s).
    """
    if request.method != "initialize" or not isinstance(message, Response):
        return None
    version = decoded(message.result).get("protocolVersion")
    if not isinstance(version, str) or version not in REVISIONS:
        return None  # nothing will be said in this session
    session_id = session_named(headers)
    return {VERSION_HEADER: version} | ({SESSION_HEADER: session_id} if session_id else {})


def session_named(headers: Mapping[str, str]) -> str:
    """The id of the session that an answer opens; empty when it opens none.

    Raises:
        RemoteProtocolError: no header can repeat it (L-HTTP-16s).
    """
    session_id = headers.get(SESSION_HEADER, "")
    if not SESSION_ID.fullmatch(session_id):
        raise RemoteProtocolError(
            f"the session id {session_id!r:.80} is not of at most {MAX_SESSION_ID} visible ASCII characters"
        )
    return session_id
