"""Serving the HTTP application in this process: the server's end of the transports `http`, `sse` and `websocket`."""

from __future__ import annotations

import logging
import socket
import ssl
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, Unpack

import trio

from trio_mcp.base.checks import check_keywords, check_port, check_seconds
from trio_mcp.base.logs import logs_json
from trio_mcp.base.regular_files import MAX_CONFIGURATION, read_regular
from trio_mcp.base.service_notices import notify
from trio_mcp.errors import ConfigurationError
from trio_mcp.http import Tls
from trio_mcp.http.options import LOOPBACK
from trio_mcp.session import SharedServer
from trio_mcp.session.options import WORKPLACE
from trio_mcp.session.transport import facts_of

from ...hypercorn.config import GuardedConfig, guarded_config
from ...hypercorn.connections import Connections, connections_of
from ...hypercorn.serve import serve_asgi
from ...systemd import UNIX_HOST, activated_sockets, host_of
from .app import McpApp
from .asgi_app import make_app
from .by_path import HttpKeywords, McpApps
from .routes import SSE_PATH, below

# The files of TLS: what is wrong with them, in words that OpenSSL does not have.

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
KEY = b"PRIVATE KEY-----"
"""The end of the lines that begin a key, of each kind."""
ENCRYPTED = (b"-----BEGIN ENCRYPTED", b"Proc-Type: 4,ENCRYPTED")


def check_tls(tls: Tls | None) -> None:
    """Raise `ConfigurationError` if the files cannot be used; else hypercorn would, from within a nursery."""
    if tls is None:
        return
    certificate = read(tls.certfile)
    key = certificate if tls.keyfile is None else read(tls.keyfile)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            tls.certfile, tls.keyfile, password=tls.password or ""
        )
    except (ssl.SSLError, ValueError) as error:
        named = tls.certfile if tls.keyfile is None else f"{tls.certfile} with the key {tls.keyfile}"
        is_other_key = getattr(error, "reason", None) == "KEY_VALUES_MISMATCH"
        why = None if is_other_key else reason(tls, certificate, key)
        raise ConfigurationError(f"TLS: {why or f'{named} cannot be used: {error}'}") from None


def read(file: str) -> bytes:
    """Return what is in a file. Raises `ConfigurationError`."""
    try:
        return read_regular(file, MAX_CONFIGURATION)
    except OSError as error:
        raise ConfigurationError(f"TLS: {file} cannot be read: {error.strerror}") from None


def reason(tls: Tls, certificate: bytes, key: bytes) -> str | None:
    """Return why OpenSSL rejects the files, as far as that can be seen in them; its own error may be just "PEM lib"."""
    if CERTIFICATE not in certificate:
        return f"{tls.certfile} has no certificate in PEM, which begins with {CERTIFICATE.decode()}"
    if KEY not in key:
        if tls.keyfile is None:
            return f"{tls.certfile} has no private key: name the file of the key too, with keyfile= or --keyfile"
        return f"{tls.keyfile} has no private key in PEM"
    if any(line in key for line in ENCRYPTED):
        state = "is not that of" if tls.password else "is needed for"
        return (
            f"the password {state} the key in {tls.keyfile or tls.certfile}: give it with password=, or to `trio-mcp serve` in "
            f"the variable TRIO_MCP_KEYFILE_PASSWORD"
        )
    return None


logger = logging.getLogger("trio_mcp.http")


async def serve_http(
    server: SharedServer | Mapping[str, SharedServer],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tls: Tls | None = None,
    drain: float = 10.0,
    scheme: Literal["http", "ws"] = "http",
    announce: bool = True,
    signals: bool = True,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[HttpKeywords],
) -> None:
    """Serve over Streamable HTTP and WebSocket, in this process, until SIGTERM, SIGINT or SIGHUP; `serve_asgi` says how it ends.

    Options that are not given are those of the server (`Server(http=HttpOptions(...))`). So its authentication can be
    replaced here, but not dropped.

    Sockets that systemd passes to this process (socket activation) are listened on in place of `host` and `port`, and systemd is
    notified when the server is ready and when it stops.

    Args:
        server: or several, by their path prefixes; see `asgi_app`.
        host: the address to listen on. Any but loopback requires `allowed_hosts`, the host names that clients use.
        tls: see `HttpOptions`.
        drain: how many seconds the shutdown may take after the signal. Running calls may continue for 70% of it; then they are
            cancelled and their callers receive an error.
        scheme: the scheme of the printed URLs; both HTTP and WebSocket are always served.
        announce: whether to print the server's URLs to stderr.
        signals: whether to handle SIGTERM, SIGINT and SIGHUP; False for a server inside a larger program.
        task_status: started with the server's URLs; those of HTTP+SSE come last.
        options: see `asgi_app`.

    Raises:
        OSError: the port is in use, or the address does not belong to this machine.
        ConfigurationError: the certificate or its key cannot be used, or systemd passed no listening socket.
        ValueError: the server would be open to the network without `allowed_hosts`; or an option cannot have that value.
        TypeError: an option is unknown or of the wrong type.
        Exception: what the server's lifespan raised, at its start, while serving (which it ends) or at its end.
    """
    check_keywords(options, serve_http, "serve_http()")
    check_port("port", port)
    check_seconds("drain", drain, finite=True)
    app = make_app(server, options, tls)
    check_endpoints(app, scheme)
    check_tls(app.options.tls)
    sockets = activated_sockets()
    opened = address_beyond_loopback(host, sockets)
    if opened is not None:
        check_reachable(opened, app)
    workplace = WORKPLACE.get()
    hand_over = 0.0 if workplace is None or workplace.hand_over is None else workplace.hand_over.seconds
    calls, clean_up = drain * CALL_SHARE_OF_DRAIN, drain * CLEAN_UP_SHARE_OF_DRAIN
    config = config_for(app)
    with failures_of(app):
        await serve_asgi(
            app,
            host=host,
            port=port,
            sockets=sockets,
            drain=hand_over + calls + clean_up,
            on_drain=partial(drain_app, app, calls, clean_up, connections_of(config)),
            lifespan_seconds=sum(facts_of(each.server).lifespan_seconds for each in app.apps.values()),
            signals=signals,
            config=config,
            task_status=Announcement(app, scheme, task_status, announce=announce, opened=opened),
        )


@contextmanager
def failures_of(app: McpApp | McpApps) -> Generator[None]:
    """Raise what ended the lifespan of an application, in place of what hypercorn makes of it."""
    app.raises_failure = True
    try:
        yield
    except Exception:
        # An error of its protocol with the application.
        if app.failure is None:
            raise
    if isinstance(app.failure, ConfigurationError):
        # The message names the cause and the cure; how it was noticed is of no use to who started the server.
        raise app.failure.with_traceback(None)
    if app.failure is not None:
        raise app.failure


async def drain_app(app: McpApp | McpApps, seconds: float, clean_up: float, connections: Connections) -> None:
    """Drain an application, and tell systemd. A process that was replaced lets its calls end before."""
    notify("STOPPING=1")
    workplace = WORKPLACE.get()
    hand_over = None if workplace is None else workplace.hand_over
    if hand_over is not None and hand_over.is_due():
        for each in app.apps.values():
            await each.hand_over(hand_over, connections)
    await app.drain(seconds, clean_up)


def check_endpoints(app: McpApp | McpApps, scheme: Literal["http", "ws"]) -> None:
    """Raise `ValueError` if a server has no endpoint for the scheme of the URLs."""
    if scheme == "ws" and any(each.options.path is None for each in app.apps.values()):
        raise ValueError("WebSocket is served under `path`, which may not be None")


def address_beyond_loopback(host: str, sockets: Sequence[socket.socket] | None) -> str | None:
    """Return an address that other machines can reach; None if only this one can reach the server."""
    hosts = [host] if sockets is None else [host_of(each) for each in sockets]
    return next((each for each in hosts if each not in (*LOOPBACK, "::1", UNIX_HOST)), None)


def check_reachable(opened: str, app: McpApp | McpApps) -> None:
    """Raise `ValueError` if a server would be open to the network without the names of its hosts."""
    for prefix, each in app.apps.items():
        # Without names a page of any site could reach it by DNS rebinding (S-50).
        if not each.options.allowed_hosts:
            whose = f" of the server at {prefix}" if prefix else ""
            raise ValueError(
                f"listening on {opened} opens the server to the network: name the hosts it is reached by in allowed_hosts{whose}"
            )


def config_for(app: McpApp | McpApps) -> GuardedConfig:
    """Return the settings of hypercorn; the application of each server has smaller limits."""
    apps, tls = app.apps.values(), app.options.tls
    memories = [each.server.options.memory for each in apps]
    config = guarded_config(
        max_websocket_message=max(each.limits.body for each in apps),
        # Connections are not those of one server. Servers with separate budgets get them from the budget of the process.
        memory=memories[0] if all(each is memories[0] for each in memories) else None,
        trusted_proxies=app.options.trusted_proxies,
        certfile=None if tls is None else tls.certfile,
        # Hypercorn wants both to speak TLS.
        keyfile=None if tls is None else tls.keyfile or tls.certfile,
    )
    config.keyfile_password = None if tls is None else tls.password
    return config


class Announcement(trio.TaskStatus[list[str]]):
    """Tells the URLs of the endpoints when the addresses are known.

    Args:
        scheme: of the URLs, but for those of HTTP+SSE.
        task_status: started with the URLs.
        announce: print them to stderr.
        opened: the address that other machines can reach; None if there is none.
    """

    def __init__(
        self,
        app: McpApp | McpApps,
        scheme: Literal["http", "ws"],
        task_status: trio.TaskStatus[list[str]],
        *,
        announce: bool,
        opened: str | None,
    ) -> None:
        self._apps = app.apps
        self._scheme = scheme
        self._task_status = task_status
        self._announce = announce
        self._opened = opened

    def started(self, value: list[str] | None = None) -> None:
        ports = [url.partition(" ")[0].removeprefix("http") for url in value or []]
        streamable: list[str] = []
        sse: list[str] = []
        for prefix, app in self._apps.items():
            own = [
                [f"{scheme}{port}{below(prefix, path)}" for port in ports] if path is not None else []
                for scheme, path in ((self._scheme, app.options.path), ("http", app.options.sse_path))
            ]
            streamable += own[0]
            sse += own[1]
            if self._announce:
                public = None if app.authentication is None else app.authentication.public_url
                announce_server(app.server.identity.name, [*own[0], *own[1]], public)
            if self._opened is not None and app.unknown:
                warn_unknown(self._opened, app.unknown)
        notify("READY=1")
        self._task_status.started([*streamable, *sse])


def warn_unknown(opened: str, commands: Sequence[str]) -> None:
    """Log that it is not known whether what is behind a proxy may be served without authentication."""
    logger.warning(
        "listening on %s opens what %s starts to the network without authentication, and it is not known whether that asks "
        "for some: pass authenticate= to the serving call if it does",
        opened,
        ", ".join(repr(command)[:200] for command in commands),
    )


def announce_server(name: str, urls: Sequence[str], public: str | None) -> None:
    """Write to stderr where a server is: a line for its user, or a record where all lines are JSON.

    Args:
        public: the URL for which tokens are issued: clients must connect to it, and not to another one of the same server.
    """
    text = f"{name} serves MCP at {', '.join(urls)}"
    if logs_json():
        logger.info("%s", text, extra={"fields": {"urls": [*urls], **({"resource": public} if public else {})}})
        return
    sys.stderr.write(f"{text}\n")
    if public is not None and public not in urls:
        sys.stderr.write(f"clients of {name} connect to {public}, which leads to it\n")


CALL_SHARE_OF_DRAIN = 0.7
CLEAN_UP_SHARE_OF_DRAIN = 0.2
"""The parts of the drain time in which calls may end by themselves, and then unwind and be answered. The rest is for writing."""


serve_sse = partial(serve_http, path=None, sse_path=SSE_PATH)
"""As `serve_http`, without Streamable HTTP unless a `path` is given."""

serve_websocket = partial(serve_http, scheme="ws")
"""As `serve_http`: the same host, port and path serve both."""
