"""Streamable HTTP of the legacy era without sessions: each request stands alone, and any process can serve it.

A client opens no session, since `initialize` returns no `Mcp-Session-Id`; whatever id a request names is ignored. What needs a
session is neither declared nor served: log levels, subscriptions, tasks, and questions to the client, whose capabilities are not
known. The end of the response cancels a call.
"""

from __future__ import annotations

from typing import Final

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import VERSION_HEADER
from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND, Request, dump, error_response
from trio_mcp.runtime import CancelReason, Outbox
from trio_mcp.session import Envelope, Received, ReplyTarget, ServerSession, make_session
from trio_mcp.session.envelope import SESSION_SIZE

from ...asgi.exchange import LEGACY_STATUS, Exchange, rejected
from ...asgi.responses import KnownResponse, Response
from .endpoint import LegacyEndpoint, check_version

UNNAMED_VERSION: Final = "2025-03-26"
"""The revision of a request without a version header (2025-06-18, transports)."""

NEED_SESSION: Final = ("logging/", "resources/subscribe", "resources/unsubscribe", "tasks/")
"""The beginnings of methods that are about what only a session keeps."""


class StatelessEndpoint(LegacyEndpoint):
    """The endpoint of an application whose `HttpOptions` say `sessions=False`."""

    async def process(self, envelope: Envelope[Received]) -> Response:
        """Process one message of a client, and return the response."""
        message, headers = envelope.message, envelope.peer.headers
        check_version(headers)
        if not isinstance(message, Request):
            # A cancellation names a request that another process may serve, and nothing has been asked.
            return KnownResponse(202)
        if message.method.startswith(NEED_SESSION):
            why = f"{message.method} needs a session, and this server has none"
            error = RemoteProtocolError(why, code=METHOD_NOT_FOUND, request_id=message.id)
            return KnownResponse(200, dump(error_response(error)))
        if isinstance(message.params, dict) and "task" in message.params:
            # Not declared, and so ignored (L-TSK-1).
            params = {name: value for name, value in message.params.items() if name != "task"}
            envelope = envelope._replace(message=message._replace(params=params))
        outbox = self._service.open_outbox(envelope.peer, SESSION_SIZE)
        session = make_session(self._service, shared_channel=False, account=outbox.account)
        session.serve_alone(None if message.method == "initialize" else headers.get(VERSION_HEADER, UNNAMED_VERSION))
        target = session.receive(envelope, outbox, owns_outbox=True)
        if isinstance(target, ReplyTarget):
            return AloneResponse(outbox, session, target)
        session.close(CancelReason.DISCONNECT)
        return rejected(outbox, LEGACY_STATUS)


class AloneResponse(Exchange):
    """What a request without a session says, to its answer; the end of its connection is its cancellation."""

    __slots__ = ("_session", "_target")

    def __init__(self, outbox: Outbox[Envelope], session: ServerSession, target: ReplyTarget) -> None:
        super().__init__(LEGACY_STATUS, outbox)
        self._session = session
        self._target = target

    @property
    def is_cut(self) -> bool:
        # No message cancels it.
        return True

    def abandon(self) -> None:
        self._session.disconnect(self._target)

    def finish(self) -> None:
        self._session.close(CancelReason.DISCONNECT)
        super().finish()
