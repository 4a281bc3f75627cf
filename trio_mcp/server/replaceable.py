"""`ReplaceableServer`: a server whose code can be replaced while it is served, without an end for connections and calls."""

# The offers of a running service are in `session.service.Service`; see `Service.replace_offers` for the one step in which others
# take their place. This module does what comes before and after it:
#
#   replace(new)        what happens                                               if it fails
#   check               the new code may not begin to ask for authentication       nothing has changed
#   open                the lifespans of the new code start, beside the old ones   nothing has changed
#   ----                no await from here on
#   offers              routes and the rest are made of the new registry           the new lifespans close
#   swap                the service has them; new calls use the new code
#   retire              the old lifespans close when the last old call has ended
#   announce            clients are notified of the lists that differ

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Never

import trio

from ..base.checks import check_instance
from ..errors import ConfigurationError
from ..http import Authenticate, HttpHandler, HttpOptions, HttpRequest, HttpResponse, HttpRoute
from ..http.authenticator import Authenticator, as_authenticator
from ..http.open_access import check_open, check_open_commands
from ..protocol.sealing.request_state import KeyRing
from ..session import (
    AnyChannel,
    Caller,
    MessageChannel,
    Service,
    ServiceOptions,
)
from ..session.event_loop import check_event_loop
from ..session.subscriptions import ChangeKind
from ..session.transport import authenticates
from ..types import Implementation
from .generations import (
    Generation,
    Generations,
    changed_http,
    changed_lists,
    changed_settings,
    new_capabilities,
    open_generations,
)
from .lifespan import LIFESPAN_EXIT_SECONDS
from .registry import Registry
from .running import serve_on_channel, serve_over
from .server import Server


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a replacement has changed.

    Attributes:
        lists: the lists that differ, which clients were notified of: "tools", "prompts", "resources".
        for_restart: settings that differ and that only a restart applies, by name.
        for_reconnect: what clients of the legacy era that are connected learn when they connect again, by name.
        old_calls: calls that go on with the code that was replaced now.
    """

    lists: tuple[ChangeKind, ...] = ()
    for_restart: tuple[str, ...] = ()
    for_reconnect: tuple[str, ...] = ()
    old_calls: int = 0


@dataclass(slots=True, eq=False)
class Running:
    """The service, and the version of the server that new calls use."""

    service: Service
    generations: Generations
    current: Generation


class ReplaceableServer:
    """Serves a `Server`, and can go on with another one in its place: see `replace`.

    It is served like a `Server`, on every transport, once at a time. Who the server is, its `ServiceOptions` and its
    `HttpOptions` stay those of the first one; the functions in the `HttpOptions` are those of the newest that has them.
    """

    def __init__(self, server: Server) -> None:
        self._first = check_instance("server", server, Server, "a Server")
        self._newest = server
        self._authenticating = server
        """The newest server that authenticates its callers."""
        self._over_http = True
        self._running: Running | None = None
        self._served = trio.Event()

    @property
    def identity(self) -> Implementation:
        """Its name, for what people read."""
        return self._first.identity

    @property
    def options(self) -> ServiceOptions:
        """How its service runs."""
        return self._first.options

    @property
    def server(self) -> Server:
        """The server whose code new calls use."""
        return self._newest

    @property
    def registry(self) -> Registry:
        """What the newest server offers."""
        return self._newest.registry

    @property
    def lifespan_seconds(self) -> float:
        """How long its end may take; that of a version with a lifespan, also if the first one has none."""
        return max(self._first.lifespan_seconds, LIFESPAN_EXIT_SECONDS)

    @property
    def http(self) -> HttpOptions | None:
        """How it is served over HTTP: as the first server says, with the functions of the newest one."""
        first = self._first.http
        if first is None:
            return None
        routes = [replace(route, handler=NewestRoute(self, route)) for route in first.routes]
        newest = None if first.authenticate is None else NewestAuthenticator(self._newest_hook)
        return replace(first, authenticate=newest, routes=routes)

    @property
    def service(self) -> Service | None:
        """The running service; None while nothing serves it."""
        return None if self._running is None else self._running.service

    async def wait_served(self) -> None:
        """Wait until it is served for the first time."""
        await self._served.wait()

    async def serve(self, transport: str = "stdio", **options: object) -> None:
        """Serve over a transport until it ends; see `Server.serve`."""
        self._over_http = transport not in ("stdio", "memory")
        await serve_over(transport, self, options)

    async def serve_channel(self, channel: AnyChannel) -> None:
        """Serve one connection; returns when it has ended and its calls have cleaned up."""
        await serve_on_channel(channel, self._open_service, self.options)

    def open_service(self) -> AbstractAsyncContextManager[Service]:
        """Open the service with which a transport serves its connections. Raises as `Server.open_service`."""
        return self._open_service(self.options)

    @asynccontextmanager
    async def _open_service(
        self, options: ServiceOptions, channel: MessageChannel | None = None
    ) -> AsyncIterator[Service]:
        check_event_loop()
        if self._running is not None:
            raise RuntimeError("this server is served already, and it is served once at a time")
        if options.keys is None:
            KeyRing.from_environment()
        async with open_generations() as generations:
            generation = await generations.open(self._newest)
            async with generation.open_service(options, channel) as service:
                running = self._running = Running(service, generations, generation)
                self._served.set()
                try:
                    yield service
                finally:
                    self._running = None
                    running.current.leave(service)

    async def replace(self, server: Server) -> Replacement:
        """Go on with another server in the running service: new calls use its code, and clients are notified of what differs.

        Connections and sessions stay. A call that runs, is parked, waits for an answer or is a task goes on with the code and the
        lifespan that it began with. The lifespan of the new server starts before, while the old one serves. A cancel before that
        has started changes nothing.

        Raises:
            RuntimeError: nothing serves this server, or it is shutting down.
            ConfigurationError: the new server asks for authentication, and the old one is open to everybody: over HTTP it must
                not be served without.
            Exception: what the lifespan raised at its start. In all cases nothing has changed.
        """
        check_instance("server", server, Server, "a Server")
        running = self._check_running(self._running)
        if server is self._newest:
            return Replacement()
        if self._over_http and not authenticates(self._first):
            if authenticates(server):
                raise ConfigurationError(
                    "http.authenticate is new, and is applied by a restart (of `trio-mcp dev`, end it and start it again): "
                    "a server that asks for authentication is not served without"
                )
            check_open(server)
            await check_open_commands(server)
        generation = await running.generations.open(server)
        try:
            self._check_running(running)
            return self._swap(running, generation)
        except BaseException:
            generation.replace(lambda: None)
            raise

    def _check_running(self, running: Running | None) -> Running:
        if running is None or running is not self._running:
            raise RuntimeError("nothing serves this server")
        if running.service.supervisor.draining:
            raise RuntimeError("this server is shutting down")
        return running

    def _swap(self, running: Running, generation: Generation) -> Replacement:
        """Put another version in the place of the one in service."""
        service, old, server = running.service, running.current, generation.server
        lists = changed_lists(old.server, server)
        declared, instructions = service.capabilities, service.offers.instructions
        generation.take_over(service, old)
        self._newest, running.current = server, generation
        if server.http is not None and server.http.authenticate is not None:
            self._authenticating = server
        for change in lists:
            service.subscriptions.announce(change)
        reconnect = new_capabilities(declared, service.capabilities)
        if instructions != service.offers.instructions:
            reconnect.append("instructions")
        restart = changed_settings(self._first, server)
        restart += changed_http(self._first.http, server.http) if self._over_http else []
        return Replacement(tuple(change.kind for change in lists), tuple(restart), tuple(reconnect), old.usage.count)

    def _newest_hook(self) -> Authenticate:
        http = self._authenticating.http
        assert http is not None
        assert http.authenticate is not None
        return http.authenticate


class NewestAuthenticator(Authenticator):
    """Authenticates as the newest server does.

    Args:
        newest: returns its hook.
    """

    def __init__(self, newest: Callable[[], Authenticate]) -> None:
        self._newest = newest

    @property
    def _current(self) -> Authenticator:
        return as_authenticator(self._newest())

    @property
    def hides_credentials(self) -> bool:
        """See `Authenticator`."""
        return self._current.hides_credentials

    @property
    def public_url(self) -> str | None:
        """See `Authenticator`."""
        return self._current.public_url

    @property
    def required(self) -> frozenset[str]:
        """See `Authenticator`."""
        return self._current.required

    def admitted(self, caller: Caller) -> Caller:
        """See `Authenticator`."""
        return self._current.admitted(caller)

    async def __call__(self, headers: Mapping[str, str]) -> str | Caller | None:
        """Return the caller of a request."""
        return await self._current(headers)

    def known(self, headers: Mapping[str, str]) -> Caller | None:
        """See `Authenticator`."""
        return self._current.known(headers)

    async def prepare(self) -> None:
        """See `Authenticator`."""
        await self._current.prepare()

    def background(self) -> AbstractAsyncContextManager[None]:
        """Return that of the first server; a later one fetches its keys in the tasks of its requests."""
        return self._current.background()

    def check_endpoints(self, endpoints: Collection[str], scopes: Collection[str], root: str = "") -> None:
        """See `Authenticator`."""
        self._current.check_endpoints(endpoints, scopes, root)

    def challenge(self, error: str = "", scopes: Collection[str] = (), root: str = "") -> Mapping[str, str]:
        """See `Authenticator`."""
        return self._current.challenge(error, scopes, root)

    def documents(self, scopes: Collection[str]) -> Mapping[str, bytes]:
        """See `Authenticator`."""
        return self._current.documents(scopes)

    def routes(self, endpoints: Collection[str], scopes: Callable[[], Collection[str]]) -> Sequence[HttpRoute]:
        """Return the routes of the first server; each calls the function of the same route of the newest one."""

        def newest(path: str) -> HttpHandler:
            async def call(request: HttpRequest[Never]) -> HttpResponse:
                for route in self._current.routes(endpoints, scopes):
                    if route.path == path:
                        return await route.handler(request)
                return HttpResponse("This route is no longer served.", 404)

            return call

        return [replace(route, handler=newest(route.path)) for route in self._current.routes(endpoints, scopes)]


class NewestRoute:
    """The function of a route of the first server: that of the same route of the newest one."""

    def __init__(self, server: ReplaceableServer, route: HttpRoute) -> None:
        self.__qualname__ = route.name
        self._server = server
        self._route = route

    async def __call__(self, request: HttpRequest[Never]) -> HttpResponse:
        """Return the response of the newest function; 404 if there is none, or the route asks for other checks now."""
        http = self._server.server.http
        for route in () if http is None else http.routes:
            same_place = route.whole_path == self._route.whole_path and request.method in route.methods
            if same_place and route.public == self._route.public:
                return await route.handler(request)
        return HttpResponse("This route has changed, and is served again after a restart.", 404)
