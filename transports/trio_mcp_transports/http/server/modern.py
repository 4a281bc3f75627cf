"""Streamable HTTP of the modern era: each request is a conversation of its own, and the end of its connection its cancellation
(M-HTTP-10s)."""

from __future__ import annotations

from collections.abc import Mapping

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import VERSION_HEADER, check_headers
from trio_mcp.protocol.jsonrpc import Batch, Message, Notification, Request, decoded, error_response
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import REVISIONS, Era
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, Listener, Received, Service, open_request_session

from ...asgi.access import HttpRejection
from ...asgi.exchange import MODERN_STATUS, Exchange, send_rejection
from ...asgi.messages import Receive, Send


async def serve_modern(
    service: Service, message: Message | Batch, envelope: Envelope[Received], receive: Receive, send: Send
) -> None:
    """One message of a modern client."""
    headers = envelope.peer.headers
    exchange = Exchange(receive, send, MODERN_STATUS, Outbox(service.options.outbox))
    if isinstance(message, Notification):  # the core defines none over HTTP; M-HTTP-9s
        await exchange.send_accepted()
        return
    if not isinstance(message, Request):
        raise HttpRejection(400, "A modern client sends requests only.")
    params = decoded(message.params)
    try:
        require_version(params, headers)
        check_headers(headers, message.method, params)
    except RemoteProtocolError as error:
        error.request_id = message.id
        await exchange.refuse(400, error_response(error))
        return
    session = open_request_session(service)
    listener = session.receive(envelope, exchange.outbox, exclusive=True)
    if not isinstance(listener, Listener):
        await send_rejection(exchange, MODERN_STATUS)
    elif not await exchange.run():
        session.disconnect(listener)


def is_modern(message: Message | Batch, headers: Mapping[str, str]) -> bool:
    """Whether the modern rules apply: the body says so, or the version header does."""
    if isinstance(message, Request):
        meta = decoded(message.params).get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
            return True
    revision = REVISIONS.get(headers.get(VERSION_HEADER, ""))
    return revision is not None and revision.era is Era.MODERN


def require_version(params: Mapping[str, object], headers: Mapping[str, str]) -> None:
    """A modern request names its version in the body as well (M-META-1s); the codec words the refusal."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta:
        version = headers.get(VERSION_HEADER, "")
        raise RemoteProtocolError(f'params._meta must say "{PROTOCOL_VERSION}": "{version}"', code=-32602)
