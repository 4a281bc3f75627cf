"""What every application is to HTTP servers: how it starts and ends, and what every request and every response of it passes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from trio_mcp.base.logs import LOG_CONTEXT, LogContext
from trio_mcp.base.values import make_tuple
from trio_mcp.errors import ProtocolError, RemoteProtocolError
from trio_mcp.http import HttpLimits, HttpOptions
from trio_mcp.protocol.json_limits import JsonLimits, measure
from trio_mcp.protocol.jsonrpc import Request as RpcRequest, parse, unreadable
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN
from trio_mcp.session import Envelope, Received, Service
from trio_mcp.session.channel import MESSAGE_COST
from trio_mcp.session.envelope import RECEIVED
from trio_mcp.session.event_loop import move_to_trio

from ...asgi.access import Access, Headers
from ...asgi.access_log import ID_HEADER, AccessRecord
from ...asgi.adapter import Receive, Scope, Send, serve_request, serve_websocket
from ...asgi.authentication import Authentication
from ...asgi.cors import VARY, Cors
from ...asgi.forwarded import TrustedProxies
from ...asgi.requests import AuthorizedRequest, Request, check_room, read_body
from ...asgi.responses import HttpApp, Response, rejection_of
from .lifespan import MountedApp, asyncio_host, serve_lifespan_events, served_on_both
from .routes import Probes

if TYPE_CHECKING:
    from ...asyncio_host.life import Residence


class ServedApp(HttpApp):
    """An application for our own connection, and an ASGI 3 application for any other server.

    Args:
        name: of its server, for the task that runs it and for messages.
        options: how it is served.
        accesses: who may reach it from a browser.

    Attributes:
        failure: what ended its lifespan, at the start, while serving or at the end; None if nothing did.
        residence: where it runs on asyncio; None on Trio.
        drain_seconds: how long running calls have after a signal to an asyncio host; None leaves signals alone.
        raises_failure: who serves it raises `failure`, so that the log need not have it too.
    """

    def __init__(self, name: str, options: HttpOptions, accesses: Collection[Access]) -> None:
        self.options = options
        self.failure: BaseException | None = None
        self.raises_failure = False
        self.residence: Residence | None = None
        self.drain_seconds: float | None = None
        self._name = name
        self._mounted: MountedApp | None = MountedApp(self.serving, name)
        """Starts it at its first request; None once its lifespan is run by someone else."""
        self._draining = False
        self._probes = Probes(options, self._readiness)
        self._main_path: str | None = None
        """That of nearly every request, which is no probe."""
        self._logs = options.access_log
        self._cors = Cors(accesses)
        self._root_path = options.root_path
        self._proxies = TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None
        self._is_plain = not (self._logs or self._root_path or self._proxies)

    @abstractmethod
    def serving(self) -> AbstractAsyncContextManager[None]:
        """Serve in the block; see `lifespan`."""

    @abstractmethod
    async def _serve(self, request: Request) -> Response:
        """Return the response to a request as its client sent it. Raises `ProtocolError` for a refusal."""

    @abstractmethod
    def _readiness(self) -> tuple[int, bytes]:
        """See `Probe`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not trio.lowlevel.in_trio_task():
            await asyncio_host().serve_on_asyncio(self, scope, receive, send)
            return
        match scope["type"]:
            case "http":
                await serve_request(self, scope, receive, send)
            case "lifespan":
                logs_startup = not self.raises_failure
                await serve_lifespan_events(self.lifespan(), self._name, receive, send, logs_startup=logs_startup)
            case "websocket":
                await serve_websocket(self, scope, receive, send)

    # life

    def lifespan(self, _app: object = None) -> AbstractAsyncContextManager[None]:
        """Return a context manager in which the application serves, for one that it is mounted in.

            mcp = asgi_app(server)
            app = Starlette(routes=[Mount("/", mcp)], lifespan=mcp.lifespan)

        Without it, a mounted application starts at its first request. Entering it enters the lifespan of the server; leaving it
        ends every call and session. The lifespans of several servers are entered in order and left in reverse; if one of them
        fails, all end.

        Raises:
            RuntimeError: it is running already.
            Exception: what the lifespan of the server raised, at its start, in the block (which is cancelled then) or at its end.
        """
        self.start_by(None)
        return served_on_both(self, self.serving)

    def start_by(self, mounted: MountedApp | None) -> None:
        """Set what starts the application at its first request; None if its lifespan is run by someone else."""
        self._mounted = mounted

    @property
    def is_run_by_host(self) -> bool:
        """Whether someone else runs its lifespan."""
        return self._mounted is None

    async def stop(self) -> None:
        """End what the first request has started."""
        if self._mounted is not None:
            await self._mounted.stop()

    def abandon(self, *, has_failed: bool) -> None:
        """Forget what ran in a Trio run that has ended. If it has failed, the next request starts it, also if the host ran it."""
        if has_failed or self._mounted is not None:
            self._mounted = MountedApp(self.serving, self._name)

    # What every request passes before it is routed, and every response on the way back.

    async def respond(self, request: Request) -> Response:
        """Return the response to a request; a refusal is one too. The only way to the application, and back from it."""
        if request.path != self._main_path and request.websocket is None:
            probe = self._probes.find(request)
            if probe is not None:
                probe.add_headers(self._headers(request, probe))
                return probe
        if self._logs and request.record is None:
            return await self._respond_logged(request)
        try:
            if not self._is_plain:
                self._restore(request)
            response = await self._serve(request)
        except ProtocolError as error:
            response = rejection_of(error)
        headers = self._headers(request, response)
        if headers:
            response.add_headers(headers)
        return response

    async def _respond_logged(self, request: Request) -> Response:
        is_passed_on = self._proxies is not None and self._proxies.trusts(request)
        request.record = AccessRecord(request.header(ID_HEADER) if is_passed_on else None)
        token = LOG_CONTEXT.set(LogContext(request.record.id))
        try:
            return await self.respond(request)
        finally:
            LOG_CONTEXT.reset(token)

    def _headers(self, request: Request, response: Response) -> Headers:
        """Return the headers that are added to every response, streams and refusals included."""
        headers = request.record.headers if self._logs and request.record is not None else ()
        origin = request.origin
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
            if self._logs and request.record is not None:
                request.describe(request.record)


# Reading the message of a request: its body, measured before it is parsed, in the turns of the event loop that it has.


class MessageReader:
    """Reads the messages that clients post to one application.

    Args:
        authentication: of their senders.

    Attributes:
        keeps_bodies: they stay with their requests, which may be passed on.
    """

    def __init__(self, limits: HttpLimits, authentication: Authentication) -> None:
        self.keeps_bodies = False
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
            if self.keeps_bodies:
                incoming.request.body.whole = body
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
        return make_tuple(RECEIVED, (message, None, peer, size, False))
