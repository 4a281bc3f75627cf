"""`Server`: what an author registers, and how it is served."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Never, TypeAlias

from .. import server
from ..base.checks import check_instance, check_str, keyword_options, missing
from ..base.late import hinting
from ..protocol.sealing.request_state import KeyRing
from ..protocol.uri.uris import MAX_URI, is_uri
from ..sampling import SamplingProvider
from ..session import (
    AnyChannel,
    MessageMiddleware,
    Route,
    Service,
    ServiceOptions,
    open_service,
)
from ..session.calls.services import CallOffers
from ..session.channel import MessageChannel
from ..session.event_loop import check_event_loop
from ..session.service import Offers
from ..session.subscriptions import Change
from ..session.transport import OWNS_PROCESS
from ..types import CacheScope, Icon, Model
from .composing import (
    Composition,
    Mountable,
    MountedServer,
    followers_of,
    mounted_offers,
    open_mounts,
    seconds_of,
    threads_of,
)
from .handler import Function
from .lifespan import LIFESPAN_EXIT_SECONDS, check_lifespan, open_lifespan
from .needed_scopes import missing_scopes_of
from .options import check_instructions, check_service, identity_of
from .pages import PAGE_SIZE, PageSettings
from .registry import request_checks_of, routes_of
from .running import RunningServices
from .tools.own_tools import ServerTools
from .tools.tool import Tool

if TYPE_CHECKING:
    from ..http import HttpOptions
    from ..types import Prompt, Resource, ResourceTemplate

call_logger = logging.getLogger("trio_mcp.calls")

NO_ASGI_APP = (
    "a trio_mcp Server is not an ASGI application: write `from trio_mcp_transports.http import asgi_app` and "
    "`app = asgi_app(server)`, and serve that: `hypercorn -k trio module:app`, or `uvicorn module:app`"
)


class AnsweredType(type):
    """The type of `Server`: what other libraries have as methods of the class is answered too, such as `from_openapi`."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Never:
            raise missing(cls.__name__, name, server.other_names.OF_SERVER)


class Server(Composition, metaclass=AnsweredType):
    """An MCP server: register its tools, resources and prompts with decorators, then `run` or `serve` it.

        server = Server("weather", version="1.0")

        @server.tool
        async def forecast(city: str) -> str:
            "Tomorrow's weather."
            return f"Sunny in {city}."

        server.run()                         # stdio
        server.run("http", port=8000)        # Streamable HTTP at /mcp

    Args:
        name: its name for clients. Processes that continue each other's calls need the same name: `requestState` is bound to it.
        instructions: how a model should use the server.
        description, website_url, icons: more about the server, for people.
        page_size: the number of items on one page of a list.
        list_ttl: seconds for which a client may cache a list (2026-07-28); 0 for no caching.
        list_scope: "public" if the lists are the same for all clients.
        lifespan: a function decorated with `@asynccontextmanager` that takes this server. It is entered before the first call and
            left after the last one, however the server is served; what it yields is `ctx.state`. See
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/state.md.
        middleware: async functions that run around each call, the first one outermost; see the decorator `middleware`.
        message_middleware: plain functions that see each message; see the decorator `message_middleware`.
        options: limits and times.
        sampling: the provider of a model for `ctx.sample` and `ctx.run_tool_loop`; see
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/tool-loops.md. The server does not close it.
        sampling_prefer: "client" asks the provider only where the client lacks what a question needs, "server" always.
        tool_search: offer a search and a call in place of the list of tools; see
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/tool-search.md.
        http: how it is served over HTTP, wherever that is; see
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/deployment.md.
        asyncio: run its async functions on asyncio: tools, prompts, resources, completions, routes, the lifespan, providers,
            `authenticate`, steps and branches. Middleware runs on Trio. See
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/asyncio.md.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] = (),
        instructions: str | None = None,
        page_size: int = PAGE_SIZE,
        list_ttl: float = 0.0,
        list_scope: CacheScope = "private",
        lifespan: Lifespan | None = None,
        middleware: Sequence[server.CallMiddleware] = (),
        message_middleware: Sequence[MessageMiddleware] = (),
        options: ServiceOptions | None = None,
        sampling: SamplingProvider | None = None,
        sampling_prefer: server.SamplingPreference = "client",
        tool_search: server.ToolSearch | None = None,
        http: HttpOptions | None = None,
        asyncio: bool = False,
        **unknown: Never,
    ) -> None:
        if unknown:
            server.other_names.refuse(unknown, keyword_options(Server), "Server()")
        super().__init__(check_str("the name of a server", name))
        # Most servers have neither, and load nothing of it.
        if sampling is not None or sampling_prefer != "client":
            server.sampling.request.check_sampling(sampling, sampling_prefer)
            self._fulfilled = server.sampling.request.PROVIDED
        self._sampling = sampling
        self._sampling_prefer = sampling_prefer
        self._tool_search = None if tool_search is None else server.tools.search.check_tool_search(tool_search)
        check_lifespan(lifespan)
        self._lifespan = lifespan
        self.identity = identity_of(name, version, title, description, website_url, icons)
        self.instructions = check_instructions(instructions)
        self.options = ServiceOptions() if options is None else check_service(options)
        self._pages = PageSettings(self.identity, page_size, list_ttl, list_scope)
        self._asyncio = check_instance("asyncio", asyncio, bool, "True or False")
        self._take_http(http)
        self._running = RunningServices()
        self._add_middleware(middleware, message_middleware)

    def _add_middleware(
        self, middleware: Sequence[server.CallMiddleware], message_middleware: Sequence[MessageMiddleware]
    ) -> None:
        for call_middleware in middleware:
            self.middleware(call_middleware)
        for each in message_middleware:
            self.message_middleware(each)

    def copy(
        self,
        *,
        options: ServiceOptions | None = None,
        lifespan: Lifespan | None = None,
        tool_search: server.ToolSearch | None = None,
        tools: Sequence[Function | Tool] = (),
    ) -> Server:
        """Return a server that differs in what is given here, and shares everything registered, now or later, with this one.

            offline = server.copy(options=ServiceOptions(keys=keys), lifespan=fake)

        Args:
            options: other limits and times.
            lifespan: another lifespan.
            tool_search: offer a search in place of the list of tools.
            tools: more tools, as `add_tool` takes them. Such a copy has the tools that this server has now, and none that it gets
                later.

        Raises:
            TypeError, ValueError: as `Server` and `add_tool`.
        """
        # Shallow: registry, threads and running services stay shared, so that a later `add_tool` reaches both.
        other = copy(self)
        if options is not None:
            other.options = check_service(options)
        if lifespan is not None:
            check_lifespan(lifespan)
            other._lifespan = lifespan  # noqa: SLF001  it is of this class
        if tool_search is not None:
            other._tool_search = server.tools.search.check_tool_search(tool_search)  # noqa: SLF001
        if tools:
            made = [self._made_tool(each, {}) for each in tools]
            other._registry = self._registry.with_tools(made)  # noqa: SLF001
        return other

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order they were added; with those of mounted servers."""
        return tuple(self._registry.tools)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources as clients see them, in the order they were added; with those of mounted servers."""
        return tuple(each.model for each in self._registry.resources)

    @property
    def resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """The resource templates as clients see them, in the order they were added; with those of mounted servers."""
        return tuple(each.model for each in self._registry.templates)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts as clients see them, in the order they were added; with those of mounted servers."""
        return tuple(each.model for each in self._registry.prompts)

    @property
    def services(self) -> tuple[Service, ...]:
        """The running services, one for each `serve` or ASGI application; empty while nothing serves this server."""
        return tuple(self._running)

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribe to a resource, or to a parent of its URI, that it has changed. Works in any thread.

        Raises:
            ValueError: `uri` is not a URI.
        """
        if not is_uri(uri):
            raise ValueError(
                f"resource_updated: {uri[:128]!r} is not a URI: it needs a scheme, like file:, and at most {MAX_URI} characters"
            )
        # First the capabilities, as in `_announce`.
        self._declare()
        self._running.resource_updated(uri)
        self._outer_resource_updated(uri)

    def complete_elicitation(self, elicitation_id: str) -> bool:
        """Report that a user has finished at the page of a URL elicitation (`ctx.elicit_url`, `UrlElicitationRequired`).

        The call that waits for it goes on, and a legacy client is notified. Call it where the page is served, after its user was
        verified to be the one who was asked (L-ELI-7s). Works in any thread.

        Returns:
            whether the elicitation was unfinished and known to this process.
        """
        if self._running.complete_elicitation(elicitation_id):
            return True
        return any(outer.complete_elicitation(elicitation_id) for _, outer in tuple(self._outer))

    def run(self, transport: str = "stdio", **options: object) -> None:
        """Run a Trio loop and serve in it until the transport ends: `run()` on stdio, `run("http", port=8000)` over HTTP.

        In the main thread, the process is taken to exist for this server: after a signal or the end of stdin, it is also ended by
        force if threads that tools have left behind keep it when the main thread has ended. Use `serve` in a larger program.

        Options are the transport's. Raises what `serve` raises. If the program does not catch it, a port in use or a wrong
        setting, such as a certificate that cannot be read, is one line on stderr and not a traceback. Where an event loop runs
        already, of Trio or of asyncio, it raises `RuntimeError`, which says what to write.
        """
        server.running.run_process(partial(self.serve, transport, **options), self.identity.name, self, transport)

    async def serve(self, transport: str = "stdio", **options: object) -> None:
        """Serve over a transport until it ends; a cancel stops it, with a bounded clean-up.

        Over HTTP it can be started in a nursery, which returns the list of its URLs when it listens:

            urls = await nursery.start(partial(server.serve, "http", port=0, signals=False))

        Args:
            transport: its name, such as "stdio", "http" or "sse".
            options: of the transport, as `port=` of `serve_http`.

        Raises:
            LookupError: no such transport is installed.
            TypeError: it has no such option.
            RuntimeError: this does not run on Trio.
            ConfigurationError: `TRIO_MCP_KEYS` holds no valid keys; nothing was opened.
        """
        server.running.check_serves(self, transport, "serve")
        await server.running.serve_over(transport, self, options)

    async def serve_channel(self, channel: AnyChannel) -> None:
        """Serve one connection; returns when it has ended and its calls have cleaned up."""
        await server.running.serve_on_channel(channel, self._open_service, self.options)

    def open_service(self) -> AbstractAsyncContextManager[Service]:
        """Open the service with which a transport serves its connections: `async with server.open_service() as service`.

        The lifespan is entered first, and left last: when all calls have ended, within `LIFESPAN_EXIT_SECONDS`.

        Raises:
            RuntimeError: this does not run on Trio.
            ConfigurationError: `TRIO_MCP_KEYS` holds no valid keys; the lifespan was not entered.
            Exception: what the lifespan raised, at its start, in the block (which is cancelled then) or at its end.
        """
        return self._open_service(self.options)

    @asynccontextmanager
    async def _open_service(
        self, options: ServiceOptions, channel: MessageChannel | None = None
    ) -> AsyncIterator[Service]:
        check_event_loop()
        if self._lifespan is None and not self._registry.mounts:
            async with self._open_with(None, {}, options, channel) as service:
                yield service
            return
        if self.options.keys is None:
            KeyRing.from_environment()
        async with self._open_lifespan() as state, open_mounts(self._registry) as states:
            async with self._open_with(state, states, options, channel) as service:
                yield service

    @asynccontextmanager
    async def _open_with(
        self,
        state: object,
        states: Mapping[object, object],
        options: ServiceOptions,
        channel: MessageChannel | None,
    ) -> AsyncIterator[Service]:
        """Open the service.

        Args:
            state, states: of the lifespan, and of those of the mounted servers.
        """
        offers = self._offers(options, state, states)
        if channel is None:
            server.running.load_for_calls()
        async with open_service(offers, options, channel) as service:
            self._running.add(service, self._registry)
            # Again, because another thread may have added something after the capabilities were read above.
            self._declare()
            try:
                with server.running.tree_on_signal(service) if OWNS_PROCESS.get() else nullcontext():
                    yield service
            finally:
                self._running.remove(service)

    def _offers(self, options: ServiceOptions, state: object, states: Mapping[object, object]) -> Offers:
        """Return what a service needs of this server; see `_open_with`."""
        search = self._searched_tools()
        own = CallOffers(
            self._logged(self._routes(options, search)),
            state,
            self._sampling,
            self._sampling_prefer == "server",
            ServerTools(self._registry.tools, self._threads),
        )
        if states:
            own = own._replace(mounted=mounted_offers(self._registry, own, options, states))
        return Offers(
            own,
            identity=self.identity,
            capabilities=self._registry.capabilities,
            instructions=self.instructions,
            request_checks=request_checks_of(self._registry, search),
            threads=[self._threads, *threads_of(self._registry)],
            missing_scopes=missing_scopes_of(self._registry, search),
            check_reader=self._registry.check_reader,
            message_middleware=tuple(self._message_middleware),
            followers=followers_of(self._registry, states),
        )

    def _listed_tools(self) -> list[Model]:
        """Return what the list of tools shows."""
        search = self._searched_tools()
        return [each.model for _, each in (self._registry.tools if search is None else search).snapshot()]

    def _searched_tools(self) -> server.tools.search.SearchedTools | None:
        """Return what is listed in place of the tools, if the server has a search."""
        if self._tool_search is None:
            return None
        search = replace(self._tool_search, pinned=self._pinned_tools())
        return server.tools.search.SearchedTools(self._registry.tools, search, self._threads)

    def _pinned_tools(self) -> list[str]:
        """Return the names of the tools that stay in the list, those of mounted servers with their prefixes."""
        pinned = [] if self._tool_search is None else [*self._tool_search.pinned]
        for mount in self._registry.mounts:
            if isinstance(inner := mount.server, Server):
                pinned += [mount.outer_name(name) for name in inner._pinned_tools()]  # noqa: SLF001  it is of this class
        return pinned

    def _check_search(self, other: Mountable) -> None:
        if isinstance(other, Server) and other._tool_search is not None and self._tool_search is None:  # noqa: SLF001
            raise ValueError(
                f"the server {other.identity.name!r} has a tool search, and {self._registry.owner} has none: it would list all "
                "of the tools. Give the outer server tool_search=ToolSearch(), too"
            )

    def _routes(
        self, options: ServiceOptions, search: server.tools.search.SearchedTools | None = None
    ) -> Mapping[str, Route]:
        routes = routes_of(self._registry, self._pages.with_keys(options.keys), search)
        if self._middleware:
            routes = server.middleware.with_middleware(routes, self._middleware)
        return routes if search is None else search.unwrapping(routes)

    # mounted in another server

    def _facts(self) -> MountedServer:
        return MountedServer(
            lifespan_seconds=(0.0 if self._lifespan is None else LIFESPAN_EXIT_SECONDS) + seconds_of(self._registry),
            on_asyncio=self._asyncio,
            mounted=[mount.server for mount in self._registry.mounts],
            scopes_by_item=self._registry.scopes_by_item,
            registry=self._registry,
            layers=self._middleware,
            message_middleware=self._message_middleware,
            threads=self._threads,
            add_outer=self._add_outer,
            open=self._open_lifespan,
            offers_within=self._offers_within,
        )

    def _open_lifespan(self) -> AbstractAsyncContextManager[object]:
        """Enter the lifespan for one service; its value is the state."""
        if self._lifespan is None:
            return nullcontext()
        lifespan: Callable[[], AbstractAsyncContextManager[object]] = partial(self._lifespan, self)
        if self._asyncio:
            lifespan = partial(server.asyncio_bodies.open_on_asyncio, lifespan)
        return open_lifespan(lifespan, self.identity.name)

    def _offers_within(self, outer: CallOffers, options: ServiceOptions, state: object) -> CallOffers:
        """Return what this server offers to its own calls in a service of another one, in which it is mounted."""
        # The model of the outer server is one for all, as its options are.
        prefers = outer.prefers_provider if self._sampling is None else self._sampling_prefer == "server"
        provider, tools = self._sampling or outer.provider, ServerTools(self._registry.tools, self._threads)
        return CallOffers(self._routes(options), state, provider, prefers, tools)

    async def __call__(
        self,
        scope: Mapping[str, object],
        receive: Callable[[], Awaitable[object]],
        send: Callable[[dict[str, object]], Awaitable[None]],
    ) -> None:
        """Fail with advice when an ASGI server is given the server itself: `asgi_app(server)` is the application.

        Raises:
            TypeError: always, unless it can fail the start of the ASGI server instead.
        """
        # Without this, `hypercorn module:server` takes the object for a WSGI application and fails at the first request.
        if scope["type"] != "lifespan":
            raise TypeError(NO_ASGI_APP)
        await receive()
        await send({"type": "lifespan.startup.failed", "message": NO_ASGI_APP})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise missing("Server", name, server.other_names.OF_SERVER)

    @staticmethod
    def _logged(routes: Mapping[str, Route]) -> Mapping[str, Route]:
        """Return the routes, which log their calls if that level is enabled; otherwise logging costs nothing."""
        return server.call_log.with_call_log(routes) if call_logger.isEnabledFor(logging.INFO) else routes

    def _check_not_served(self, what: str) -> None:
        # A session and the routes decide when they are made whether there is any, so that a server without pays nothing.
        if self._is_served():
            raise RuntimeError(f"{what} has to be registered before the server is served")

    def _is_served(self) -> bool:
        return bool(self._running) or any(outer._is_served() for _, outer in self._outer)  # noqa: SLF001

    def _announce(self, change: Change) -> None:
        # First the capabilities: a client that is notified of a new kind of list must find it declared.
        self._declare()
        self._running.announce(change)

    def _declare(self) -> None:
        self._running.declare()
        for _, outer in tuple(self._outer):
            outer._declare()  # noqa: SLF001  it is of this class

    def __repr__(self) -> str:
        return f"<Server {self.identity.name} {self.identity.version} tools={len(self.tools)}>"


Lifespan: TypeAlias = Callable[[Server], AbstractAsyncContextManager[object]]
"""A function that takes the server and returns an async context manager, as `@asynccontextmanager` makes one."""


if not TYPE_CHECKING:
    # FastMCP has its class in a module of this name.
    __getattr__ = hinting(__name__, "FastMCP")
