"""Serving the custom routes of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Final, Never, TypeAlias, cast

import trio

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.http import HttpOptions, HttpRequest, HttpResponse, HttpRoute
from trio_mcp.http.routes import other_spelling
from trio_mcp.session import Service

from ...asgi.access import Headers, HttpRejection
from ...asgi.authentication import log_failures
from ...asgi.cors import is_preflight
from ...asgi.requests import AuthorizedRequest, Request, read_body
from ...asgi.responses import KnownResponse

logger = peer_logger("trio_mcp.http")


class CustomRoutes:
    """The custom routes of one application.

    Args:
        body_seconds: how long the body of a request may take.
        records: of functions that fail, which every request may show again.

    Attributes:
        has_public: anybody may call one of them.
    """

    def __init__(self, routes: Iterable[HttpRoute], body_seconds: float, records: RepeatedRecords) -> None:
        self._routes: dict[str, list[HttpRoute]] = {}
        for route in routes:
            self._routes.setdefault(route.whole_path, []).append(route)
        self.has_public = any(route.public for each in self._routes.values() for route in each)
        self._body_seconds = body_seconds
        self._records = records

    def public(self, request: Request) -> HttpRoute | None:
        """Return the route for a request, if it is one that anybody may call."""
        return next((route for route in self._at(request) if route.public and request.method in route.methods), None)

    def find(self, request: Request) -> HttpRoute | None:
        """Return the route for a request; None if there is none at its path, or for other methods only."""
        return next((route for route in self._at(request) if request.method in route.methods), None)

    def methods(self, request: Request) -> Sequence[str]:
        """Return the methods for which there are routes at the path of a request."""
        return sorted(frozenset[str]().union(*(route.methods for route in self._at(request))))

    def _at(self, request: Request) -> Sequence[HttpRoute]:
        if not self._routes:
            return ()
        return next((self._routes[path] for path in request.routes if path in self._routes), ())

    async def serve(self, route: HttpRoute, service: Service, incoming: AuthorizedRequest) -> KnownResponse:
        """Read a request, run the function of its route and return the response. A cancel ends the function.

        Raises:
            HttpRejection: 413, 408, 400 or 503, its body is refused; 500 or 503, the function failed or took too long.
        """
        with service.open_account(incoming.peer) as account:
            body = await read_body(incoming.request, route.max_body, self._body_seconds, account)
            # Counted while the function runs, also a body that came in one piece.
            account.draw(max(len(body) - account.drawn, 0))
            response = await self._run(route, request_of(incoming, body, state_of(service, route), route.prefix))
        return KnownResponse(response.status, response.content, response.lines, content_type=None)

    async def _run(self, route: HttpRoute, request: HttpRequest) -> HttpResponse:
        response: object = None
        with trio.move_on_after(route.timeout) as scope:
            with log_failures(f"the route {route.name} failed", self._records):
                # The type of the state is a matter between the route and the lifespan of its server.
                response = await route.handler(cast("HttpRequest[Never]", request))
                if not isinstance(response, HttpResponse):
                    raise TypeError(f"the route {route.name} returned {type(response).__name__}, not a HttpResponse")
        if scope.cancelled_caught:
            self._records.log(f"the route {route.name} took longer than its timeout of %g seconds", route.timeout)
            raise HttpRejection(503, f"The response was not ready within {route.timeout:g} seconds.")
        if not isinstance(response, HttpResponse):
            raise HttpRejection(500, "Something is wrong at the server; its log has the details.")
        return response


def state_of(service: Service, route: HttpRoute) -> object:
    """Return what the lifespan of the server of a route has opened; None if it is no longer mounted."""
    offers = service.offers.calls
    for prefix in route.mounts:
        if prefix not in offers.mounted:
            return None
        offers = offers.mounted[prefix]
    return offers.state


def request_of(incoming: AuthorizedRequest, body: bytes, state: object, prefix: str) -> HttpRequest:
    """Return a request as the function of its route gets it.

    Args:
        prefix: where the server of the route is mounted.
    """
    request, peer = incoming.request, incoming.peer
    return HttpRequest(
        method=request.method,
        path=request.route.removeprefix(prefix),
        query=request.query,
        headers=MappingProxyType(dict(peer.headers)),
        body=body,
        caller=peer.caller,
        client=None if request.client is None else request.client[0],
        scheme=request.scheme,
        host=peer.headers.get("host", ""),
        root_path=request.root + prefix,
        state=state,
    )


# Where the HTTP application is reached.

SSE_PATH: Final = "/sse"
"""The usual one of the streams of HTTP+SSE."""


class Paths(NamedTuple):
    """Where the application is reached."""

    streamable: str | None
    sse: str | None
    messages: str

    @property
    def endpoints(self) -> list[str]:
        """Those that a client is given."""
        return [path for path in (self.streamable, self.sse) if path is not None]


def below(prefix: str, path: str) -> str:
    """Return a path of a server that is served below a prefix."""
    return prefix if prefix and path == "/" else prefix + path


def not_found_at(endpoints: Sequence[str], root: str) -> str:
    """What is said at another path of an application of several servers that is mounted below `root`."""
    return f"There is nothing here; the MCP endpoints are {', '.join(root + path for path in endpoints)}."


def not_found_text(paths: Paths, root: str) -> str:
    """What is said at another path of an application that is mounted below `root`."""
    return f"There is nothing here; the MCP endpoint is {' or '.join(root + path for path in paths.endpoints)}."


def no_websocket(paths: Paths, root: str) -> str:
    """The rejection of a WebSocket on another path of an application that is mounted below `root`."""
    if paths.streamable is None:
        return f"This server speaks no WebSocket; the MCP endpoint is {root}{paths.sse}."
    return f"There is no WebSocket here; it is at {root}{paths.streamable}."


# `/health` and `/ready`: probes for supervisors and load balancers, answered for any Host and without credentials.

Probe: TypeAlias = Callable[[], tuple[int, bytes]]
"""Returns a status and a word."""

HEADERS: Final[Headers] = ((b"content-type", b"text/plain"), (b"cache-control", b"no-store"))


def serving() -> tuple[int, bytes]:
    """Return that the process serves; see `Probe`."""
    return 200, b"ok"


class Probes:
    """The probes of one application; they open nothing and keep nothing.

    Args:
        ready: returns whether calls are taken, as a status and a word.
    """

    def __init__(self, options: HttpOptions, ready: Probe) -> None:
        self._probes: dict[str, Probe] = {}
        if options.health_path is not None:
            self._probes[options.health_path] = serving
        if options.ready_path is not None:
            self._probes[options.ready_path] = ready
        taken = {options.path, options.sse_path, *(route.whole_path for route in options.routes)}
        twins = {other_spelling(path): probe for path, probe in self._probes.items()}
        self._probes |= {path: probe for path, probe in twins.items() if path not in taken}
        # A probe may come through the proxy or past it.
        root = options.root_path.rstrip("/")
        self._probes |= {root + path: probe for path, probe in self._probes.items()}

    def find(self, request: Request) -> KnownResponse | None:
        """Return the response to a request, if it is a probe's."""
        probe = next((self._probes[path] for path in request.routes if path in self._probes), None)
        if probe is None:
            return None
        if is_preflight(request):
            return KnownResponse(204, headers=[(b"allow", b"GET, HEAD, OPTIONS")])
        if request.method not in ("GET", "HEAD"):
            return KnownResponse(405, b"GET", [*HEADERS, (b"allow", b"GET, HEAD")], content_type=None)
        status, word = probe()
        return KnownResponse(status, word, HEADERS, content_type=None)
