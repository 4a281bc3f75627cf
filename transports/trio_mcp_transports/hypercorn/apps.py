"""Which application hypercorn serves, and what is wrapped round it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.typing import AppWrapper

from ..asgi.direct import DirectApp, direct_app
from ..asgi.messages import Receive, Scope, Send
from .exchange import ConnectionFacts

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


def directly_served(facts: ConnectionFacts) -> DirectApp | None:
    """Return the application if its requests may go the direct way, which knows nothing of these settings."""
    config = facts.config
    is_plain = not (facts.tls or config.root_path or config.server_names or config.h11_pass_raw_headers)
    app = own_app(facts.app) if is_plain and config.log.access_logger is None else None
    return app if app is not None and app.takes_direct_requests else None


def own_app(app: AppWrapper) -> DirectApp | None:
    """Return the application if it is ours and nothing but our own `LifespanWrapper` is round it.

    A middleware sees every request: it may reject it, or change it.
    """
    inner: object = app.app if type(app) is ASGIWrapper else None
    return direct_app(inner.app if type(inner) is LifespanWrapper else inner)
