"""The transports, as the entry-point group `trio_mcp.transports` names them.

Each end is loaded when it is first used, so that a client loads no server library and a server no client library. This
module is above all transports, so an end may be served by another transport's module: `sse` and `websocket` are served by the
HTTP application.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from socket import socket
from typing import Final, cast

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.session.channel import AnyChannel
from trio_mcp.session.transport import ListeningTransport, Transport

PACKAGE: Final = "trio_mcp_transports"


class LazyTransport(NamedTuple):
    """A transport whose two ends are in separate modules.

    Args:
        serve_at, connect_at: where the two functions are, as `module:function`, relative to this package.
        listen_at: the same for `ListeningTransport`.
    """

    serve_at: str
    connect_at: str
    listen_at: str = ""

    @property
    def serve(self) -> Callable[..., Awaitable[None]]:
        """The function that serves; its module is loaded now."""
        return cast("Callable[..., Awaitable[None]]", function_at(self.serve_at))

    @property
    def connect(self) -> Callable[..., AbstractAsyncContextManager[AnyChannel]]:
        """The function that connects; its module is loaded now."""
        return cast("Callable[..., AbstractAsyncContextManager[AnyChannel]]", function_at(self.connect_at))

    @property
    def listen(self) -> Callable[[str, int], Awaitable[list[socket]]]:
        """The function that opens the sockets to listen on; its module is loaded now."""
        return cast("Callable[[str, int], Awaitable[list[socket]]]", function_at(self.listen_at))


def function_at(place: str) -> object:
    """Return the function at `module:function`. `pkgutil.resolve_name` does it too, after it has compiled a pattern."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"{PACKAGE}.{module}"), name)


http: Final[ListeningTransport] = LazyTransport(
    "http.server.serve:serve_http", "http.client.channel:connect", "listening:listening_sockets"
)
memory: Final[Transport] = LazyTransport("memory:serve", "memory:connect")
sse: Final[Transport] = LazyTransport("http.server.serve:serve_sse", "sse.client:connect_sse")
stdio: Final[Transport] = LazyTransport("stdio.server:serve", "stdio.client:connect")
websocket: Final[Transport] = LazyTransport("http.server.serve:serve_websocket", "websocket.client:connect")
