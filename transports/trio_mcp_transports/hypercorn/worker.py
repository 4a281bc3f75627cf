"""Our connection in the place of hypercorn's own: the two names of hypercorn that are replaced.

`hypercorn.trio.run.worker_serve` accepts connections, with TLS, and awaits what the global name `TCPServer` of its module makes
of each. `install` sets that name to `serve_connection`, which serves the connections of our applications with `Connection` and
leaves those of any other application to hypercorn's own class.

The other name is the default of `Config.alpn_protocols`: it becomes HTTP/1.1 only, since nothing bounds what HTTP/2 costs in
hypercorn. A `Config` that sets its own protocols keeps them; its HTTP/2 connections are served by hypercorn's class.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, TypeAlias

import hypercorn.trio.run
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, LifespanState
from hypercorn.utils import parse_socket_addr

from trio_mcp.http import HttpOptions
from trio_mcp.http.options import address_of, caller_at

from ..asgi.adapter import Receive, Scope, Send
from ..asgi.authentication import log_failures
from ..asgi.forwarded import trusted
from ..asgi.responses import HttpApp
from .config import ALPN_PROTOCOLS, GuardedConfig, memory_of
from .connection import Connection, close_stream
from .connections import ConnectionFacts, connections_of
from .response import Stream

SUPPORTED: Final = ((0, 18), (0, 19))
"""The first minor version of hypercorn that is supported, and the first that is not: those that the tests have been run with."""

Version: TypeAlias = tuple[int, ...]


AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class LifespanWrapper:
    """An application whose lifespan another one handles; it serves its requests itself.

    Args:
        app: the application.
        lifespan: handles the lifespan events.
    """

    def __init__(self, app: AsgiApp, lifespan: AsgiApp) -> None:
        self.app = app
        self._lifespan = lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._lifespan if scope["type"] == "lifespan" else self.app)(scope, receive, send)


class UnsupportedHypercorn(RuntimeError):
    """This version of hypercorn is not one that the connection was tested with."""


def install() -> None:
    """Serve the connections of our applications with `Connection`, in this process, from now on. TLS offers HTTP/1.1 only.

    Idempotent. An ASGI app may call it while it handles `lifespan.startup`: hypercorn starts to listen after that, so
    `hypercorn -k trio module:app` is covered too.

    Raises:
        UnsupportedHypercorn: hypercorn is of a version outside `SUPPORTED`, or its connection class was already replaced by
            someone else's.
    """
    version = importlib.metadata.version("hypercorn")
    first, after = SUPPORTED
    if not first <= numbers_of(version)[:2] < after:
        supported = f"{'.'.join(map(str, first))} or newer, below {'.'.join(map(str, after))}"
        raise UnsupportedHypercorn(f"hypercorn {version} is installed, and {supported} is supported")
    current = getattr(hypercorn.trio.run, "TCPServer", None)
    if current is serve_connection:
        return
    # Somebody else has patched hypercorn too, or `worker_serve` no longer looks the name up: ours would silently not be used.
    if current is not TCPServer or "TCPServer" not in hypercorn.trio.run.worker_serve.__code__.co_names:
        raise UnsupportedHypercorn(f"hypercorn.trio.run.TCPServer is not hypercorn's own class but {current!r}")
    Config.alpn_protocols = ALPN_PROTOCOLS
    hypercorn.trio.run.TCPServer = serve_connection  # type: ignore[assignment, attr-defined]


def numbers_of(version: str) -> Version:
    """Return the numbers with which a version begins."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def own_app(app: AppWrapper) -> HttpApp | None:
    """Return the application if it is ours and nothing but our own `LifespanWrapper` is round it.

    A middleware sees every request: it may reject it, or change it. So may a class that overrides `__call__`.
    """
    inner: object = app.app if isinstance(app, ASGIWrapper) else None
    if isinstance(inner, LifespanWrapper):
        inner = inner.app
    if not isinstance(inner, HttpApp):
        return None
    owner = next(kind for kind in type(inner).__mro__ if "__call__" in vars(kind))
    return inner if "respond" in vars(owner) else None


async def serve_connection(
    app: AppWrapper, config: Config, context: WorkerContext, state: LifespanState, stream: Stream
) -> None:
    """Serve one connection to its end. Only a cancel of an outer scope is raised."""
    own = own_app(app)
    if own is None:
        await TCPServer(app, config, context, state, stream)  # type: ignore[arg-type]
        return
    connections = connections_of(config)
    with memory_of(config).open() as account:
        facts = facts_of(own, config, context, stream)
        if facts is None:
            await close_stream(stream)
            return
        connection = Connection(facts, stream, account)
        try:
            # One connection must never end the server: what it raised is logged, and only a cancel from outside goes on.
            with log_failures("a connection failed and was closed", connections.records):
                refusal = connections.admit(connection, account, caller_of(facts.client, proxies_of(own, config)))
                if refusal is not None:
                    await connections.refuse(stream, refusal)
                    return
                connections.watch(context.terminated)
                try:
                    async with trio.open_nursery() as nursery:
                        connection.open(nursery)
                        if await shake_hands(stream, config.ssl_handshake_timeout):
                            if isinstance(stream, trio.SSLStream) and stream.selected_alpn_protocol() == "h2":
                                await TCPServer(app, config, context, state, stream)
                            else:
                                await connection.run()
                finally:
                    # Last, for an application that is cancelled may still write its answer.
                    await close_stream(stream)  # noqa: ASYNC102  it has a shield and a time limit
        finally:
            connections.remove(connection)


def proxies_of(app: HttpApp, config: Config) -> Sequence[str]:
    """Return the trusted proxies of the server; see `HttpOptions.trusted_proxies`."""
    if isinstance(config, GuardedConfig):
        return config.trusted_proxies
    # Under `hypercorn -k trio`, where our application says it.
    options: object = getattr(app, "options", None)
    return options.trusted_proxies if isinstance(options, HttpOptions) else ()


def caller_of(client: tuple[str, int] | None, proxies: Sequence[str]) -> Hashable | None:
    """Return who has opened a connection: an address; None, with the room of all, for a Unix socket or a trusted proxy.

    Many clients may be behind these.
    """
    address = None if client is None else address_of(client[0])
    if client is None or address is None or (proxies and trusted(tuple(proxies)).trusts_address(client[0])):
        return None
    return caller_at(address)


def facts_of(app: HttpApp, config: Config, context: WorkerContext, stream: Stream) -> ConnectionFacts | None:
    """Return what its requests have in common; None if the client left before."""
    tls = isinstance(stream, trio.SSLStream)
    socket = stream.transport_stream.socket if isinstance(stream, trio.SSLStream) else stream.socket
    try:
        client = parse_socket_addr(socket.family, socket.getpeername())
    except OSError:
        # The client left between the accept and this line; a socket without a peer has no address.
        return None
    is_logged = config.log.access_logger is not None or config.statsd_host is not None
    return ConnectionFacts(app, config, context, connections_of(config), client, tls, config.root_path, is_logged)


async def shake_hands(stream: Stream, seconds: float) -> bool:
    """The TLS handshake, if there is to be one; False when it failed."""
    if isinstance(stream, trio.SocketStream):
        return True
    try:
        with trio.fail_after(seconds):
            await stream.do_handshake()
    except (trio.BrokenResourceError, trio.TooSlowError):
        await trio.aclose_forcefully(stream)
        return False
    return True
