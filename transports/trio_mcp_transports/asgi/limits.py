"""What a client of the HTTP application may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits that the HTTP application sets its clients; sizes in bytes, times in seconds."""

    body: int = 4 * 1024 * 1024
    """Size of one message."""
    body_seconds: float = 30.0
    """Time for a request's body to arrive."""
    sessions: int = 10_000
    """Legacy sessions that may be open at the same time, and as many HTTP+SSE streams."""
    session_idle: float = 1800.0
    """How long a legacy session may be idle before it ends."""
    disconnect_grace: float = 30.0
    """How long a legacy call continues while no client reads its stream; 0 cancels it immediately."""
    websockets: int = 10_000
    """WebSockets that may be open at once."""
    per_principal: int = 1_000
    """How many sessions one principal may have open, and as many HTTP+SSE streams and WebSockets. Needs `authenticate`."""
    recheck_seconds: float = 60.0
    """How often `authenticate` checks the headers of an open WebSocket or HTTP+SSE stream again."""
