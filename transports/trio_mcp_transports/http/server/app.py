"""The application: Streamable HTTP for both eras and WebSocket, on one path, and HTTP+SSE on two others if it is asked for.

Modern requests are stateless: each carries all its context, and the end of its connection cancels it
(M-HTTP-10s). Legacy requests belong to a session that `initialize` opened; the end of a connection cancels nothing there for a
grace period (L-HTTP-9b). Which one a request is, it says itself: in `_meta`, or by its version header (protocol.md 3.4).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence, Sized
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import trio

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.values import make_tuple
from trio_mcp.errors import ProtocolError
from trio_mcp.http import HttpOptions, HttpRoute, open_access
from trio_mcp.http.options import default_limits
from trio_mcp.http.routes import other_spelling
from trio_mcp.protocol.codec.reading import classify
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER
from trio_mcp.protocol.jsonrpc import SERVER_BUSY, Batch, Malformed, Request as RpcRequest
from trio_mcp.protocol.revisions import REVISIONS, Era
from trio_mcp.runtime import CancelReason
from trio_mcp.session import Caller, Envelope, Peer, Received, ServerSession, Service, SharedServer, make_session
from trio_mcp.session.event_loop import move_to_trio, works_on_asyncio
from trio_mcp.session.options import WORKPLACE, HandOver
from trio_mcp.storage import EventStore
from trio_mcp.stores import MemoryEventStore

from ...asgi.access import Access, HttpRejection, PostChecks, check_access, check_upgrade
from ...asgi.access_log import check_shown
from ...asgi.authentication import Authentication, no_authentication
from ...asgi.cors import is_preflight
from ...asgi.exchange import process_modern
from ...asgi.requests import AuthorizedRequest, Request
from ...asgi.responses import KnownResponse, Response, rejection_of
from ...background import open_background
from ...hypercorn.worker import install
from ...sse.endpoint import SseEndpoint
from ...websocket.endpoint import DRAIN_SECONDS, WebSockets
from .. import link
from ..sessions.endpoint import LegacyEndpoint, legacy_endpoint
from ..sessions.sessions import HAND_OVER_LOOK
from ..sessions.stateless import StatelessEndpoint
from .entrance import MessageReader, ServedApp
from .lifespan import in_residence
from .metrics import MetricsPage
from .routes import CustomRoutes, Paths, no_websocket, not_found_text

logger = peer_logger("trio_mcp.http")

NEEDS_SESSIONS: Final = (
    "sessions: {!r} is a proxy, which has a connection to its server for each session of a legacy client; mount it in a Server, "
    "with server.mount(PREFIX, proxy), and serve that without sessions"
)


@dataclass(slots=True)
class AppState:
    """What exists between the application's startup and its shutdown."""

    service: Service
    modern: ServerSession
    legacy: LegacyEndpoint
    websockets: WebSockets
    sse: SseEndpoint


Route: TypeAlias = Callable[[AppState, AuthorizedRequest], Awaitable[Response]]


class McpApp(ServedApp):
    """The application of one server; `asgi_app` returns one.

    Args:
        server: what is served.
        options: how it is served; see `served_options`.
        event_store: stores the messages of legacy streams for clients that resume them; by default in memory.
        prefix: of the server among several of one application; "" for one alone.
        root: the prefix under which a proxy publishes the application.

    Raises:
        ValueError: what authenticates callers names another URL for the server.

    Attributes:
        access: who may reach it from a browser.
        unknown: the commands whose servers may or may not require authentication; empty until it serves, and with
            authentication.
    """

    def __init__(
        self,
        server: SharedServer,
        options: HttpOptions,
        event_store: EventStore | None,
        prefix: str = "",
        root: str = "",
    ) -> None:
        if options.authenticate is None:
            open_access.check_open(server)
        if not options.sessions and open_access.is_proxy(server):
            raise ValueError(NEEDS_SESSIONS.format(server.identity.name))
        self.access = Access(options.allowed_hosts, options.allowed_origins)
        super().__init__(server.identity.name, options, [self.access])
        self.limits = default_limits(server) if options.limits is None else options.limits
        self.server = server
        self._paths = Paths(options.path, options.sse_path, options.message_path)
        self._event_store = event_store
        self._records = RepeatedRecords(logger)
        self.authentication: Authentication | None = None
        if options.authenticate is not None:
            scopes = partial(open_access.scopes_of, server)
            self.authentication = Authentication(options.authenticate, prefix, scopes, self._records)
            self.authentication.check_endpoints(self._paths.endpoints, (root or options.root_path).rstrip("/"))
        self._reader = MessageReader(self.limits, self.authentication or no_authentication(self._records))
        self._post_checks = PostChecks(self.access)
        self.unknown: list[str] = []
        own = [] if self.authentication is None else self.authentication.routes(self._paths.endpoints)
        access = options.metrics_access
        self._metrics = None if access is None else MetricsPage(access, believes_proxies=bool(options.trusted_proxies))
        pages = [] if self._metrics is None else [self._metrics.route]
        self._custom = CustomRoutes([*own, *options.routes, *pages], self.limits.body_seconds, self._records)
        self._running: AppState | None = None
        self._elsewhere: link.elsewhere.Elsewhere | None = None
        """Passes on what other workers have; None in a process that is no worker."""
        if self._paths.streamable is not None:
            self._main_path = self._paths.streamable
        self._routes = self._endpoints()

    def protects(self, server: object) -> bool:
        """Return whether it authenticates the callers of this server."""
        return server is self.server and self.authentication is not None

    def _endpoints(self) -> dict[str, Mapping[str, Route]]:
        """Return what serves each verb at each path of MCP."""
        found: dict[str, Mapping[str, Route]] = {}
        paths = self._paths
        if paths.streamable is not None:
            of_sessions: dict[str, Route] = {"GET": self._get, "DELETE": self._delete}
            found[paths.streamable] = {"POST": self._post, **(of_sessions if self.options.sessions else {})}
        if paths.sse is not None:
            found[paths.sse] = {"GET": lambda running, incoming: running.sse.get(incoming)}
            found[paths.messages] = {"POST": lambda running, incoming: running.sse.post(incoming)}
        # Answered and not redirected: clients follow no redirect with a body. A custom route at that path stays.
        taken = found.keys() | {route.whole_path for route in self.options.routes}
        twins = {other_spelling(path): verbs for path, verbs in found.items()}
        return {**found, **{path: verbs for path, verbs in twins.items() if path not in taken}}

    async def hand_over(self, terms: HandOver, connections: Sized) -> None:
        """Let the calls end, also those that wait for an answer, while another process serves everything else.

        Legacy sessions go over to that process as soon as none of their requests runs; streams of changes, and connections that
        are sessions, end then, and their clients connect again.

        Args:
            connections: those that are open; none is accepted any more. What was sent on them is still served.
        """
        self._draining = True
        running = self._running
        if running is None:
            return
        running.service.subscriptions.close()
        with trio.move_on_after(terms.seconds):
            # Idle connections are closed meanwhile.
            await trio.sleep(HAND_OVER_LOOK)
            terms.on_begun()
            while connections or running.service.supervisor.actors or running.legacy.sessions.can_hand_over:
                await running.legacy.sessions.hand_over()
                running.websockets.close_idle()
                for entry in running.sse.sessions.at_rest():
                    entry.close_streams()
                await trio.sleep(HAND_OVER_LOOK)

    @works_on_asyncio
    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Reject new calls, give running ones `seconds` to finish, then cancel them and send their callers an error.

        Cancelled calls have `clean_up` seconds for their clean-up.
        """
        self._draining = True
        running = self._running
        if running is None:
            return
        # All at once and before the first await, so that no request slips in between.
        for quota in (running.legacy.sessions.quota, running.sse.sessions.quota, running.websockets.quota):
            quota.draining = True
        # Other workers pass answers on to this one, unless they end, too; and they take over the sessions at rest.
        has_others = self._elsewhere is not None and self._elsewhere.stays
        async with open_background() as background:
            if has_others:
                background.start_soon(running.legacy.sessions.keep_handing_over)
            await running.service.drain(seconds, clean_up, keeps_parked=has_others)
        running.legacy.sessions.close_streams()
        if self._elsewhere is not None:
            self._elsewhere.end_streams()
        running.sse.sessions.close_streams()
        with trio.move_on_after(DRAIN_SECONDS):
            await running.websockets.close()

    @works_on_asyncio
    async def principal_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the principal that `authenticate` finds in these headers; None without `authenticate`.

        Called after the checks of Host and Origin, before the body is read. A cancel leaves nothing.

        Raises:
            HttpRejection: 401, the headers belong to no principal; 500 or 503, `authenticate` failed or took over 10 seconds.
        """
        caller = await self.caller_of(headers)
        return None if caller is None else caller.principal

    @works_on_asyncio
    async def caller_of(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller that `authenticate` finds in these headers, with its scopes and claims; see `principal_of`."""
        return None if self.authentication is None else (await self.authentication.peer(headers, None)).caller

    @property
    def service(self) -> Service:
        """The running service, with its statistics.

        Raises:
            RuntimeError: the application has not started.
        """
        return self._started().service

    @property
    def apps(self) -> Mapping[str, McpApp]:
        """The applications of single servers, by their path prefixes: here itself, without one."""
        return {"": self}

    def __repr__(self) -> str:
        state = f"serving {self._running.service!r}" if self._running else "not started"
        return f"<McpApp {' '.join(self._paths.endpoints)} {state}>"

    # life

    def abandon(self, *, has_failed: bool) -> None:
        self._running = None
        super().abandon(has_failed=has_failed)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        if self._running is not None:
            raise RuntimeError("the application is running already")
        # Under `hypercorn -k trio` nothing else installs the guard.
        install()
        self._draining = False
        if self.options.access_log:
            check_shown()
        try:
            await self._check_access()
            async with (
                in_residence(self.residence),
                self.server.open_service() as service,
                trio.open_nursery() as nursery,
                AsyncExitStack() as stack,
            ):
                if self.residence is not None:
                    service.turn.turns_of_trio = self.residence.turns
                legacy = self._legacy_endpoint(service, nursery)
                service.on_given_up.append(legacy.sessions.leave_all)
                websockets = WebSockets(service, self.limits)
                sse = SseEndpoint(service, self.limits, self._paths.messages, partial(self._reader.read, service))
                self._running = AppState(service, make_session(service, shared_channel=False), legacy, websockets, sse)
                nursery.start_soon(legacy.sessions.reap)
                if self._metrics is not None:
                    await stack.enter_async_context(self._metrics.serving(service))
                workplace, shared = WORKPLACE.get(), service.calls.log_store
                if workplace is not None and shared is not None:
                    links = link.elsewhere.open_links(workplace, service, shared, self.limits.body, self)
                    self._reader.keeps_bodies = True
                    self._elsewhere = await stack.enter_async_context(links)
                    legacy.leave_looking(self._elsewhere.looks_for)
                if self.authentication is not None:
                    nursery.start_soon(self.authentication.run)
                try:
                    yield
                    await self.drain(0)
                    legacy.sessions.end_all(CancelReason.SHUTDOWN)
                    sse.sessions.end_all(CancelReason.SHUTDOWN)
                    await stack.aclose()
                finally:
                    self._running = self._elsewhere = None
                    self._records.close()
                    nursery.cancel_scope.cancel()
        except Exception as error:
            self.failure = error
            raise

    async def _check_access(self) -> None:
        """Check again whether callers have to be authenticated: something may have been mounted meanwhile."""
        if self.authentication is not None:
            open_access.check_required(self.server, self.authentication.required)
            return
        open_access.check_open(self.server)
        open_access.warn_unusable(self.server)
        self.unknown = await open_access.check_open_commands(self.server)

    def _legacy_endpoint(self, service: Service, nursery: trio.Nursery) -> LegacyEndpoint:
        if self.options.sessions:
            return legacy_endpoint(service, self._event_store, self.limits, nursery)
        return StatelessEndpoint(service, MemoryEventStore(memory=service.options.memory), self.limits, nursery)

    def _readiness(self) -> tuple[int, bytes]:
        if self._running is None:
            if self._mounted is not None:
                # A load balancer sends no requests to a server that is not ready.
                self._mounted.begin()
            return 503, b"stopped" if self._draining else b"starting"
        if self._running.service.is_fenced:
            return 503, b"fenced"
        return (503, b"draining") if self._draining else (200, b"ready")

    def _started(self) -> AppState:
        if self._running is None:
            raise RuntimeError("the application has not started")
        return self._running

    async def _ready(self) -> AppState:
        """Return the state of the running application; a mounted one is started now.

        Raises:
            HttpRejection: 503, it could not be started, or it has ended.
        """
        if self._running is None and self._mounted is not None:
            await self._mounted.start()
        if self._running is None:
            raise HttpRejection(503, "This server is not running. Try again in a moment.", code=SERVER_BUSY)
        return self._running

    # requests

    def may_begin_on_asyncio(self, path: str) -> bool:
        """Return whether `respond` may begin on asyncio for a POST of a whole body: it awaits `move_to_trio` where it waits.

        Args:
            path: of the request, below the one where the application is mounted.
        """
        return path == self._paths.streamable and self._running is not None

    async def _serve(self, request: Request) -> Response:
        if request.websocket is not None:
            return await self._upgrade(request)
        if self.authentication is not None and (document := self.authentication.document(request)) is not None:
            return document
        public = self._custom.public(request) if self._custom.has_public else None
        if public is not None:
            incoming = AuthorizedRequest(request, Peer(None, request.headers, request.connection))
            running = self._running or await self._ready()
            return await self._custom.serve(public, running.service, incoming)
        if request.method == "OPTIONS" and is_preflight(request):
            check_access(request.headers, self.access)
            return self._allowed(request)
        incoming = await self._authorized(request)
        serve = self._route(request)
        if serve is None:
            return self._allowed(request)
        running = self._running or await self._ready()
        if isinstance(serve, HttpRoute):
            return await self._custom.serve(serve, running.service, incoming)
        rejoining = running.service.rejoining
        if rejoining is not None and rejoining.in_doubt:
            await move_to_trio()
            await rejoining.be_sure()
        return await serve(running, incoming)

    async def _authorized(self, request: Request) -> AuthorizedRequest:
        """Raise `HttpRejection` unless the sender of a request may call."""
        headers = request.headers
        # First of all: a foreign page must learn nothing, not even whether its credentials would do (S-50).
        is_usual = self._post_checks.have_passed(headers)
        if not is_usual:
            check_access(headers, self.access)
        authentication = self.authentication
        if authentication is None:
            anybody = make_tuple(Peer, (None, headers, request.connection, None))
            return make_tuple(AuthorizedRequest, (request, anybody, None, is_usual))
        peer = authentication.known_peer(headers, request.connection)
        if peer is None:
            await move_to_trio()
            peer = await authentication.peer(headers, request.connection, request.watch, request.root)
        if request.record is not None:
            request.record.name_principal(peer.principal)
        expiry = authentication.expiry(headers, peer, self.limits.recheck_seconds)
        return AuthorizedRequest(request, peer, expiry, is_usual)

    def _route(self, request: Request) -> Route | HttpRoute | None:
        """Return what serves a request; None if it asks which methods its path has.

        Raises:
            HttpRejection: 404, there is nothing at its path; 405, it has other methods.
        """
        verbs = self._verbs(request)
        serve = self._custom.find(request) if verbs is None else verbs.get(request.method)
        if serve is not None or request.method == "OPTIONS":
            return serve
        allowed = ", ".join(self._methods(request))
        what = "endpoint" if verbs is not None else "path"
        raise HttpRejection(405, f"This {what} takes {allowed} only.", [(b"allow", allowed.encode())])

    def _verbs(self, request: Request) -> Mapping[str, Route] | None:
        """Return what serves the methods of the endpoint of a request; None if its path is that of none."""
        found = self._routes.get(request.path)
        return self._routes.get(request.route) or found if request.root_path else found

    def _methods(self, request: Request) -> Sequence[str]:
        """Return the methods of the path of a request. Raises `HttpRejection` (404) if there is nothing."""
        verbs = self._verbs(request)
        methods = self._custom.methods(request) if verbs is None else [*verbs]
        if not methods:
            raise HttpRejection(404, not_found_text(self._paths, request.root))
        return methods

    def _allowed(self, request: Request) -> KnownResponse:
        """Return the response to a request that asks which methods its path has (RFC 9110, 9.3.7)."""
        allowed = ", ".join(dict.fromkeys([*self._methods(request), "OPTIONS"]))
        return KnownResponse(204, headers=[(b"allow", allowed.encode())])

    async def _get(self, running: AppState, incoming: AuthorizedRequest) -> Response:
        return await self._serve_session(incoming, partial(running.legacy.get, incoming))

    async def _delete(self, running: AppState, incoming: AuthorizedRequest) -> Response:
        return await self._serve_session(incoming, partial(running.legacy.delete, incoming))

    async def _serve_session(self, incoming: AuthorizedRequest, here: Callable[[], Awaitable[Response]]) -> Response:
        return await (here() if self._elsewhere is None else self._elsewhere.serve_session(incoming, here))

    async def _post(self, running: AppState, incoming: AuthorizedRequest) -> Response:
        """Read the message of a POST, process it, or let the worker do it that has what it is about; return the response."""
        if not incoming.is_usual:
            self._post_checks.check(incoming.peer.headers)
        account = running.service.open_account(incoming.peer)
        try:
            envelope = await self._reader.read(running.service, incoming, account)
        finally:
            # Hardly any is waited for.
            if account.drawn:
                account.close()
        record = incoming.request.record
        if record is not None:
            record.rpc = getattr(envelope.message, "method", None)
        if self._elsewhere is None:
            return await self._process(running, incoming, envelope)
        here = partial(self._process, running, incoming, envelope)
        return await self._elsewhere.serve_message(envelope, incoming, here)

    async def _process(self, running: AppState, incoming: AuthorizedRequest, envelope: Envelope[Received]) -> Response:
        """Process the message of a POST, and return the response."""
        message = envelope.message
        # A call draws what it keeps of the message from a separate account: counted in both, a message that was found to have
        # room would be refused after it was parsed.
        headers = envelope.peer.headers
        # Batches exist in sessions of 2025-03-26 alone, and the session knows its revision.
        in_session = self.options.sessions and SESSION_HEADER in headers
        if isinstance(message, Malformed) and not (isinstance(message, Batch) and in_session):
            return rejection_of(message.error)
        # From here on what is refused is answered with its id, since a part of it may have been processed.
        try:
            inbound = classify(message)
            # The body decides; a message whose body names no version follows the version header.
            named = REVISIONS.get(headers.get(VERSION_HEADER, "")) if inbound.era is Era.LEGACY else None
            if inbound.era is Era.MODERN or (named is not None and named.era is Era.MODERN):
                return process_modern(running.modern, inbound, envelope, incoming.expiry)
            return await running.legacy.process(envelope)
        except ProtocolError as error:
            error.request_id = message.id if isinstance(message, RpcRequest) else None
            raise

    # requests that other workers have passed on

    @property
    def is_leaving(self) -> bool:
        return self._draining

    @property
    def passes_on(self) -> bool:
        # The successor may authenticate in another way, and believes what this process says of a caller.
        return not self._draining or self.authentication is None

    def has_session(self, session_id: str) -> bool:
        return self._running is not None and self._running.legacy.sessions.knows(session_id)

    async def serve_forwarded(self, incoming: AuthorizedRequest) -> Response:
        running = self._started()
        rejoining = running.service.rejoining
        if rejoining is not None and rejoining.in_doubt:
            await rejoining.be_sure()
        match incoming.request.method:
            case "GET":
                return await running.legacy.get(incoming)
            case "DELETE":
                return await running.legacy.delete(incoming)
            case _:
                with running.service.open_account(incoming.peer) as account:
                    envelope = await self._reader.read(running.service, incoming, account)
                return await self._process(running, incoming, envelope)

    async def _upgrade(self, request: Request) -> Response:
        """Return what serves a WebSocket on the same path."""
        incoming = await self._authorized(request)
        streamable = self._paths.streamable
        if streamable is None or {streamable, other_spelling(streamable)}.isdisjoint(request.routes):
            raise HttpRejection(404, no_websocket(self._paths, request.root))
        check_upgrade(incoming.peer.headers, request.websocket or ())
        running = self._running or await self._ready()
        return running.websockets.upgrade(incoming)
