"""What a client of the HTTP application may cost."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import names_options
from ..shared_limits import SESSIONS, WEBSOCKETS


@names_options
@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits that the HTTP application sets its clients; sizes in bytes, times in seconds. docs/limits.md explains them.

    Attributes:
        body: size of one message.
        values: how many values one message may have (`JsonLimits.max_values`).
        body_seconds: time for a request's body to arrive.
        sessions: legacy sessions that may be open at the same time, and as many HTTP+SSE streams.
        session_idle: how long a legacy session may be idle before it ends.
        disconnect_grace: how long a legacy call continues while no client reads its stream; 0 cancels it immediately.
        websockets: WebSockets that may be open at once.
        per_principal: how many sessions one principal may have open, and as many HTTP+SSE streams and WebSockets. Needs
            `authenticate`.
        recheck_seconds: how often `authenticate` checks the headers of an open WebSocket, and of an open stream that a GET or
            `subscriptions/listen` began, again.
    """

    body: int = 4 * 1024 * 1024
    values: int = 100_000
    body_seconds: float = 30.0
    sessions: int = SESSIONS.limit
    session_idle: float = 1800.0
    disconnect_grace: float = 30.0
    websockets: int = WEBSOCKETS.limit
    per_principal: int = 1_000
    recheck_seconds: float = 60.0
