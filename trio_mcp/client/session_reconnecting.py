"""Opening a session again that the server has lost.

A legacy session may end at the server while the connection stays open (L-HTTP-18s). The server did nothing for the request that
finds out: another session is opened, once for all that wait, and the request is sent again under a new id (L-HTTP-19c).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from typing import Final, Protocol, Unpack

import trio

from ..base.backoff import RECONNECT_BACKOFF, STABLE_AFTER
from ..errors import Disconnected, RequestTimeout, SessionLost, without_traceback
from ..session import ClientSession
from ..session.client import RequestOptions
from ..types import Model, RequestParams
from .dialects import HANDSHAKE_TIMEOUT, Dialect
from .requester import Requester, would_fail_again
from .subscriptions import NotificationRouter

# The state of a link: where its life and the life of its session stand, as a table. No I/O.

# A link lives once: it opens, it is open, it closes. Below that, a legacy session may be lost at the server while the
# connection stays (L-HTTP-18s). The link then opens another one, in one attempt that all who need the session share.
#
#   state       | START    OPENED  SESSION_LOST  REOPEN     INITIALIZED  ATTEMPT_ENDED  CLOSE    ENDED
#   ------------+----------------------------------------------------------------------------------------
#   NEW         | OPENING                                                               CLOSED
#   OPENING     |          OPEN    OPENING                                              CLOSING  CLOSED
#   OPEN        |                  LOST                                                 CLOSING  CLOSED
#   LOST        |                  LOST          REOPENING                              CLOSING  CLOSED
#   REOPENING   |                  REOPENING                RESTORING    LOST           CLOSING  CLOSED
#   RESTORING   |                  REOPENING                             OPEN           CLOSING  CLOSED
#   CLOSING     |          CLOSING CLOSING                  CLOSING      CLOSING        CLOSING  CLOSED
#   CLOSED      |                                                                       CLOSED
#
# An empty cell is an error of this package, and raises.
#
#   SESSION_LOST   the transport, or a request, learned that the server no longer knows the session. In OPENING it says nothing
#                  new: opening has its own errors.
#   REOPEN         an attempt to open another session begins.
#   INITIALIZED    the server answered the attempt's `initialize`; the log level and the subscriptions are still to be restored.
#                  From here on a lost session is the new one: RESTORING goes back to REOPENING, and the attempt ends in LOST.
#   ATTEMPT_ENDED  well or not. A failure while restoring still leaves an open session, hence OPEN.
#   ENDED          the link's main task ended. Nothing follows but calls of `aclose`.
#
# In CLOSING the tasks of an attempt and of the opening unwind, so their events still arrive and change nothing.
#
# Example, of a server that restarts while a client is subscribed to changes:
#
#   client.open()                             START          OPENING
#   initialize is answered                    OPENED         OPEN        generation 0
#   the GET stream gets a 404                 SESSION_LOST   LOST        a task begins to reopen, as a subscriber waits
#   that task begins an attempt               REOPEN         REOPENING
#   a call joins the attempt                  -              REOPENING   its request waits
#   initialize is answered                    INITIALIZED    RESTORING   generation 1
#   resources/subscribe is answered           ATTEMPT_ENDED  OPEN        the call sends its request
#   client.aclose()                           CLOSE          CLOSING     the queue is flushed, the channel closes
#   the main task ends                        ENDED          CLOSED


class Phase(Enum):
    """Where a link stands; the table above says how it moves."""

    NEW = "new"
    OPENING = "opening"
    OPEN = "open"
    LOST = "open, its session lost"
    REOPENING = "open, its session reopening"
    RESTORING = "open, its session restoring"
    CLOSING = "closing"
    CLOSED = "closed"


class LinkEvent(Enum):
    """What moves a link."""

    START = "start"
    OPENED = "opened"
    SESSION_LOST = "session lost"
    REOPEN = "reopen"
    INITIALIZED = "initialized"
    ATTEMPT_ENDED = "attempt ended"
    CLOSE = "close"
    ENDED = "ended"


def _while_open(moves: Mapping[LinkEvent, Phase]) -> Mapping[LinkEvent, Phase]:
    return {**moves, LinkEvent.CLOSE: Phase.CLOSING, LinkEvent.ENDED: Phase.CLOSED}


UNWINDING: Final = (LinkEvent.OPENED, LinkEvent.SESSION_LOST, LinkEvent.INITIALIZED, LinkEvent.ATTEMPT_ENDED)
"""Events of tasks that have not ended yet when the link closes."""

TRANSITIONS: Final[Mapping[Phase, Mapping[LinkEvent, Phase]]] = {
    Phase.NEW: {LinkEvent.START: Phase.OPENING, LinkEvent.CLOSE: Phase.CLOSED},
    Phase.OPENING: _while_open({LinkEvent.OPENED: Phase.OPEN, LinkEvent.SESSION_LOST: Phase.OPENING}),
    Phase.OPEN: _while_open({LinkEvent.SESSION_LOST: Phase.LOST}),
    Phase.LOST: _while_open({LinkEvent.SESSION_LOST: Phase.LOST, LinkEvent.REOPEN: Phase.REOPENING}),
    Phase.REOPENING: _while_open(
        {
            LinkEvent.SESSION_LOST: Phase.REOPENING,
            LinkEvent.INITIALIZED: Phase.RESTORING,
            LinkEvent.ATTEMPT_ENDED: Phase.LOST,
        }
    ),
    Phase.RESTORING: _while_open({LinkEvent.SESSION_LOST: Phase.REOPENING, LinkEvent.ATTEMPT_ENDED: Phase.OPEN}),
    Phase.CLOSING: _while_open(dict.fromkeys(UNWINDING, Phase.CLOSING)),
    Phase.CLOSED: {LinkEvent.CLOSE: Phase.CLOSED},
}

WITH_SESSION = frozenset({Phase.OPEN, Phase.LOST, Phase.REOPENING, Phase.RESTORING})
"""Phases in which the link is open, with or without a session that the server knows."""


@dataclass(slots=True, eq=False, repr=False)
class LinkState:
    """The state of one link.

    Attributes:
        phase: where it stands.
        generation: how many sessions were opened after the first. A request that lost its session remembers the number it began
            with: if it has grown since, the session was reopened already.
        is_watched: whether a task of the link reopens the session each time it is lost.
    """

    phase: Phase = Phase.NEW
    generation: int = 0
    is_watched: bool = False
    _quick_attempts: int = 0
    """Attempts in a row, each soon after the one before."""
    _last_attempt_at: float = -math.inf

    def move(self, event: LinkEvent) -> None:
        """Move to the next phase.

        Raises:
            RuntimeError: the event cannot happen in this phase, by the table at the head of the module.
        """
        following = TRANSITIONS[self.phase].get(event)
        if following is None:
            raise RuntimeError(f"a link that is {self.phase.value} cannot take the event {event.value!r}")
        self.phase = following
        if event is LinkEvent.INITIALIZED:
            self.generation += 1

    @property
    def is_open(self) -> bool:
        return self.phase in WITH_SESSION

    @property
    def is_session_lost(self) -> bool:
        """Whether the server no longer knows the session, as far as this client has noticed."""
        return self.phase in (Phase.LOST, Phase.REOPENING)

    def end_attempt(self, now: float) -> None:
        """Record that an attempt to reopen the session ended at this time, well or not."""
        self._last_attempt_at = now
        self.move(LinkEvent.ATTEMPT_ENDED)

    def delay(self, now: float) -> float:
        """Return the seconds to wait before the next attempt; none if the last session was stable."""
        # A failure that comes long after the last attempt is a new one: a server that restarts once a day is reopened at once.
        self._quick_attempts = 0 if now - self._last_attempt_at >= STABLE_AFTER else self._quick_attempts + 1
        return RECONNECT_BACKOFF.delay(self._quick_attempts - 1) if self._quick_attempts else 0.0


# Its tasks run in the link:
#
#   _reopen_until_stable    while the session is lost and a subscriber waits for it
#   _attempt_to_reopen      at most one


LEAST_PAUSE: Final = 1.0
"""Seconds after a failed attempt in which its failure is that of other requests too, if a task of the link tries again anyway."""


class OpenLink(Requester, Protocol):
    """The part of the link that has the dialect, which knows how to open a session."""

    @property
    def dialect(self) -> Dialect: ...


class ReopenAttempt:
    """One attempt to reopen the session, shared by all that need it.

    Its handshake may last longer than a request waits: until `HANDSHAKE_TIMEOUT` seconds after it began, or after a request came
    later. What comes in the first `LEAST_PAUSE` seconds after that does not wait at all.

    Attributes:
        answered: set when the handshake has ended.
        done: set when the attempt has.
        failure: why it failed; None if it did not.
        waiting: what is sent when it has succeeded, with the functions that send it.
    """

    def __init__(self) -> None:
        self.answered, self.done = trio.Event(), trio.Event()
        self.failure: Exception | None = Disconnected("the client was closed")
        self.waiting: dict[int, Callable[[], None]] = {}
        self._answer_by = trio.current_time() + HANDSHAKE_TIMEOUT

    async def wait(self) -> None:
        """Wait for the session. Raises what the attempt failed with, or `RequestTimeout`."""
        now = trio.current_time()
        if now >= self._answer_by + LEAST_PAUSE:
            self._answer_by = now + HANDSHAKE_TIMEOUT
        with trio.move_on_at(self._answer_by):
            await self.answered.wait()
        if not self.answered.is_set():
            raise RequestTimeout(f"the server did not open the session again within {HANDSHAKE_TIMEOUT:g} seconds")
        await self.done.wait()
        if self.failure is not None:
            raise without_traceback(self.failure)

    def end(self) -> None:
        """Let everything that waits go on; what is to be sent is sent in the order of its numbers."""
        waiting, self.waiting = self.waiting, {}
        if self.failure is None:
            for number in sorted(waiting):
                waiting[number]()
        self.answered.set()
        self.done.set()


class SessionReopening:
    """Opens the session of one link again, and sends the requests again that have found out that it was lost."""

    def __init__(self, link: OpenLink, state: LinkState, router: NotificationRouter) -> None:
        self._link = link
        self._state = state
        self._router = router
        self._attempt: ReopenAttempt | None = None
        self.numbers = count()
        """Of the requests that may wait for a session, in the order in which they came."""
        self._failed: tuple[ReopenAttempt, float] | None = None
        """The last attempt, if it has failed, and when."""

    async def request(self, method: str, params: RequestParams, /, **options: Unpack[RequestOptions]) -> Model:
        """Send a request as `ClientSession.request` does, and again if the session was lost; all within `timeout`."""
        # One scope round both attempts and the reopening, so that `timeout` is what the caller waits at most.
        timeout = options.pop("timeout", math.inf)
        session = self._link.session
        send = partial(session.request, method, params, **options)
        with trio.move_on_after(timeout):
            # A request that is sent while the session is being reopened would only be lost as well.
            if self._attempt is not None:
                try:
                    await self._attempt.wait()
                except Exception:
                    # What could not be restored does not matter to it.
                    if not self.has_session:
                        raise
            # Read before the request is sent: another task may have reopened the session by the time that this one fails.
            generation = self._state.generation
            try:
                return await send()
            except SessionLost as lost:
                session.records.log("%s: reopening it", lost, level=logging.INFO)
                self.note_lost(generation, str(lost))
            # Unless another request has had the session opened again meanwhile.
            if self._attempt is not None or generation == self._state.generation:
                await self.attempt().wait()
            return await send()
        raise RequestTimeout(f"the server did not answer {method} within {timeout:g} seconds")

    @property
    def has_session(self) -> bool:
        """Whether the server knows the session, as far as this client has noticed, and it has been set up."""
        return self._state.phase is Phase.OPEN

    @property
    def generation(self) -> int:
        """How many sessions were opened after the first."""
        return self._state.generation

    def note_lost(self, generation: int, why: str) -> None:
        """Note that a request of the session with this number was ignored, because the server has lost that session."""
        # The first request to find out.
        if generation == self._state.generation and self._state.is_open and not self._state.is_session_lost:
            self._link.lost(why)
            self.session_lost()

    def session_lost(self) -> None:
        """Reopen the session immediately if a subscriber waits for it; else the next request reopens it."""
        # Without a subscriber, a client that is idle opens no session that it may never use.
        self._state.move(LinkEvent.SESSION_LOST)
        if not self._state.is_open:
            return
        session = self._link.session
        # Their questions were asked in the session that was lost.
        session.cancel_handlers()
        if self._router.needs_session and not self._state.is_watched:
            self._state.is_watched = True
            self._link.start(partial(self._reopen_until_stable, session))

    async def _reopen_until_stable(self, session: ClientSession) -> None:
        """Reopen the session, and again with a growing delay if that fails or the session is lost again soon."""
        try:
            while self._state.is_session_lost and self._router.needs_session and session.closed_because is None:
                generation = self._state.generation
                await trio.sleep(self._state.delay(trio.current_time()))
                attempt = self._attempt
                if attempt is None and generation == self._state.generation and self._state.is_open:
                    attempt = self._begin()
                if attempt is None:
                    continue
                await attempt.done.wait()
                if attempt.failure is not None:
                    session.records.log("the session was lost, and could not be reopened: %s", attempt.failure)
                    # Then nothing waits for a session any more, unless it is a host behind a proxy.
                    if would_fail_again(attempt.failure):
                        why = f"the session was lost, and could not be reopened: {attempt.failure}"
                        self._router.end_subscriptions(why)
        finally:
            self._state.is_watched = False

    def attempt(self) -> ReopenAttempt:
        """Return the attempt to open the session that was lost, which may begin now.

        While a task of the link tries again and again, an attempt that has failed just now counts for a request that comes
        then.

        Raises:
            Disconnected: the link is not open.
        """
        if self._attempt is not None:
            return self._attempt
        if self._failed is not None and self._state.is_watched:
            attempt, at = self._failed
            if trio.current_time() - at < LEAST_PAUSE:
                return attempt
        return self._begin()

    def _begin(self) -> ReopenAttempt:
        # The attempt runs in a task of the link and not in the first caller's: a cancel of that caller would leave the others
        # without a session, and the server with half of a handshake.
        attempt = ReopenAttempt()
        self._link.start(partial(self._attempt_to_reopen, attempt))
        self._state.move(LinkEvent.REOPEN)
        self._attempt = attempt
        return attempt

    async def _attempt_to_reopen(self, attempt: ReopenAttempt) -> None:
        self._failed = None
        try:
            dialect = self._link.dialect
            await dialect.reopen()
            attempt.answered.set()
            self._state.move(LinkEvent.INITIALIZED)
            await dialect.apply_log_level()
            await dialect.listeners.restore(self._link.session)
            attempt.failure = None
        except Exception as error:  # noqa: BLE001  raised where the session is waited for
            attempt.failure = without_traceback(error)
            self._failed = attempt, trio.current_time()
        finally:
            self._attempt = None
            self._state.end_attempt(trio.current_time())
            attempt.end()
