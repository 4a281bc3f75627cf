"""The state of a link: where its life and the life of its session stand, as a table. No I/O."""

# A link lives once: it opens, it is open, it closes. Below that, a legacy session may be lost at the server while the
# connection stays (L-HTTP-18s). The link then opens another one, in one attempt that all who need the session share.
#
#   state       | START    OPENED  SESSION_LOST  REOPEN     INITIALIZED  ATTEMPT_ENDED  CLOSE    ENDED
#   ------------+----------------------------------------------------------------------------------------
#   NEW         | OPENING                                                               CLOSED
#   OPENING     |          OPEN    OPENING                                              CLOSING  CLOSED
#   OPEN        |                  LOST          REOPENING                              CLOSING  CLOSED
#   LOST        |                  LOST          REOPENING                              CLOSING  CLOSED
#   REOPENING   |                  REOPENING                RESTORING    LOST           CLOSING  CLOSED
#   RESTORING   |                  REOPENING                             OPEN           CLOSING  CLOSED
#   CLOSING     |          CLOSING CLOSING                  CLOSING      CLOSING        CLOSING  CLOSED
#   CLOSED      |                                                                       CLOSED
#
# An empty cell is an error of this package, and raises.
#
#   SESSION_LOST   the transport learned that the server no longer knows the session. A request may find out first: then REOPEN
#                  comes in OPEN. In OPENING it says nothing new: opening has its own errors.
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

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..backoff import RECONNECT_BACKOFF, STABLE_AFTER


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
    Phase.OPEN: _while_open({LinkEvent.SESSION_LOST: Phase.LOST, LinkEvent.REOPEN: Phase.REOPENING}),
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
