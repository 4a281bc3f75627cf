"""`asgi_app`: a server as an application for an ASGI server, or to be mounted in another application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Unpack, overload

from trio_mcp.base.checks import check_keywords, check_seconds
from trio_mcp.base.logs import peer_logger
from trio_mcp.http import Tls
from trio_mcp.session import SharedServer

from .app import McpApp
from .by_path import HttpKeywords, McpApps, apps_by_path, served_options

logger = peer_logger("trio_mcp.http")

DRAIN: Final = 10.0
"""Seconds that running calls have to end."""


@overload
def asgi_app(server: SharedServer, *, drain: float | None = DRAIN, **options: Unpack[HttpKeywords]) -> McpApp: ...


@overload
def asgi_app(
    server: Mapping[str, SharedServer], *, drain: float | None = DRAIN, **options: Unpack[HttpKeywords]
) -> McpApps: ...


def asgi_app(
    server: SharedServer | Mapping[str, SharedServer], *, drain: float | None = DRAIN, **options: Unpack[HttpKeywords]
) -> McpApp | McpApps:
    """Return an ASGI application that serves `server`, over HTTP and WebSocket, on Trio or on asyncio: `uvicorn module:app`.

    Options that are not given are those of the server (`Server(http=HttpOptions(...))`). So its authentication can be
    replaced here, but not dropped.

    Args:
        server: or several, by the path prefixes below which they are served: `{"/shop": shop, "/notes": notes}` serves the first
            at `/shop/mcp`. Each has its own options; those given here replace them in all of them.
        path: the path of Streamable HTTP and WebSocket, below the one where the application is mounted: with
            `Mount("/api", asgi_app(server))` clients use `/api/mcp`. None disables them; by default "/mcp".
        sse_path: the path of the streams of HTTP+SSE (2024-11-05), for clients that support nothing newer.
        message_path: the path to which clients of HTTP+SSE post their messages; by default "/message".
        allowed_hosts: the host names that clients use (`mcp.example.com`); by default loopback names only.
        allowed_origins: web sites whose pages may call the server and read its responses (`https://app.example.com`).
        authenticate: an async function, called for every request: takes the headers and returns the principal (the caller's
            name), or a `Caller` with scopes and claims, or None to reject the request. It has 10 seconds. See `McpApp.caller_of`.
        limits: see `HttpLimits`.
        root_path, trusted_proxies, metrics, access_log: see `HttpOptions`.
        event_store: stores the messages of legacy streams for clients that resume them; by default in memory.
        drain: on an asyncio server, the seconds that running calls have to end after SIGTERM or SIGINT, which are handled in
            front of that server. None leaves signals alone.

    It runs on ASGI servers of Trio and of asyncio. Mounted in another application, which does not pass lifespan events on, it
    starts at its first request; or run `McpApp.lifespan` in the lifespan of that application.

    Raises:
        ValueError: two paths are the same, or one is not a path; or all are disabled; or no request could match an allowed
            host or origin; or several servers differ in what they share, as `trusted_proxies`.
        TypeError: `authenticate` is not an async function, or an option is unknown or of the wrong type.
    """
    check_keywords(options, asgi_app, "asgi_app()")
    if drain is not None:
        check_seconds("drain", drain, finite=True, hint="None leaves signals alone")
    app = make_app(server, options)
    app.drain_seconds = drain
    if app.options.tls is not None:
        logger.warning(
            "the server's `tls` is for serve_http: give the ASGI server the files, as `hypercorn --certfile` does"
        )
    return app


def make_app(
    server: SharedServer | Mapping[str, SharedServer], options: HttpKeywords, tls: Tls | None = None
) -> McpApp | McpApps:
    """Return the application of one server or several; see `asgi_app`."""
    if isinstance(server, Mapping):
        return apps_by_path(server, options, tls)
    return McpApp(server, served_options(server, options, tls), options.get("event_store"))
