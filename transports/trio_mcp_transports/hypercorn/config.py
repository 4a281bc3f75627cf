"""The settings our HTTP servers run with: hypercorn's, and the limits that hypercorn does not have."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypercorn.config import Config, Sockets

from trio_mcp.base.shared_limits import CONNECTIONS
from trio_mcp.runtime import MemoryBudget, process_budget

ALPN_PROTOCOLS = ["http/1.1"]
# Of received bytes, at a time, while they are read: how often these count in the memory budget.
COPIES: Final = 3


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection.

    Attributes:
        send_timeout: seconds that a peer may take to read the next 64 KiB; then the connection is closed.
        header_timeout: seconds for a complete request line and headers, from the accept or from their first byte.
        max_connections: open connections of one server; a new one above the limit receives 503 and is closed. Addresses share
            it: over half, one may have a quarter. A lower limit of the process on open files lowers it.
        message_timeout: seconds for one WebSocket message, from its first byte to its last; checked with each ping.
        max_pipelined: bytes that a peer may send before the response to its previous request.
    """

    send_timeout: float = 10.0
    header_timeout: float = 10.0
    max_connections: int = CONNECTIONS.limit
    message_timeout: float = 30.0
    max_pipelined: int = 64 * 1024


DEFAULT_CONNECTION_LIMITS = ConnectionLimits()


class GuardedConfig(Config):
    """Hypercorn's settings with our defaults. The guard reads `limits`; a plain `Config` gets `DEFAULT_CONNECTION_LIMITS`."""

    limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS
    memory: MemoryBudget | None = None
    trusted_proxies: Sequence[str] = ()
    alpn_protocols = ALPN_PROTOCOLS
    include_server_header = False
    keep_alive_max_requests = sys.maxsize
    ssl_handshake_timeout = 10.0
    backlog = 1024
    _listening: Sequence[socket.socket] | None = None

    def listen_on(self, sockets: Sequence[socket.socket]) -> None:
        """Use these bound stream sockets in place of `bind`."""
        self._listening = list(sockets)

    def create_sockets(self) -> Sockets:
        if self._listening is None:
            created = super().create_sockets()
        elif self.ssl_enabled:
            created = Sockets(list(self._listening), [], [])
        else:
            created = Sockets([], list(self._listening), [])
        for sock in (*created.secure_sockets, *created.insecure_sockets):
            set_socket_options(sock, self.limits)
        return created


def guarded_config(
    *,
    bind: Sequence[str] = ("127.0.0.1:8000",),
    limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS,
    keep_alive_timeout: float = 75.0,
    graceful_timeout: float = 5.0,
    max_websocket_message: int = 4 * 1024 * 1024,
    websocket_ping_interval: float | None = 20.0,
    memory: MemoryBudget | None = None,
    trusted_proxies: Sequence[str] = (),
    certfile: str | None = None,
    keyfile: str | None = None,
) -> GuardedConfig:
    """Return settings for `hypercorn.trio.serve` with limits and without request logs; `serve_asgi` uses its own by default.

    Args:
        bind: addresses, each `host:port` or `unix:path`; ignored if sockets are given.
        limits: the limits of one connection.
        keep_alive_timeout: seconds for which an idle connection stays open for its next request.
        graceful_timeout: seconds that open requests have after the shutdown began.
        max_websocket_message: the maximum size of a received WebSocket message, in bytes; a larger one closes with 1009.
        websocket_ping_interval: seconds between pings; a WebSocket without data for two intervals is closed. None: no pings.
        memory: the budget that connections draw from; by default that of the process, as for `ServiceOptions.memory`.
        trusted_proxies: proxies with many clients, which may open any number of connections; see `HttpOptions`.
        certfile, keyfile: PEM files; both together switch the server to TLS.

    Nothing is logged per request; errors go to the logger `trio_mcp.http`. `read_timeout` has no effect under the
    guard: it would cut idle event streams.
    """
    config = GuardedConfig()
    config.bind = list(bind)
    config.limits = limits
    config.memory = memory
    config.trusted_proxies = trusted_proxies
    config.keep_alive_timeout = keep_alive_timeout
    config.graceful_timeout = graceful_timeout
    config.websocket_max_message_size = max_websocket_message
    config.websocket_ping_interval = websocket_ping_interval
    config.certfile, config.keyfile = certfile, keyfile
    config.errorlog = logging.getLogger("trio_mcp.http")
    return config


def limits_of(config: Config) -> ConnectionLimits:
    """The limits `config` carries, or the default ones for a config of hypercorn's own."""
    return config.limits if isinstance(config, GuardedConfig) else DEFAULT_CONNECTION_LIMITS


def memory_of(config: Config) -> MemoryBudget:
    """The memory budget that `config` carries, or that of the process."""
    memory = config.memory if isinstance(config, GuardedConfig) else None
    return process_budget() if memory is None else memory


def set_socket_options(sock: socket.socket, limits: ConnectionLimits) -> None:
    """Options that accepted connections inherit: no Nagle delay, and the kernel's own end for a peer that vanished.

    TCP_USER_TIMEOUT (Linux) supplements the guard's send timeout: it also ends a connection whose last bytes are not
    acknowledged while no send is pending.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    user_timeout: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
    if user_timeout is not None:
        sock.setsockopt(socket.IPPROTO_TCP, user_timeout, int((limits.send_timeout + 5.0) * 1000))
