"""What a client of the HTTP application may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the HTTP application for its clients; sizes in bytes, times in seconds."""

    body: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    sessions: int = 10_000
    session_idle: float = 1800.0
    disconnect_grace: float = 30.0
    """How long a legacy call continues while no client reads its stream; 0 cancels it at once, so it cannot be polled either."""
    websockets: int = 10_000
    """WebSockets that may be open at once."""
    per_principal: int = 1_000
    """Sessions, HTTP+SSE streams and WebSockets, of each, that one principal may have open. Needs `authenticate`."""
    recheck_seconds: float = 60.0
    """How often `authenticate` checks the headers of an open WebSocket or HTTP+SSE stream again."""
