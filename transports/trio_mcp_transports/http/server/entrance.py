"""A request as its client sent it to the proxies in front of the server, and its record in the access log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from trio_mcp.errors import ProtocolError, RemoteProtocolError
from trio_mcp.http import HttpLimits, HttpOptions
from trio_mcp.protocol.json_limits import JsonLimits, Measure, measure
from trio_mcp.protocol.jsonrpc import Request, parse, unreadable
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN
from trio_mcp.session import Envelope, Peer, Received, Service
from trio_mcp.session.channel import MESSAGE_COST

from ...asgi.access import HttpRejection
from ...asgi.access_log import App, record_of, serve_logged
from ...asgi.authentication import check_scopes
from ...asgi.forwarded import TrustedProxies
from ...asgi.messages import AuthorizedRequest, Receive, Scope, Send, check_room, read_body, send_error, too_large

Reject: TypeAlias = Callable[[Scope, Receive, Send, HttpRejection], Awaitable[None]]


class Entrance:
    """What requests pass before they are routed: the access log, and what proxies in front of the server say of them.

    Args:
        options: how the server is served.

    Attributes:
        logs: there is an access log.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.logs = options.access_log
        self._root_path = options.root_path
        self._proxies = TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None

    @property
    def is_plain(self) -> bool:
        """Whether requests may pass by: what trusted proxies say, and what is logged of a request, would be lost."""
        return self._proxies is None and not self.logs

    def before(self, serve: App, reject: Reject) -> App:
        """Return what passes requests on to `serve` as their clients sent them; `serve` itself if that changes nothing.

        Args:
            reject: answers a request of which a trusted proxy says what cannot be read.
        """
        if self.is_plain and not self._root_path:
            return serve
        entered = partial(self._enter, serve, reject)
        return partial(serve_logged, entered, proxies=self._proxies) if self.logs else entered

    async def _enter(self, serve: App, reject: Reject, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            seen = as_client_sent(scope, self._proxies, self._root_path)
        except HttpRejection as rejection:
            await reject(scope, receive, send, rejection)
        else:
            await serve(seen, receive, send)


def as_client_sent(scope: Scope, proxies: TrustedProxies | None, root_path: str) -> Scope:
    """Return the scope of a request as its client sent it; the access log has it so too.

    Args:
        proxies: those that are believed.
        root_path: the prefix of the server, if neither a proxy nor the ASGI server names one.

    Raises:
        HttpRejection: 400, what a trusted proxy says of it cannot be read.
    """
    if proxies is not None:
        scope = proxies.seen_by_client(scope)
    if root_path and not scope.get("root_path"):
        scope = {**scope, "root_path": root_path}
    record = record_of(scope)
    if record is not None:
        record.scope = scope
    return scope


async def reject_request(_scope: Scope, _receive: Receive, send: Send, rejection: ProtocolError) -> None:
    """Answer a request with its rejection."""
    await send_error(send, rejection)


# Reading the message of a request: its body, measured before it is parsed, in the turns of the event loop that it has.


class MessageReader:
    """Reads the messages that clients post to one application."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._json_limits = JsonLimits(max_bytes=limits.body, max_values=limits.values)

    async def read(self, service: Service, incoming: AuthorizedRequest, account: Account) -> Envelope[Received]:
        """Read the message of a request; what it takes is drawn from `account`.

        Raises:
            HttpRejection: 503, the memory budget has no room for it; 403, its sender lacks a scope; and what `read_body` raises.
        """
        limits, peer = self._limits, incoming.peer
        announced = peer.headers.get("content-length")
        body = await read_body(incoming.receive, limits.body, limits.body_seconds, announced, account)
        turn = service.turn
        # Before it is parsed: under a flood of messages that have no room, parsing them would be most of the work.
        try:
            measured = measure(body, self._json_limits)
        except RemoteProtocolError as error:
            turn.spent += MESSAGE_COST + len(body)
            return Envelope(unreadable(error, body), peer=peer)
        size = measured.size
        check_room(account, size, measured.peak)
        if turn.is_over or len(body) > TURN:
            # Before it waits: every other request looks for room in the meantime.
            account.draw(size)
        # Many requests may have come at the same time, each on a separate connection.
        if turn.is_over:
            await turn.pass_on()
        turn.spent += MESSAGE_COST + len(body)
        message = self._parsed(service, body, measured, peer)
        # To read a large message and to validate it takes tens of milliseconds each: others have a turn in between.
        if len(body) > TURN:
            await turn.pass_on()
            turn.spent += len(body)
        return Envelope(message, peer=peer, size=size)

    def read_nowait(self, service: Service, body: bytes, peer: Peer) -> Envelope[Received]:
        """Read a message of at most `TURN` bytes that has come whole, in this turn of the event loop. Raises as `read` does."""
        if len(body) > self._limits.body:
            raise too_large(self._limits.body)
        try:
            measured = measure(body, self._json_limits)
        except RemoteProtocolError as error:
            service.turn.spent += MESSAGE_COST + len(body)
            return Envelope(unreadable(error, body), peer=peer)
        check_room(service.open_account(peer), measured.size, measured.peak)
        service.turn.spent += MESSAGE_COST + len(body)
        return Envelope(self._parsed(service, body, measured, peer), None, peer, measured.size)

    def _parsed(self, service: Service, body: bytes, measured: Measure, peer: Peer) -> Received:
        message = parse(body, self._json_limits, measured)
        if isinstance(message, Request):
            check_scopes(service, message, peer)
        return message
