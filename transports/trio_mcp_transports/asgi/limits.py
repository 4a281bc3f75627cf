"""What a client of the HTTP application may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may cost; sizes in bytes, times in seconds."""

    body: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    sessions: int = 10_000
    session_idle: float = 1800.0
    disconnect_grace: float = 30.0
    """How long a legacy call goes on when nobody reads its answer; 0 cancels it at once, and then it cannot be polled either."""
    websockets: int = 10_000
    """WebSockets that may be open at once."""
    per_principal: int = 1_000
    """Sessions, and HTTP+SSE streams, and WebSockets that one principal may hold, if anybody is asked who he is."""
    recheck_seconds: float = 60.0
    """How often the credentials of an open WebSocket or HTTP+SSE stream are checked again, if anybody checks any."""
