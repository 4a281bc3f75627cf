"""What a client of the HTTP application may cost."""

from __future__ import annotations

from trio_mcp.http import HttpLimits


def default_limits(server: object) -> HttpLimits:
    """Return the limits for a server: one whose sessions are dear, such as a proxy, has the attribute `max_sessions`."""
    sessions: int | None = getattr(server, "max_sessions", None)
    return HttpLimits() if sessions is None else HttpLimits(sessions=sessions, websockets=sessions)
