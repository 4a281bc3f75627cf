"""How a server is served over HTTP, and `@server.route`: its custom routes beside MCP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from .. import server
from .registration import Registration
from .registry import Registry

if TYPE_CHECKING:
    from ..http import HttpHandler, HttpOptions, HttpRoute

HttpHandlerT = TypeVar("HttpHandlerT", bound="HttpHandler")


class Routing(Registration):
    """The members of a server that say how it is served over HTTP."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._http: HttpOptions | None = None
        self._http_routes: list[HttpRoute] = []
        """Those that were added by `route`; shared with copies."""

    def _take_http(self, http: HttpOptions | None) -> None:
        """Take the options of the author. Raises `TypeError` if they are something else."""
        if http is not None:
            self._http = server.http_settings.check_http(http)
            if self._asyncio:
                self._http = server.http_settings.on_asyncio(self._http)

    @property
    def http(self) -> HttpOptions | None:
        """How the server is served over HTTP, with its custom routes and those of mounted servers; None for the defaults."""
        routes = [*self._http_routes, *mounted_routes(self._registry)]
        return server.http_settings.with_routes(self._http, routes) if routes else self._http

    def route(
        self,
        path: str,
        *,
        methods: Sequence[str] = ("GET",),
        public: bool = False,
        max_body: int | None = None,
        timeout: float | None = None,
        asyncio: bool | None = None,
    ) -> Callable[[HttpHandlerT], HttpHandlerT]:
        """Register an async function as a custom HTTP route, beside MCP: `@server.route("/webhook", methods=["POST"])`.

        The function takes a `trio_mcp.HttpRequest` and returns a `HttpResponse`. Host, Origin and credentials are checked as for
        MCP. In a server in which this one is mounted the path is `/prefix/path`.

        Args:
            path: below the prefix under which the server is reached; an exact path.
            methods: a route for GET takes HEAD too.
            public: skip these checks: anyone who can reach the port may call it.
            max_body: bytes of a request's body; by default 1 MiB.
            timeout: seconds for the function; by default 30.
            asyncio: run it on asyncio; by default as the server says.

        Raises:
            TypeError: the function is not async, or an option is of the wrong type.
            ValueError: the path is that of MCP, of `/health` or `/ready`, or of another route; or it is not a path.
            RuntimeError: the server is being served.
        """

        def add(handler: HttpHandlerT) -> HttpHandlerT:
            self._check_not_served("a route")
            settings = server.http_settings
            body = settings.body_on_asyncio(handler) if (self._asyncio if asyncio is None else asyncio) else handler
            route = settings.make_route(path, body, methods, public=public, max_body=max_body, timeout=timeout)
            self._check_routes([route])
            self._http_routes.append(route)
            return handler

        return add

    def _check_routes(self, routes: Sequence[HttpRoute]) -> None:
        """Raise `ValueError` if custom routes collide with a path of this server."""
        if routes:
            server.http_settings.with_routes(self.http, routes)


def routes_below(prefix: str, mounted: object) -> list[HttpRoute]:
    """Return the custom routes of a server, and of those that are mounted in it, as they are served below a prefix."""
    routes: Sequence[HttpRoute] = getattr(getattr(mounted, "http", None), "routes", ())
    return [route.below(prefix) for route in routes]


def mounted_routes(registry: Registry) -> list[HttpRoute]:
    """Return the custom routes of all servers that are mounted, however deep."""
    return [route for mount in registry.mounts for route in routes_below(mount.prefix, mount.server)]
