"""How a server is served over HTTP, as its author says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.checks import check_instance
from ..http import HttpHandler, HttpOptions, HttpRoute
from ..http.routes import MAX_BODY, TIMEOUT, check_methods


def check_http(http: object) -> HttpOptions:
    """Return `http` if it is a `HttpOptions`. A dict of options is a frequent mistake."""
    return check_instance("http", http, HttpOptions, "HttpOptions(authenticate=...)")


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
