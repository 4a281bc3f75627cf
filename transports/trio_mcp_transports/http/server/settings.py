"""What a server says of serving it over HTTP, and what the serving call says: together they are how it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import EllipsisType

from trio_mcp.http import Authenticate, HttpLimits, HttpOptions, Tls


def served_options(
    server: object,
    *,
    path: str | EllipsisType | None = ...,
    sse_path: str | None = None,
    message_path: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    authenticate: Authenticate | None = None,
    limits: HttpLimits | None = None,
    tls: Tls | None = None,
    root_path: str | None = None,
    trusted_proxies: Sequence[str] = (),
    access_log: bool | None = None,
) -> HttpOptions:
    """Return how a server is served.

    What was not given is as the server has it. So the authentication of a server can be replaced, and not be dropped.

    Raises:
        ValueError, TypeError: see `HttpOptions`.
    """
    given: Mapping[str, object | None] = {
        "sse_path": sse_path,
        "message_path": message_path,
        "allowed_hosts": allowed_hosts or None,
        "allowed_origins": allowed_origins or None,
        "authenticate": authenticate,
        "limits": limits,
        "tls": tls,
        "root_path": root_path,
        "trusted_proxies": trusted_proxies or None,
        "access_log": access_log,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if path is not ...:
        changes["path"] = path
    return replace(options_of(server), **changes)  # type: ignore[arg-type]  # HttpOptions checks each


def options_of(server: object) -> HttpOptions:
    """Return what a server says; a proxy, or a server of another project, has nothing to say."""
    own = getattr(server, "http", None)
    return own if isinstance(own, HttpOptions) else HttpOptions()
