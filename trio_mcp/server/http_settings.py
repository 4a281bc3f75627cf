"""How a server is served over HTTP, as its author says."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from .. import server
from ..base.checks import check_instance
from ..http import HttpHandler, HttpOptions, HttpRoute
from ..http.routes import MAX_BODY, TIMEOUT, check_handler, check_methods

if TYPE_CHECKING:
    from ..http.authenticator import Authenticate


def check_http(http: object) -> HttpOptions:
    """Return `http` if it is a `HttpOptions`. A dict of options is a frequent mistake."""
    return check_instance("http", http, HttpOptions, "HttpOptions(authenticate=...)")


def on_asyncio(http: HttpOptions) -> HttpOptions:
    """Return options whose `authenticate` runs on asyncio, if it is a function; of an object only its functions do."""
    with_functions = getattr(http.authenticate, "with_functions", None)
    if with_functions is not None:
        return replace(http, authenticate=with_functions(server.asyncio_bodies.on_asyncio))
    if not inspect.iscoroutinefunction(http.authenticate):
        return http
    return replace(http, authenticate=cast("Authenticate", server.asyncio_bodies.on_asyncio(http.authenticate)))


def body_on_asyncio(handler: HttpHandler) -> HttpHandler:
    """Return the function of a route that runs on asyncio. Raises `TypeError` if it is not async."""
    check_handler(handler)
    return cast("HttpHandler", server.asyncio_bodies.on_asyncio(handler))


def with_routes(http: HttpOptions | None, routes: Sequence[HttpRoute]) -> HttpOptions:
    """Return options with these routes added. Raises `ValueError` if two paths collide."""
    own = HttpOptions() if http is None else http
    return replace(own, routes=(*own.routes, *routes))


def make_route(
    path: str,
    handler: HttpHandler,
    methods: Sequence[str],
    *,
    public: bool,
    max_body: int | None,
    timeout: float | None,
) -> HttpRoute:
    """Return a route; None stands for the usual limits. Raises what `HttpRoute` does."""
    body = MAX_BODY if max_body is None else max_body
    seconds = TIMEOUT if timeout is None else timeout
    return HttpRoute(path, handler, check_methods(methods), public, body, seconds)
