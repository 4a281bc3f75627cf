"""The sessions of the legacy era over HTTP: found by id and owner, limited in number, ended when idle."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import trio

from trio_mcp.runtime import CancelReason
from trio_mcp.session import ServerSession
from trio_mcp.storage import EventStore

from ...asgi.quota import Quota
from .event_log import EventLog
from .streams import SessionStreams

ID_BYTES = 24

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]
"""Runs something in a task that belongs to the application."""


@dataclass(slots=True, eq=False)
class LegacySession:
    """One session, with what it says and to whom."""

    id: str
    session: ServerSession
    principal: str | None
    seen: float
    streams: SessionStreams
    used: int = 0
    """Requests that named it; `notifications/initialized` is the first."""
    ended: bool = False

    @property
    def is_unused(self) -> bool:
        """Opened, and nothing more."""
        return self.used <= 1 and self.idle

    @property
    def idle(self) -> bool:
        """No request runs and no stream is open."""
        return not self.session.busy and self.streams.idle


class LegacySessions:
    """The directory of sessions; ids carry 192 random bits (S-41) and count only together with their owner (S-42).

    Args:
        quota: for sessions.
        store: where what they say is logged.
        spawn: for the forgetting of what was logged.
    """

    def __init__(self, quota: Quota, idle_timeout: float, store: EventStore, spawn: Spawn) -> None:
        self._quota = quota
        self._idle_timeout = idle_timeout
        self._store = store
        self._spawn = spawn
        self._sessions: dict[str, LegacySession] = {}

    def make_room(self, principal: str | None) -> str | None:
        """Make room for one more session; return the reason to reject it, or None if there is room now.

        The oldest session that has done nothing since it was opened, and that counts towards the limit, is ended for it.
        """
        rejection = self._quota.rejection(principal)
        if rejection is None:
            return None
        # A principal at its own limit must not push out the sessions of others.
        own = self._quota.is_full_for(principal)
        in_the_way = (entry for entry in self._sessions.values() if entry.principal == principal or not own)
        unused = next((entry for entry in in_the_way if entry.is_unused), None)
        if unused is None:
            return rejection
        self.end(unused, CancelReason.EXPIRED)
        return None

    def add(self, session: ServerSession, principal: str | None) -> LegacySession:
        """Keep a session that has been initialized."""
        session_id = secrets.token_urlsafe(ID_BYTES)
        streams = SessionStreams(EventLog(self._store, principal, session_id))
        entry = LegacySession(session_id, session, principal, trio.current_time(), streams)
        self._sessions[entry.id] = entry
        self._quota.acquire(principal)
        return entry

    def find(self, session_id: str, principal: str | None) -> LegacySession | None:
        """The session of that id; another principal's is as unknown as one that never was."""
        entry = self._sessions.get(session_id)
        # Compared with the owner of now and not only at the opening: an id that leaked is worth nothing without the
        # credentials (S-42).
        if entry is None or entry.principal != principal:
            return None
        entry.seen = trio.current_time()
        entry.used += 1
        return entry

    def end(self, entry: LegacySession, reason: CancelReason) -> None:
        """End a session: its calls are cancelled, its streams end, what they said is forgotten, its id is unknown from now on."""
        if entry.ended:
            return
        # Set first, so that ending it again while this goes on does nothing.
        entry.ended = True
        self._sessions.pop(entry.id, None)
        self._quota.release(entry.principal)
        entry.session.close(reason)
        entry.streams.close()
        # A session that never opened a stream has nothing in the store, and most of them never do: no task for those.
        if entry.streams.log.opened:
            self._spawn(entry.streams.log.forget)

    def end_all(self, reason: CancelReason) -> None:
        for entry in list(self._sessions.values()):
            self.end(entry, reason)

    def close_streams(self) -> None:
        """End every GET stream: the server is going away."""
        for entry in self._sessions.values():
            entry.streams.close_standalone()

    async def reap(self) -> None:
        """End idle sessions for ever; run it as a task."""
        while True:
            # So a session lives for at most 1.25 times the timeout. A deadline for each would cost a task or a heap
            # entry for each.
            await trio.sleep(self._idle_timeout / 4)
            oldest = trio.current_time() - self._idle_timeout
            # A copy, since ending a session removes it from the table.
            for entry in list(self._sessions.values()):
                # A request that runs, or a stream that is read, keeps its session, however long it takes.
                if entry.idle and entry.seen < oldest:
                    self.end(entry, CancelReason.EXPIRED)
