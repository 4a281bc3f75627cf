"""What every request and every response of an application passes: the access log, the proxies in front, and added headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from trio_mcp.base.log_setup import LOG_CONTEXT, LogContext
from trio_mcp.errors import ProtocolError, RemoteProtocolError
from trio_mcp.http import HttpLimits, HttpOptions
from trio_mcp.protocol.json_limits import JsonLimits, measure
from trio_mcp.protocol.jsonrpc import Request as RpcRequest, parse, unreadable
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN
from trio_mcp.session import Envelope, Received, Service
from trio_mcp.session.channel import MESSAGE_COST
from trio_mcp.session.event_loop import move_to_trio

from ...asgi.access import Access, Headers
from ...asgi.access_log import ID_HEADER, AccessRecord
from ...asgi.authentication import Authentication
from ...asgi.cors import VARY, Cors
from ...asgi.forwarded import TrustedProxies
from ...asgi.requests import AuthorizedRequest, Request, check_room, read_body
from ...asgi.responses import Response, rejection_of

Serve: TypeAlias = Callable[[Request], Awaitable[Response]]


class Entrance:
    """What requests pass before they are routed, and their responses on the way back.

    Args:
        options: how the server is served.
        accesses: who may reach it from a browser.

    Attributes:
        logs: there is an access log.
    """

    def __init__(self, options: HttpOptions, accesses: Collection[Access]) -> None:
        self.logs = options.access_log
        self._cors = Cors(accesses)
        self._root_path = options.root_path
        self._proxies = TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None
        self._is_plain = not (self.logs or self._root_path or self._proxies)

    async def respond(self, request: Request, serve: Serve) -> Response:
        """Return the response to a request; a refusal is one too. The only way to the application, and back from it."""
        if self.logs and request.record is None:
            return await self._respond_logged(request, serve)
        try:
            if not self._is_plain:
                self._restore(request)
            response = await serve(request)
        except ProtocolError as error:
            response = rejection_of(error)
        headers = self._headers(request, response)
        if headers:
            response.add_headers(headers)
        return response

    async def complete(self, request: Request, probe: Response) -> Response:
        """Return the response of a probe, which passes nothing else here, with the headers that are added to every one."""
        probe.add_headers(self._headers(request, probe))
        return probe

    async def _respond_logged(self, request: Request, serve: Serve) -> Response:
        is_passed_on = self._proxies is not None and self._proxies.trusts(request)
        request.record = AccessRecord(request.header(ID_HEADER) if is_passed_on else None)
        token = LOG_CONTEXT.set(LogContext(request.record.id))
        try:
            return await self.respond(request, serve)
        finally:
            LOG_CONTEXT.reset(token)

    def _headers(self, request: Request, response: Response) -> Headers:
        """Return the headers that are added to every response, streams and refusals included."""
        headers = request.record.headers if self.logs and request.record is not None else ()
        origin = request.header("origin")
        if origin is None and request.method != "GET":
            return headers
        # Scripts do not see the response to the handshake of a WebSocket.
        if request.websocket is not None:
            return headers
        if origin is None:
            # Or a page would get from its browser's cache what was loaded without one, by a link.
            return [*headers, VARY]
        return [*headers, *self._cors.headers(request, origin, response)]

    def _restore(self, request: Request) -> None:
        """Make a request what its client sent; the access log has it so too.

        Raises:
            HttpRejection: 400, what a trusted proxy says of it cannot be read.
        """
        try:
            if self._proxies is not None:
                self._proxies.restore(request)
            if self._root_path and not request.root_path:
                request.root_path = self._root_path
        finally:
            if self.logs and request.record is not None:
                request.describe(request.record)


# Reading the message of a request: its body, measured before it is parsed, in the turns of the event loop that it has.


class MessageReader:
    """Reads the messages that clients post to one application.

    Args:
        authentication: of their senders.
    """

    def __init__(self, limits: HttpLimits, authentication: Authentication) -> None:
        self._limits = limits
        self._authentication = authentication
        self._json_limits = JsonLimits(max_bytes=limits.body, max_values=limits.values)

    async def read(self, service: Service, incoming: AuthorizedRequest, account: Account) -> Envelope[Received]:
        """Read the message of a request; what it takes is drawn from `account` while it is waited for, and stays drawn.

        Raises:
            HttpRejection: 503, the memory budget has no room for it; 403, its sender lacks a scope; and what `read_body` raises.
        """
        limits, peer, turn = self._limits, incoming.peer, service.turn
        body = incoming.request.body.whole
        if body is None or len(body) > limits.body:
            await move_to_trio()
            body = await read_body(incoming.request, limits.body, limits.body_seconds, account)
        # Before it is parsed: under a flood of messages that have no room, parsing them would be most of the work.
        try:
            measured = measure(body, self._json_limits)
        except RemoteProtocolError as error:
            turn.spent += MESSAGE_COST + len(body)
            return Envelope(unreadable(error, body), peer=peer)
        size = measured.size
        check_room(account, size, measured.peak)
        is_over = turn.is_over
        if is_over or len(body) > TURN:
            # Before it waits: every other request looks for room in the meantime.
            account.draw(size)
        # Many requests may have come at the same time, each on a separate connection.
        if is_over:
            await move_to_trio()
            await turn.pass_on()
        turn.spent += MESSAGE_COST + len(body)
        message = parse(body, self._json_limits, measured)
        if isinstance(message, RpcRequest):
            missing = service.missing_scopes(message, lambda: peer.caller)
            if missing:
                raise self._authentication.lacks_scopes(missing, message.id, incoming.request.root)
        # To read a large message and to validate it takes tens of milliseconds each: others have a turn in between.
        if len(body) > TURN:
            await move_to_trio()
            await turn.pass_on()
            turn.spent += len(body)
        return Envelope(message, peer=peer, size=size)
