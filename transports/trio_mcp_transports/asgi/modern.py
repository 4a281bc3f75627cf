"""A modern request, from its first check to its last byte: it belongs to nothing but its exchange."""

from __future__ import annotations

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.reading import Inbound
from trio_mcp.protocol.http.headers import VERSION_HEADER, check_headers
from trio_mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    SERVER_BUSY,
    UNSUPPORTED_VERSION,
    Notification,
    Request,
)
from trio_mcp.protocol.revisions import PROTOCOL_VERSION, Era
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, Received, ReplyTarget, ServerSession
from trio_mcp.session.session_state import LISTEN_METHOD

from .access import HttpRejection
from .exchange import Exchange, rejected
from .requests import Expiry
from .responses import KnownResponse, Response

MODERN_STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    SERVER_BUSY: 503,
}
"""The HTTP status of an error that is the whole answer (protocol.md 3.1, M-ERR); any other error goes out with 200."""


def process_modern(
    session: ServerSession, inbound: Inbound, envelope: Envelope[Received], expiry: Expiry | None
) -> Response:
    """Process one message of a modern client, and return the response.

    Args:
        session: serves every modern request: they carry their context with them, and share nothing in it.
        expiry: of the credentials, for a response that does not end by itself.

    Raises:
        HttpRejection, RemoteProtocolError: the message is none that a modern client sends.
    """
    message, headers = inbound.message, envelope.peer.headers
    # MCP defines no notification that a client sends over HTTP; one is accepted and has no effect (M-HTTP-9s).
    if isinstance(message, Notification):
        session.receive_ignored(envelope, headers[VERSION_HEADER])
        return KnownResponse(202)
    if not isinstance(message, Request):
        raise HttpRejection(400, "A modern client sends requests only.")
    # The version header alone makes a request modern, but its body must name the version too (M-META-1s). This comes before the
    # comparison of headers and body, which would only say that they differ.
    if inbound.era is not Era.MODERN:
        version = headers.get(VERSION_HEADER, "")
        raise RemoteProtocolError(f'params._meta must say "{PROTOCOL_VERSION}": "{version}"', code=INVALID_PARAMS)
    check_headers(headers, inbound.version, message)
    outbox = session.service.open_outbox(envelope.peer)
    target = session.receive(envelope, outbox, owns_outbox=True, inbound=inbound)
    if not isinstance(target, ReplyTarget):
        return rejected(outbox, MODERN_STATUS, other=400)
    if message.method != LISTEN_METHOD:
        return ModernResponse(outbox, session, target)
    response = ListenResponse(outbox, session, target)
    response.expiry = expiry
    return response


class ModernResponse(Exchange):
    """What a modern request says, to its answer; the end of its connection is its cancellation (M-HTTP-10s)."""

    __slots__ = ("_session", "_target")

    def __init__(self, outbox: Outbox[Envelope], session: ServerSession, target: ReplyTarget) -> None:
        super().__init__(MODERN_STATUS, outbox)
        self._session = session
        self._target = target

    def abandon(self) -> None:
        self._session.disconnect(self._target)


class ListenResponse(ModernResponse):
    """What a `subscriptions/listen` says, until its client leaves or is no longer accepted."""

    __slots__ = ()

    def finish(self) -> None:
        # It was ended early: nothing answers the request.
        if self.is_ending:
            self.abandon()
        super().finish()
