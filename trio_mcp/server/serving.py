"""A server as it runs: its services, what each of them offers, its lifespan, and how changes reach all of them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial

from .. import server
from ..protocol.sealing.request_state import KeyRing
from ..protocol.uri.uris import MAX_URI, is_uri
from ..sampling import SamplingProvider
from ..session import AnyChannel, Route, Service, ServiceOptions, open_service
from ..session.calls.services import CallOffers
from ..session.channel import MessageChannel
from ..session.event_loop import check_event_loop
from ..session.service import Offers
from ..session.subscriptions import Change
from ..session.transport import OWNS_PROCESS
from ..types import Model
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
from .lifespan import LIFESPAN_EXIT_SECONDS, open_lifespan
from .needed_scopes import missing_scopes_of
from .pages import PageSettings
from .registry import request_checks_of, routes_of
from .running import RunningServices
from .tools.own_tools import ServerTools

call_logger = logging.getLogger("trio_mcp.calls")


class Serving(Composition):
    """The members of a server that run it; `Server` sets what an author says."""

    options: ServiceOptions
    instructions: str | None
    _pages: PageSettings
    _sampling: SamplingProvider | None
    _sampling_prefer: server.SamplingPreference
    _tool_search: server.ToolSearch | None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._running = RunningServices()

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
        if self._own_lifespan() is None and not self._registry.mounts:
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
            if isinstance(inner := mount.server, Serving):
                pinned += [mount.outer_name(name) for name in inner._pinned_tools()]  # noqa: SLF001  it is of this class
        return pinned

    def _check_search(self, other: Mountable) -> None:
        if isinstance(other, Serving) and other._tool_search is not None and self._tool_search is None:  # noqa: SLF001
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
            lifespan_seconds=(0.0 if self._own_lifespan() is None else LIFESPAN_EXIT_SECONDS)
            + seconds_of(self._registry),
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

    def _own_lifespan(self) -> Callable[[], AbstractAsyncContextManager[object]] | None:
        """Return the lifespan of the author, if there is one; `Server` overrides it."""
        return None

    def _open_lifespan(self) -> AbstractAsyncContextManager[object]:
        """Enter the lifespan for one service; its value is the state."""
        lifespan = self._own_lifespan()
        if lifespan is None:
            return nullcontext()
        if self._asyncio:
            lifespan = partial(server.asyncio_bodies.open_on_asyncio, lifespan)
        return open_lifespan(lifespan, self.identity.name)

    def _offers_within(self, outer: CallOffers, options: ServiceOptions, state: object) -> CallOffers:
        """Return what this server offers to its own calls in a service of another one, in which it is mounted."""
        # The model of the outer server is one for all, as its options are.
        prefers = outer.prefers_provider if self._sampling is None else self._sampling_prefer == "server"
        provider, tools = self._sampling or outer.provider, ServerTools(self._registry.tools, self._threads)
        return CallOffers(self._routes(options), state, provider, prefers, tools)

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
