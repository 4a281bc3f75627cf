"""Serving the custom routes of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, NamedTuple, Never, TypeAlias, cast

import trio

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.http import HttpOptions, HttpRequest, HttpResponse, HttpRoute
from trio_mcp.session import Service
from trio_mcp.session.calls.services import CallOffers

from ...asgi.access import HttpRejection
from ...asgi.authentication import log_failures
from ...asgi.messages import AuthorizedRequest, Headers, Scope, Send, read_body, root_of, route_of, routes_of
from .lifespan import WrongEventLoop, check_event_loop

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

    def public(self, scope: Scope) -> HttpRoute | None:
        """Return the route for a request, if it is one that anybody may call."""
        return next((route for route in self._at(scope) if route.public and scope["method"] in route.methods), None)

    def find(self, scope: Scope) -> HttpRoute | None:
        """Return the route for a request; None if there is none at its path.

        Raises:
            HttpRejection: 405, there is one, for other methods.
        """
        routes = self._at(scope)
        for route in routes:
            if scope["method"] in route.methods:
                return route
        if not routes:
            return None
        allowed = ", ".join(sorted(frozenset[str]().union(*(route.methods for route in routes))))
        raise HttpRejection(405, f"This path takes {allowed} only.", [(b"allow", allowed.encode())])

    def _at(self, scope: Scope) -> Sequence[HttpRoute]:
        if not self._routes:
            return ()
        return next((self._routes[path] for path in routes_of(scope) if path in self._routes), ())

    async def serve(self, route: HttpRoute, service: Service, incoming: AuthorizedRequest) -> None:
        """Read a request, run the function of its route and send the response. A cancel ends the function.

        Raises:
            HttpRejection: 413, 408, 400 or 503, its body is refused; 500 or 503, the function failed or took too long.
        """
        with service.open_account(incoming.peer) as account:
            announced = incoming.peer.headers.get("content-length")
            body = await read_body(incoming.receive, route.max_body, self._body_seconds, announced, account)
            # Counted while the function runs, also a body that came in one piece.
            account.draw(max(len(body) - account.drawn, 0))
            with service.use_state():
                response = await self._run(route, request_of(incoming, body, state_of(service, route), route.prefix))
        await send_response(incoming, response)

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
    offers: CallOffers = service.offers
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
    scope, peer = incoming.scope, incoming.peer
    client = scope.get("client")
    return HttpRequest(
        method=scope["method"],
        path=route_of(scope).removeprefix(prefix),
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=MappingProxyType(dict(peer.headers)),
        body=body,
        caller=peer.caller,
        client=None if client is None else client[0],
        scheme=scope.get("scheme", "http"),
        host=peer.headers.get("host", ""),
        root_path=root_of(scope) + prefix,
        state=state,
    )


async def send_response(incoming: AuthorizedRequest, response: HttpResponse) -> None:
    """Send the response of a route."""
    content = response.content
    is_empty = response.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
    headers = response.lines if is_empty else [(b"content-length", b"%d" % len(content)), *response.lines]
    await incoming.send({"type": "http.response.start", "status": response.status, "headers": headers})
    body = b"" if is_empty or incoming.scope["method"] == "HEAD" else content
    await incoming.send({"type": "http.response.body", "body": body})


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
    """Return that the process serves; see `Probe`. Raises `WrongEventLoop` where no call ever can be."""
    check_event_loop()
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
        # A probe may come through the proxy or past it.
        root = options.root_path.rstrip("/")
        self._probes |= {root + path: probe for path, probe in self._probes.items()}

    async def serve(self, scope: Scope, send: Send) -> bool:
        """Answer a request if it is a probe's; return whether it is."""
        probe = next((self._probes[path] for path in routes_of(scope) if path in self._probes), None)
        if probe is None:
            return False
        try:
            status, word = probe() if scope["method"] in ("GET", "HEAD") else (405, b"GET")
        except WrongEventLoop as error:
            status, word = 503, str(error).encode()
        headers = [*HEADERS, (b"content-length", b"%d" % len(word))]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else word})
        return True
