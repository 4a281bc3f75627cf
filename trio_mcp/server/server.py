"""`Server`: what an author declares, and how it is served."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial

import trio

from ..protocol.sealing.request_state import KeyRing
from ..protocol.uri.uris import is_uri
from ..session import Envelope, Service, ServiceOptions, check_options, find_transport, open_service, serve_channel
from ..session.subscriptions import Change, updated
from ..types import CacheScope, Icon, Implementation
from .authoring import Authoring
from .options import check_service
from .pages import PAGE_SIZE, ListOptions
from .router import Router
from .tool import Tool

COLLECT_AFTER = 10_000
"""New objects after which the collector looks at the youngest. A call makes some sixty, nearly all of them free at its end."""


class Server(Authoring):
    """An MCP server: a name, what it offers, and the ways to serve it.

        server = Server("weather", version="1.0")

        @server.tool
        async def forecast(city: str) -> str:
            "Tomorrow's weather."
            return f"Sunny in {city}."

        server.run()                         # stdio
        server.run("http", port=8000)        # Streamable HTTP at /mcp

    Args:
        name: who this server is; also part of what seals its `requestState`, so all nodes of a deployment share it.
        instructions: how a model should use the server.
        description, website_url, icons: more about it, for people.
        page_size: items of one page of a listing.
        list_ttl: seconds for which a client may keep a listing (2026-07-28); 0 for not at all.
        list_scope: "public" when the listings are the same for everybody.
        options: limits and times.
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
        options: ServiceOptions | None = None,
    ) -> None:
        super().__init__()
        self.identity = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=list(icons) or None,
        )
        self.instructions = instructions
        self.options = ServiceOptions() if options is None else check_service(options)
        self._lists = ListOptions(page_size, list_ttl, list_scope)
        self._services: dict[Service, None] = {}
        """Where it is served now; shared with its copies under other options."""
        self._declaring = threading.Lock()

    def with_options(self, options: ServiceOptions) -> Server:
        """The same server, tools included, under other limits and times."""
        other = copy(self)
        other.options = check_service(options)
        return other

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order they are listed."""
        return tuple(self._registry.tools)

    @property
    def services(self) -> tuple[Service, ...]:
        """Where it is served now, one for each `serve` or ASGI application; empty while it is not."""
        return tuple(self._services)

    def resource_updated(self, uri: str) -> None:
        """Tell everyone who watches the resource, or something it is a part of, that it has changed; from any thread.

        Raises:
            ValueError: that is no URI.
        """
        if not is_uri(uri):
            raise ValueError(f"resource_updated: {uri[:128]!r} is no URI: it needs a scheme, such as config: or file:")
        self._announce(updated(uri))

    def run(self, transport: str = "stdio", **options: object) -> None:
        """Serve until told to stop, in a Trio loop of its own: `run()` on stdio, `run("http", port=8000)` over HTTP.

        Options are the transport's. Raises `LookupError` for a transport that is not installed.
        """
        # What was loaded until now lives as long as the process; the collector need not look at it after every few calls.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        trio.run(partial(self.serve, transport, **options))

    async def serve(self, transport: str = "stdio", **options: object) -> None:
        """Serve over a transport until it ends or is told to stop; a cancel stops it, with a bounded clean-up.

        Raises:
            LookupError: no such transport is installed.
            TypeError: it has no such option.
            ConfigurationError: `TRIO_MCP_KEYS` holds no keys; nothing was opened.
        """
        if self.options.keys is None:
            KeyRing.from_environment()  # a transport opens its own nursery, and would say this late and wrapped
        check_options(transport, "serve", options)
        await find_transport(transport).serve(self, **options)

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        """Serve one connection; returns when it has ended and its calls are cleaned up."""
        async with self.open_service() as service:
            await serve_channel(service, channel)

    @asynccontextmanager
    async def open_service(self) -> AsyncIterator[Service]:
        """What a transport serves its connections with; `async with server.open_service() as service`."""
        router = Router(self._registry, self.identity, self._lists, self.options.keys)
        opened = open_service(
            router.routes,
            self.identity,
            self._registry.capabilities,
            self.instructions,
            self.options,
            router.request_checks,
            self._threads,
        )
        async with opened as service:
            self._services[service] = None
            self._declare()  # a thread may have changed something since it was read
            try:
                yield service
            finally:
                del self._services[service]

    def _announce(self, change: Change) -> None:
        self._declare()
        for service in list(self._services):
            service.subscriptions.announce(change)

    def _declare(self) -> None:
        with self._declaring:  # else what one thread read before another's change might be written after it
            for service in list(self._services):
                service.capabilities = self._registry.capabilities

    def __repr__(self) -> str:
        return f"<Server {self.identity.name} {self.identity.version} tools={len(self.tools)}>"
