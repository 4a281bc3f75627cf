"""Serving the custom routes of a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Never, cast

import trio

from trio_mcp.http import HttpRequest, HttpResponse, HttpRoute
from trio_mcp.logs import RepeatedRecords, peer_logger
from trio_mcp.session import Service

from ...asgi.access import HttpRejection
from ...asgi.failures import log_failures
from ...asgi.messages import AuthorizedRequest, Scope, read_body, root_of, route_of, routes_of

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
    services = service.calls
    for prefix in route.mounts:
        if prefix not in services.mounted:
            return None
        services = services.mounted[prefix]
    return services.state


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
