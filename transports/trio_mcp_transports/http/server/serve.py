"""Serving the HTTP application in this process: the server's end of the transports `http`, `sse` and `websocket`."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Literal

import trio

from trio_mcp.checks import check_port, check_seconds
from trio_mcp.errors import ConfigurationError
from trio_mcp.http import Authenticate, HttpLimits, HttpOptions, Tls
from trio_mcp.http.hosts import LOOPBACK
from trio_mcp.logs import peer_logger
from trio_mcp.session import SharedServer
from trio_mcp.storage import EventStore

from ...hypercorn.config import GuardedConfig, guarded_config
from ...hypercorn.serve import serve_asgi
from ...systemd import UNIX_HOST, activated_sockets, host_of, notify
from .app import McpApp
from .paths import SSE_PATH
from .settings import served_options

logger = peer_logger("trio_mcp.http")


async def serve_http(
    server: SharedServer,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
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
    event_store: EventStore | None = None,
    drain: float = 10.0,
    scheme: Literal["http", "ws"] = "http",
    announce: bool = True,
    signals: bool = True,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve over Streamable HTTP and WebSocket, in this process, until SIGTERM, SIGINT or SIGHUP; `serve_asgi` says how it ends.

    What is not given is as the server has it (`Server(http=HttpOptions(...))`). So its authentication can be replaced here, but
    not be dropped.

    Sockets that systemd passes to this process (socket activation) are listened on in place of `host` and `port`, and systemd is
    notified when the server is ready and when it stops.

    Args:
        host: the address to listen on. Any but loopback requires `allowed_hosts`, the host names that clients use.
        path, sse_path, message_path, authenticate, limits, event_store: see `asgi_app`.
        tls, root_path, trusted_proxies, access_log: see `HttpOptions`.
        drain: how many seconds the shutdown may take after the signal. Running calls may continue for 70% of it; then they are
            cancelled and their callers receive an error.
        scheme: the scheme of the printed URLs; both HTTP and WebSocket are always served.
        announce: whether to print the server's URLs to stderr.
        signals: whether to handle SIGTERM, SIGINT and SIGHUP; False for a server inside a larger program.
        task_status: started with the server's URLs; those of HTTP+SSE come last.

    Raises:
        OSError: the port is in use, or the address does not belong to this machine.
        ConfigurationError: the certificate or its key cannot be used, or systemd passed no listening socket.
        ValueError: the server would be open to the network without `allowed_hosts`; or an option cannot have that value.
        TypeError: an option is of the wrong type.
        Exception: what the server's lifespan raised, at its start, while serving (which it ends) or at its end.
    """
    check_port("port", port)
    check_seconds("drain", drain, finite=True)
    options = served_options(
        server,
        path=path,
        sse_path=sse_path,
        message_path=message_path,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        authenticate=authenticate,
        limits=limits,
        tls=tls,
        root_path=root_path,
        trusted_proxies=trusted_proxies,
        access_log=access_log,
    )
    if scheme == "ws" and options.path is None:
        raise ValueError("WebSocket is served under `path`, which may not be None")
    check_tls(options.tls)
    sockets = activated_sockets()
    check_reachable(host, sockets, options)
    app = McpApp(server, options, event_store)
    app.raises_failure = True
    entrances = ((scheme, options.path), ("http", options.sse_path))
    endpoints = [(kind, entrance) for kind, entrance in entrances if entrance is not None]
    name = server.identity.name if announce else None
    calls, clean_up = drain * CALL_SHARE_OF_DRAIN, drain * CLEAN_UP_SHARE_OF_DRAIN
    try:
        await serve_asgi(
            app,
            host=host,
            port=port,
            sockets=sockets,
            drain=calls + clean_up,
            on_drain=partial(drain_app, app, calls, clean_up),
            lifespan_seconds=server.lifespan_seconds,
            signals=signals,
            config=config_for(app, server, options.tls),
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


async def drain_app(app: McpApp, seconds: float, clean_up: float) -> None:
    """Drain an application, and tell systemd."""
    notify("STOPPING=1")
    await app.drain(seconds, clean_up)


def check_reachable(host: str, sockets: Sequence[socket.socket] | None, options: HttpOptions) -> None:
    """Raise `ValueError` if the server would be open to the network without the names of its hosts."""
    # Without names a page of any site could reach it by DNS rebinding (S-50).
    if options.allowed_hosts:
        return
    hosts = [host] if sockets is None else [host_of(each) for each in sockets]
    for each in hosts:
        if each not in (*LOOPBACK, "::1", UNIX_HOST):
            raise ValueError(
                f"listening on {each} opens the server to the network: name the hosts it is reached by in allowed_hosts"
            )


def check_tls(tls: Tls | None) -> None:
    """Raise `ConfigurationError` if the files cannot be used; else hypercorn would, from within a nursery."""
    if tls is None:
        return
    for file in (tls.certfile, tls.keyfile):
        if file is not None:
            try:
                with open(file, "rb"):
                    pass
            except OSError as error:
                raise ConfigurationError(f"TLS: {file} cannot be read: {error.strerror}") from None
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            tls.certfile, tls.keyfile, password=tls.password or ""
        )
    except (ssl.SSLError, ValueError) as error:
        named = tls.certfile if tls.keyfile is None else f"{tls.certfile} with the key {tls.keyfile}"
        raise ConfigurationError(f"TLS: {named} cannot be used: {error}") from None


def config_for(app: McpApp, server: SharedServer, tls: Tls | None) -> GuardedConfig:
    config = guarded_config(
        max_websocket_message=app.limits.body,
        memory=server.options.memory,
        certfile=None if tls is None else tls.certfile,
        # Hypercorn wants both to speak TLS.
        keyfile=None if tls is None else tls.keyfile or tls.certfile,
    )
    config.keyfile_password = None if tls is None else tls.password
    return config


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
        notify("READY=1")
        self._task_status.started(urls)


CALL_SHARE_OF_DRAIN = 0.7
CLEAN_UP_SHARE_OF_DRAIN = 0.2
"""The parts of the drain time in which calls may end by themselves, and then unwind and be answered. The rest is for writing."""


serve_sse = partial(serve_http, path=None, sse_path=SSE_PATH)
"""As `serve_http`, without Streamable HTTP unless a `path` is given."""

serve_websocket = partial(serve_http, scheme="ws")
"""As `serve_http`: the same host, port and path serve both."""
