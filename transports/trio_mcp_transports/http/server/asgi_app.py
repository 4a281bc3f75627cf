"""`asgi_app`: a server as an application for an ASGI server, or to be mounted in another application."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

from trio_mcp.http import Authenticate, HttpLimits
from trio_mcp.logs import peer_logger
from trio_mcp.session import SharedServer
from trio_mcp.storage import EventStore

from .app import McpApp
from .settings import served_options

logger = peer_logger("trio_mcp.http")


def asgi_app(
    server: SharedServer,
    *,
    path: str | EllipsisType | None = ...,
    sse_path: str | None = None,
    message_path: str | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    authenticate: Authenticate | None = None,
    limits: HttpLimits | None = None,
    root_path: str | None = None,
    trusted_proxies: Sequence[str] = (),
    access_log: bool | None = None,
    event_store: EventStore | None = None,
) -> McpApp:
    """Return an ASGI application that serves `server` at `path`, over HTTP and WebSocket: `hypercorn -k trio module:app`.

    What is not given is as the server has it (`Server(http=HttpOptions(...))`). So its authentication can be replaced here, but
    not be dropped.

    Args:
        path: the path of Streamable HTTP and WebSocket, below the one where the application is mounted: with
            `Mount("/api", asgi_app(server))` clients use `/api/mcp`. None disables them; by default "/mcp".
        sse_path: the path of the streams of HTTP+SSE (2024-11-05), for clients that support nothing newer; None disables it.
        message_path: the path to which clients of HTTP+SSE post their messages; by default "/message".
        allowed_hosts: the host names that clients use (`mcp.example.com`); by default loopback names only.
        allowed_origins: web sites whose pages may call the server (`https://app.example.com`).
        authenticate: an async function, called for every request: takes the headers and returns the principal (the caller's
            name), or a `Caller` with scopes and claims, or None to reject the request. It has 10 seconds. See `McpApp.caller_of`.
        limits: see `HttpLimits`.
        root_path, trusted_proxies, access_log: see `HttpOptions`.
        event_store: stores the messages of legacy streams for clients that resume them; by default in memory.

    It needs an ASGI server that runs on Trio; on others it fails at startup. Mounted in another application, which does not pass
    lifespan events on, it starts at its first request; or run `McpApp.lifespan` in the lifespan of that application.

    Raises:
        ValueError: two paths are the same, or one is not a path; or all are disabled; or no request could match an allowed
            host or origin.
        TypeError: `authenticate` is not callable, or an option is of the wrong type.
    """
    options = served_options(
        server,
        path=path,
        sse_path=sse_path,
        message_path=message_path,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        authenticate=authenticate,
        limits=limits,
        root_path=root_path,
        trusted_proxies=trusted_proxies,
        access_log=access_log,
    )
    if options.tls is not None:
        logger.warning(
            "the server's `tls` is for serve_http: give the ASGI server the files, as `hypercorn --certfile` does"
        )
    return McpApp(server, options, event_store)
