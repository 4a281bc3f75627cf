"""What the answer to a POST means for the request that it carried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeGuard

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER
from trio_mcp.protocol.jsonrpc import (
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    Unanswered,
    decoded,
)
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.session import Sent

MAX_SESSION_ID = 4096
SESSION_ID = re.compile(f"[!-~]{{0,{MAX_SESSION_ID}}}")


def is_notification(message: Sent, method: str) -> TypeGuard[Notification]:
    return isinstance(message, Notification) and message.method == method


def answers(request: Request, message: Message | Malformed) -> bool:
    return isinstance(message, Response | ErrorResponse) and message.id == request.id


def no_answer(request: Request, body: bytes, message: Message | Malformed) -> Malformed | Unanswered:
    """Return what to deliver for a request whose whole response has no answer; a cancelled one may end so (L-CAN-2b)."""
    if not body:
        return Unanswered(request.id, "the server ended the request without an answer")
    if isinstance(message, Malformed):
        return Malformed(message.error, request.id)
    return Unanswered(request.id, "the server answered something else than what was asked")


def session_opened(request: Request, message: Message | Malformed, headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers that later messages repeat, if this is the answer to `initialize`: session and version.

    Raises:
        RemoteProtocolError: no header can repeat the session id (L-HTTP-16s).
    """
    if request.method != "initialize" or not isinstance(message, Response):
        return None
    version = decoded(message.result).get("protocolVersion")
    if not isinstance(version, str) or version not in REVISIONS:
        return None  # the client ends the session
    session_id = session_id_in_headers(headers)
    return {VERSION_HEADER: version} | ({SESSION_HEADER: session_id} if session_id else {})


def session_id_in_headers(headers: Mapping[str, str]) -> str:
    """Return the id of the session that an answer opens; empty if it opens none.

    Raises:
        RemoteProtocolError: no header can repeat the id (L-HTTP-16s).
    """
    session_id = headers.get(SESSION_HEADER, "")
    if not SESSION_ID.fullmatch(session_id):
        raise RemoteProtocolError(
            f"the session id {session_id!r:.80} is not of at most {MAX_SESSION_ID} visible ASCII characters"
        )
    return session_id
