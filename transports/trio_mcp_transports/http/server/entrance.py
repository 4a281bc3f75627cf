"""A request as its client sent it to the proxies in front of the server, and its record in the access log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from trio_mcp.errors import ProtocolError
from trio_mcp.http import HttpOptions

from ...asgi.access import HttpRejection
from ...asgi.access_log import App, record_of, serve_logged
from ...asgi.forwarded import TrustedProxies
from ...asgi.messages import Receive, Scope, Send, send_error

Reject: TypeAlias = Callable[[Scope, Receive, Send, HttpRejection], Awaitable[None]]


class Entrance:
    """What requests pass before they are routed: the access log, and what proxies in front of the server say of them.

    Args:
        options: how the server is served.

    Attributes:
        logs: there is an access log.
    """

    def __init__(self, options: HttpOptions) -> None:
        self.logs = options.access_log
        self._root_path = options.root_path
        self._proxies = TrustedProxies(options.trusted_proxies) if options.trusted_proxies else None

    @property
    def is_plain(self) -> bool:
        """Whether requests may pass by: what trusted proxies say, and what is logged of a request, would be lost."""
        return self._proxies is None and not self.logs

    def before(self, serve: App, reject: Reject) -> App:
        """Return what passes requests on to `serve` as their clients sent them; `serve` itself if that changes nothing.

        Args:
            reject: answers a request of which a trusted proxy says what cannot be read.
        """
        if self.is_plain and not self._root_path:
            return serve
        entered = partial(self._enter, serve, reject)
        return partial(serve_logged, entered, proxies=self._proxies) if self.logs else entered

    async def _enter(self, serve: App, reject: Reject, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            seen = as_client_sent(scope, self._proxies, self._root_path)
        except HttpRejection as rejection:
            await reject(scope, receive, send, rejection)
        else:
            await serve(seen, receive, send)


def as_client_sent(scope: Scope, proxies: TrustedProxies | None, root_path: str) -> Scope:
    """Return the scope of a request as its client sent it; the access log has it so too.

    Args:
        proxies: those that are believed.
        root_path: the prefix of the server, if neither a proxy nor the ASGI server names one.

    Raises:
        HttpRejection: 400, what a trusted proxy says of it cannot be read.
    """
    if proxies is not None:
        scope = proxies.seen_by_client(scope)
    if root_path and not scope.get("root_path"):
        scope = {**scope, "root_path": root_path}
    record = record_of(scope)
    if record is not None:
        record.scope = scope
    return scope


async def reject_request(_scope: Scope, _receive: Receive, send: Send, rejection: ProtocolError) -> None:
    """Answer a request with its rejection."""
    await send_error(send, rejection)
