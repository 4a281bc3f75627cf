"""The sessions of the handshake era over HTTP: found by id and owner, limited in number, reaped when idle."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import trio

from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.runtime import CancelReason, Outbox
from trio_mcp.session import Envelope, ServerSession

__all__ = ["LegacySession", "LegacySessions", "TooManySessions"]

ID_BYTES = 24


class TooManySessions(Exception):
    """The cap on sessions is reached; nothing was made."""

    code = SERVER_BUSY


@dataclass(slots=True, eq=False)
class LegacySession:
    """One session. `stream` is the outbox of its GET stream while one is open."""

    id: str
    session: ServerSession
    principal: str | None
    seen: float
    stream: Outbox[Envelope] | None = field(default=None)
    used: int = 0
    """Requests that named it; `notifications/initialized` is the first."""

    @property
    def unused(self) -> bool:
        """Opened, and nothing more."""
        return self.used <= 1 and self.idle

    @property
    def idle(self) -> bool:
        """No request runs and no stream is open."""
        return not self.session.busy and self.stream is None


class LegacySessions:
    """The directory of sessions; ids carry 192 random bits (S-41) and count only together with their owner (S-42)."""

    def __init__(self, limit: int, idle_timeout: float) -> None:
        self._limit = limit
        self._idle_timeout = idle_timeout
        self._sessions: dict[str, LegacySession] = {}

    def check_room(self) -> None:
        """Make room by ending the oldest session that has done nothing since it was opened.

        Raises:
            TooManySessions: all of them were used.
        """
        if len(self._sessions) < self._limit:
            return
        unused = next((entry for entry in self._sessions.values() if entry.unused), None)
        if unused is None:
            raise TooManySessions(
                f"This server already holds {self._limit} sessions, which is its limit. Try again later."
            )
        self.end(unused, CancelReason.EXPIRED)

    def add(self, session: ServerSession, principal: str | None) -> LegacySession:
        """Keep a session that has been initialized."""
        entry = LegacySession(secrets.token_urlsafe(ID_BYTES), session, principal, trio.current_time())
        self._sessions[entry.id] = entry
        return entry

    def find(self, session_id: str, principal: str | None) -> LegacySession | None:
        """The session of that id; another principal's is as unknown as one that never was."""
        entry = self._sessions.get(session_id)
        if entry is None or entry.principal != principal:
            return None
        entry.seen = trio.current_time()
        entry.used += 1
        return entry

    def end(self, entry: LegacySession, reason: CancelReason) -> None:
        """End a session: its calls are cancelled, its GET stream closes, its id is unknown from now on."""
        self._sessions.pop(entry.id, None)
        entry.session.close(reason)
        if entry.stream is not None:
            entry.stream.close()

    def end_all(self, reason: CancelReason) -> None:
        for entry in list(self._sessions.values()):
            self.end(entry, reason)

    def close_streams(self) -> None:
        """End every GET stream: the server is going away."""
        for entry in self._sessions.values():
            if entry.stream is not None:
                entry.stream.close()

    async def reap(self) -> None:
        """End idle sessions for ever; run it as a task."""
        while True:
            await trio.sleep(self._idle_timeout / 4)
            oldest = trio.current_time() - self._idle_timeout
            for entry in list(self._sessions.values()):
                if entry.idle and entry.seen < oldest:
                    self.end(entry, CancelReason.EXPIRED)

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<LegacySessions {len(self._sessions)}/{self._limit}>"
