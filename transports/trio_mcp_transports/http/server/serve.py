"""Serving the HTTP application in this process: the server's end of the transports `http`, `sse` and `websocket`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import trio

from trio_mcp.checks import check_port, check_seconds
from trio_mcp.errors import ConfigurationError
from trio_mcp.logs import peer_logger
from trio_mcp.session import SharedServer
from trio_mcp.storage import EventStore

from ...asgi.access import LOOPBACK, Access
from ...asgi.authentication import Authenticate
from ...asgi.limits import HttpLimits
from ...hypercorn.config import guarded_config
from ...hypercorn.serve import serve_asgi
from .app import McpApp
from .paths import MESSAGE_PATH, SSE_PATH, Paths

logger = peer_logger("trio_mcp.http")


async def serve_http(
    server: SharedServer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    path: str | None = "/mcp",
    sse_path: str | None = None,
    message_path: str = MESSAGE_PATH,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    authenticate: Authenticate | None = None,
    limits: HttpLimits | None = None,
    event_store: EventStore | None = None,
    drain: float = 10.0,
    scheme: Literal["http", "ws"] = "http",
    announce: bool = True,
    signals: bool = True,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve over Streamable HTTP and WebSocket, in this process, until SIGTERM, SIGINT or SIGHUP; `serve_asgi` says how it ends.

    Args:
        host: the address to listen on. Any but loopback requires `allowed_hosts`, the host names that clients use.
        path, sse_path, message_path, authenticate, event_store: see `asgi_app`.
        drain: how many seconds the shutdown may take after the signal. Running calls may continue for 70% of it; then they are
            cancelled and their callers receive an error.
        scheme: the scheme of the printed URLs; both HTTP and WebSocket are always served.
        announce: whether to print the server's URLs to stderr.
        signals: whether to handle SIGTERM, SIGINT and SIGHUP; False for a server inside a larger program.
        task_status: started with the server's URLs; those of HTTP+SSE come last.

    Raises:
        OSError: the port is in use, or the address does not belong to this machine.
        ValueError: the server would be open to the network without `allowed_hosts`; or an option cannot have that value.
        TypeError: an option is of the wrong type.
        Exception: what the server's lifespan raised, at its start, while serving (which it ends) or at its end.
    """
    check_port("port", port)
    check_seconds("drain", drain, finite=True)
    if scheme == "ws" and path is None:
        raise ValueError("WebSocket is served under `path`, which may not be None")
    # Without names a page of any site could reach it by DNS rebinding (S-50).
    if host not in (*LOOPBACK, "::1") and not allowed_hosts:
        raise ValueError(
            f"listening on {host} opens the server to the network: name the hosts it is reached by in allowed_hosts"
        )
    paths, access = Paths(path, sse_path, message_path), Access(allowed_hosts, allowed_origins)
    app = McpApp(server, paths, access, authenticate, limits, event_store)
    app.raises_failure = True
    endpoints = [(kind, entrance) for kind, entrance in ((scheme, path), ("http", sse_path)) if entrance is not None]
    name = server.identity.name if announce else None
    calls, clean_up = drain * CALL_SHARE_OF_DRAIN, drain * CLEAN_UP_SHARE_OF_DRAIN
    try:
        await serve_asgi(
            app,
            host=host,
            port=port,
            drain=calls + clean_up,
            on_drain=partial(app.drain, calls, clean_up),
            lifespan_seconds=server.lifespan_seconds,
            signals=signals,
            config=guarded_config(max_websocket_message=app.limits.body, memory=server.options.memory),
            task_status=Announcement(endpoints, name, task_status),
        )
    except Exception:
        # What hypercorn makes of it is an error of its protocol with the application.
        if app.failure is None:
            raise
    if isinstance(app.failure, ConfigurationError):
        # The message names the cause and the cure; how it was noticed is of no use to who started the server.
        raise app.failure.with_traceback(None)
    if app.failure is not None:
        raise app.failure


@dataclass
class Announcement(trio.TaskStatus[list[str]]):
    """Tells the URLs of the endpoints when the addresses are known.

    Args:
        endpoints: scheme and path of each.
        name: of the server, printed to stderr; None prints nothing.
        task_status: started with the URLs.
    """

    _endpoints: Sequence[tuple[str, str]]
    _name: str | None
    _task_status: trio.TaskStatus[list[str]]

    def started(self, value: list[str] | None = None) -> None:
        ports = [url.partition(" ")[0].removeprefix("http") for url in value or []]
        urls = [scheme + port + path for scheme, path in self._endpoints for port in ports]
        if self._name is not None:
            sys.stderr.write(f"{self._name} serves MCP at {', '.join(urls)}\n")
        self._task_status.started(urls)


CALL_SHARE_OF_DRAIN = 0.7
CLEAN_UP_SHARE_OF_DRAIN = 0.2
"""The parts of the drain time in which calls may end by themselves, and then unwind and be answered. The rest is for writing."""


serve_sse = partial(serve_http, path=None, sse_path=SSE_PATH)
"""As `serve_http`, without Streamable HTTP unless a `path` is given."""

serve_websocket = partial(serve_http, scheme="ws")
"""As `serve_http`: the same host, port and path serve both."""
