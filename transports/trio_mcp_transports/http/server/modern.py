"""Streamable HTTP of the modern era: a request carries all its context, and the end of its connection cancels it (M-HTTP-10s)."""

from __future__ import annotations

from collections.abc import Mapping

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.reading import Inbound
from trio_mcp.protocol.http.headers import VERSION_HEADER, check_headers
from trio_mcp.protocol.jsonrpc import INVALID_PARAMS, Notification, Request, error_response
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import REVISIONS, Era
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, Received, ReplyTarget, RequestSession

from ...asgi.access import HttpRejection
from ...asgi.exchange import MODERN_STATUS, Exchange, send_rejection
from ...asgi.messages import Receive, Send


async def serve_modern(
    session: RequestSession,
    inbound: Inbound,
    envelope: Envelope[Received],
    outbox: Outbox[Envelope],
    receive: Receive,
    send: Send,
) -> None:
    """Serve one message of a modern client.

    Args:
        session: serves every modern request: they carry their context with them, and share nothing in it.
        outbox: for the messages about this one.
    """
    message = inbound.message
    headers = envelope.peer.headers
    exchange = Exchange(receive, send, MODERN_STATUS, outbox)
    if isinstance(message, Notification):  # the core defines none over HTTP; M-HTTP-9s
        await exchange.send_accepted()
        return
    if not isinstance(message, Request):
        raise HttpRejection(400, "A modern client sends requests only.")
    try:
        require_version(inbound, headers)
        check_headers(headers, inbound.version, message)
    except RemoteProtocolError as error:
        error.request_id = message.id
        await exchange.refuse(400, error_response(error))
        return
    listener = session.receive(envelope, exchange.outbox, owns_outbox=True, inbound=inbound)
    if not isinstance(listener, ReplyTarget):
        await send_rejection(exchange, MODERN_STATUS)
    elif not await exchange.run():
        session.disconnect(listener)


def era_of(inbound: Inbound, headers: Mapping[str, str]) -> Era:
    """Return the era whose rules apply: the one that the body names, else the one of the version header."""
    if inbound.era is Era.MODERN:
        return Era.MODERN
    revision = REVISIONS.get(headers.get(VERSION_HEADER, ""))
    return Era.LEGACY if revision is None else revision.era


def require_version(inbound: Inbound, headers: Mapping[str, str]) -> None:
    """Raise unless the body of a modern request names its version too (M-META-1s); the codec words the rejection."""
    if inbound.era is not Era.MODERN:
        version = headers.get(VERSION_HEADER, "")
        raise RemoteProtocolError(f'params._meta must say "{PROTOCOL_VERSION}": "{version}"', code=INVALID_PARAMS)
