"""The sessions of the legacy era over HTTP: found by id and owner, limited in number, ended when idle."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import trio

from trio_mcp.base.shared_limits import SESSIONS
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.jsonrpc import INTERNAL_ERROR, SERVER_BUSY, ErrorDetail
from trio_mcp.protocol.revisions import OUTCOME_UNKNOWN
from trio_mcp.runtime import Account, CancelReason
from trio_mcp.session import ServerSession
from trio_mcp.session.envelope import SESSION_SIZE
from trio_mcp.storage import EventStore

from ...asgi.access import HttpRejection
from ...asgi.requests import check_room
from ...asgi.sessions import HttpQuota, OpenSession, SessionTable
from .breaker import Breaker
from .event_log import EventLog
from .stored import HeldSession, SessionHome, SessionPlace
from .stream_keeper import StreamKeeper
from .streams import SessionStreams

LOOK_SECONDS: Final = 2.0
"""How often a process asks whether others may have taken over sessions that it has."""

LAPSE_SECONDS: Final = 15.0
"""For how long they may do so after it was not seen to live: longer than a claim may take that has begun before."""

FLUSH_SECONDS: Final = 1.0
"""For how long the last events of a session that is released are written."""
FLUSH_LOOK: Final = 0.01
HAND_OVER_LOOK: Final = 0.05
"""Seconds between two looks which sessions can be handed over."""

SESSION_ENDED: Final = ErrorDetail(
    # No 404: the client would send it again in another session, although it has run.
    INTERNAL_ERROR,
    "This session was ended while the request ran. What it did stays done. Start it again if that is safe.",
    {OUTCOME_UNKNOWN: True},
)
"""The reply to a request whose session is deleted."""

Spawn: TypeAlias = Callable[[Callable[[], Awaitable[None]]], None]
"""Runs something in a task that belongs to the application."""


class LegacySession(OpenSession):
    """One session, with what it says and to whom.

    Attributes:
        used: requests that named it; `notifications/initialized` is the first.
        seen: when the last of them came, or was answered.
        place: where it is stored; None if it ends with the process.
        holding: says that this process has it; None if it ends with the process.
        on_lost: called when another process has it.
    """

    __slots__ = ("holding", "on_lost", "place", "seen", "streams", "used")

    def __init__(
        self,
        session: ServerSession,
        principal: str | None,
        account: Account,
        store: EventStore,
        breaker: Breaker,
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(session, principal, account)
        if id is not None:
            self.id = id
        self.seen = trio.current_time()
        service = session.service
        self.streams = SessionStreams(EventLog(store, principal, self.id, service.records, breaker, service.calls))
        self.used = 0
        self.place: SessionPlace | None = None
        self.holding: HeldSession | None = None
        self.on_lost: Callable[[], None] = lambda: None

    def store_in(self, home: SessionHome, place: SessionPlace) -> None:
        """Keep it, and what its calls do, at this place."""
        self.place = place
        self.holding = HeldSession(home, place, self._lost)
        self.streams.keeper = StreamKeeper(home.service, home.store, place.key, home.breaker, self.holding)

    def _lost(self) -> None:
        # Looked up now: it is set when the session comes into a table.
        self.on_lost()

    def close_streams(self) -> None:
        standalone = self.streams.standalone
        if standalone is not None and standalone.consumer is None:
            standalone.retire()
        elif standalone is not None:
            standalone.outbox.close()

    @property
    def is_unused(self) -> bool:
        """Opened, and nothing more."""
        return self.used <= 1 and self.idle

    @property
    def is_at_rest(self) -> bool:
        """No request runs, and every answer was sent or logged."""
        streams = self.streams
        return not self.session.busy and all(
            each.done for each in streams.active.values() if each is not streams.standalone
        )

    @property
    def idle(self) -> bool:
        """No request runs and no stream is open."""
        return not self.session.busy and self.streams.idle


class LegacySessions(SessionTable[LegacySession]):
    """The open sessions of the legacy era.

    Args:
        spawn: for the forgetting of what was logged.
        home: where sessions outlive the process; None if they do not.
    """

    reply_at_end = SESSION_ENDED

    def __init__(self, limits: HttpLimits, spawn: Spawn, home: SessionHome | None = None) -> None:
        quota = HttpQuota(SESSIONS, limits.sessions, limits.per_principal)
        super().__init__(quota, "send initialize to open another.")
        self._idle_timeout = limits.session_idle
        self._spawn = spawn
        self._home = home

    def add(self, entry: LegacySession) -> LegacySession:
        """Add a session, and return it; it is left as soon as another process has it."""
        entry.on_lost = partial(self.leave, entry)
        return super().add(entry)

    def leave(self, entry: LegacySession) -> None:
        """End a session that another process has, and leave to it what is stored."""
        entry.streams.leave()
        self.end(entry, CancelReason.SHUTDOWN)

    def leave_all(self) -> None:
        """Leave the sessions that are stored, which belong to other processes now."""
        for entry in list(self._sessions.values()):
            if entry.place is not None:
                self.leave(entry)

    @property
    def can_hand_over(self) -> bool:
        """Whether there are sessions that another process can take over."""
        return any(entry.place is not None for entry in self._sessions.values())

    async def hand_over(self) -> None:
        """Leave the stored sessions of which no request runs to the process that serves in place of this one."""
        for entry in list(self._sessions.values()):
            if entry.is_at_rest:
                await self._release(entry)

    async def keep_handing_over(self) -> None:
        """Hand sessions over as soon as no request of them runs, until cancelled."""
        while True:
            # First: idle connections are closed meanwhile. A request that came on one of them is served here.
            await trio.sleep(HAND_OVER_LOOK)
            await self.hand_over()

    def release_wanted(self, key: str) -> None:
        """Release a session that another process asks for, if none of its requests runs."""
        for entry in self._sessions.values():
            if entry.place is not None and entry.place.key == key and entry.is_at_rest:
                self._spawn(partial(self._release, entry))

    async def _release(self, entry: LegacySession) -> None:
        place, home, standalone = entry.place, self._home, entry.streams.standalone
        if place is None or home is None:
            return
        entry.close_streams()
        with trio.move_on_after(FLUSH_SECONDS):
            # What was said to it is in the log before another process reads that.
            while standalone is not None and standalone.consumer is not None and not standalone.done:  # noqa: ASYNC110
                await trio.sleep(FLUSH_LOOK)
        # A request may have come meanwhile, or another process has asked twice: it is tried again.
        if not entry.ended and entry.is_at_rest:
            snapshot = entry.session.snapshot()
            self.leave(entry)
            await home.release(place, snapshot)

    def make_room(self, account: Account) -> None:
        """Make room for one more session, which will draw from this account.

        At a limit, the oldest session that has done nothing since it was opened, and counts towards the limit, is ended for it.

        Raises:
            HttpRejection: 503, there is none.
        """
        rejection, caller = self.quota.rejection(account), account.caller
        # From half of the memory budget on, too: sessions that are opened and left must not keep everybody else out.
        if rejection is not None or account.budget.is_over_half(SESSION_SIZE):
            # A caller that has its share, or as many as it may, must not push out the sessions of others.
            own = self.quota.own_refusal(caller, capped=account.principal is not None) is not None
            in_the_way = (entry for entry in self._sessions.values() if entry.account.caller == caller or not own)
            unused = next((entry for entry in in_the_way if entry.is_unused), None)
            if unused is not None:
                self.end(unused, CancelReason.EXPIRED)
            elif rejection is not None:
                raise HttpRejection(503, rejection, code=SERVER_BUSY)
        check_room(account, SESSION_SIZE)

    def knows(self, session_id: str) -> bool:
        """Return whether this process has the session of that id."""
        return session_id in self._sessions

    def find(self, session_id: str, principal: str | None) -> LegacySession:
        """Return the session of that id, which is used now."""
        entry = super().find(session_id, principal)
        entry.seen = trio.current_time()
        entry.used += 1
        return entry

    def end(self, entry: LegacySession, reason: CancelReason) -> None:
        """End a session, and forget what its streams said."""
        if entry.ended:
            return
        super().end(entry, reason)
        place, home = entry.place, self._home
        if place is not None and home is not None:
            # The next process goes on with it.
            if reason is CancelReason.SHUTDOWN:
                return
            self._spawn(partial(home.remove, place))
        log = entry.streams.log
        log.sealed = True
        # A session that never opened a stream has nothing in the store, and most of them never do: no task for those.
        if log.opened:
            self._spawn(log.forget)

    async def reap(self) -> None:
        """End idle sessions until cancelled; run it as a task."""
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
                else:
                    await self._touch(entry)

    async def leave_lost(self, home: SessionHome) -> None:
        """Leave the sessions in which a client waits and which other processes have taken over; run it as a task.

        Other processes may take a session over when this one seems dead to them. The next write of this process detects
        that; but a call that waits for an answer writes nothing, and the answer goes to the other process.
        """
        lapses, until = 0, -math.inf
        while True:
            await trio.sleep(LOOK_SECONDS)
            if home.store.lapses != lapses:
                lapses, until = home.store.lapses, trio.current_time() + LAPSE_SECONDS
            if trio.current_time() <= until:
                for entry in list(self._sessions.values()):
                    if entry.place is not None and not entry.idle and await home.has_lost(entry.place):
                        self.leave(entry)

    async def save(self, entry: LegacySession) -> None:
        """Store what has changed of a session; end it here if another process has it."""
        if entry.place is None or self._home is None or entry.ended:
            return
        if not await self._home.save(entry.place, entry.session):
            self.leave(entry)

    async def _touch(self, entry: LegacySession) -> None:
        """Let the store keep a session that was used since it was last put, or is in use."""
        place = entry.place
        if place is not None and not entry.ended and (not entry.idle or entry.seen > place.touched):
            await self.save(entry)
