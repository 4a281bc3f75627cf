"""`Server`: what an author registers, and how it is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Never, TypeAlias

from .. import server
from ..base.checks import check_instance, check_str, keyword_options, missing
from ..base.late import hinting
from ..sampling import SamplingProvider
from ..session import MessageMiddleware, ServiceOptions
from ..types import CacheScope, Icon
from .handler import Function
from .lifespan import check_lifespan
from .options import check_instructions, check_service, identity_of
from .pages import PAGE_SIZE, PageSettings
from .serving import Serving
from .tools.tool import Tool

if TYPE_CHECKING:
    from ..http import HttpOptions
    from ..types import Prompt, Resource, ResourceTemplate

NO_ASGI_APP = (
    "a trio_mcp Server is not an ASGI application: write `from trio_mcp_transports.http import asgi_app` and "
    "`app = asgi_app(server)`, and serve that: `hypercorn -k trio module:app`, or `uvicorn module:app`"
)


class AnsweredType(type):
    """The type of `Server`: what other libraries have as methods of the class is answered too, such as `from_openapi`."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Never:
            raise missing(cls.__name__, name, server.other_names.OF_SERVER)


class Server(Serving, metaclass=AnsweredType):
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
        sampling_prefer: "client" asks the provider only if the client cannot answer the question, "server" always.
        tool_search: offer a search and a call in place of the list of tools; see
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/tool-search.md.
        http: how the server is served over HTTP; see https://github.com/trio-mcp/trio-mcp/blob/main/docs/deployment.md.
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

    def _own_lifespan(self) -> Callable[[], AbstractAsyncContextManager[object]] | None:
        return None if self._lifespan is None else partial(self._lifespan, self)

    def __repr__(self) -> str:
        return f"<Server {self.identity.name} {self.identity.version} tools={len(self.tools)}>"


Lifespan: TypeAlias = Callable[[Server], AbstractAsyncContextManager[object]]
"""A function that takes the server and returns an async context manager, as `@asynccontextmanager` makes one."""


if not TYPE_CHECKING:
    # FastMCP has its class in a module of this name.
    __getattr__ = hinting(__name__, "FastMCP")
