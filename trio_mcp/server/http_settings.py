"""How a server is served over HTTP, as its author says. Loaded when it is first used: most servers say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..checks import check_instance
from ..http import HttpOptions, HttpRoute


def check_http(http: object) -> HttpOptions:
    """Return `http` if it is a `HttpOptions`. A dict of options is a frequent mistake."""
    return check_instance("http", http, HttpOptions, "HttpOptions(authenticate=...)")


def with_routes(http: HttpOptions | None, routes: Sequence[HttpRoute]) -> HttpOptions:
    """Return options with these routes added. Raises `ValueError` if two paths collide."""
    own = HttpOptions() if http is None else http
    return replace(own, routes=(*own.routes, *routes))
