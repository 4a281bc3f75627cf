"""What a call reports to its client: log messages, progress, and the heartbeat between reports of progress.

The values of one progress token must rise (L-PRG-1b). An author's value that does not rise is dropped with a warning. It is
compared with the author's own values over all legs of the call and whether or not the caller asked for progress, so that a body
does the same in both eras and for every caller.

A heartbeat sends the next float above the last value. It is marked in its `_meta`, so that a client need not show such a number.
An author's value that a heartbeat has reached or passed is sent as the next float above the heartbeat's:

    the author reports 3     sends 3
    a heartbeat              sends 3.0000000000000004
    the author reports 4     sends 4
    the author reports 4     dropped
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from ...base.logs import RepeatedRecords, peer_logger

logger = peer_logger("trio_mcp.call")

DROPPED = "%s: progress must rise, so this report was dropped: %s came after %s"


class ProgressReports:
    """The progress that one call has reported."""

    __slots__ = ("_last", "_records", "_sent", "_shared", "_told_before", "heartbeat", "message", "sent_at", "total")

    def __init__(self, shared: RepeatedRecords) -> None:
        self._shared = shared
        """Bounds what the calls of all clients make the server log."""
        self.total: float | None = None
        self.message: str | None = None
        self.sent_at = trio.current_time()
        """When the last report was sent, or the leg began, on Trio's clock (seconds)."""
        self._last = -math.inf
        """The last value of the author."""
        self._sent = -math.inf
        """The last value that was sent."""
        self._told_before = -math.inf
        """The last value that an earlier run of the call sent; what a replay reports up to there is not news."""
        self._records: RepeatedRecords | None = None
        self.heartbeat: trio.CancelScope | None = None
        """That of the open leg, if it has one; see `end_heartbeat`."""

    def accept(self, target: str, value: float) -> bool:
        """Return whether a value of the author is finite and more than the last one; log the first one that is not.

        Further ones are counted. The log has their number once a minute, and at the end of the call.
        """
        if self._last < value < math.inf:
            self._last = value
            return True
        self._records = self._records or RepeatedRecords(logger, self._shared)
        self._records.log(DROPPED, target, value, self._last)
        return False

    def continue_above(self, value: float) -> None:
        """Send only what is above this value, which an earlier run of the call has sent."""
        self._told_before = self._sent = value

    def report(
        self, target: str, value: float, total: float | None, message: str | None, *, is_wanted: bool
    ) -> float | None:
        """Accept a report of the author, and return the value that is sent for it; None if nothing is sent.

        Args:
            is_wanted: whether it is sent, if it is news: as it is, or as the next float above the last heartbeat if that is more.
        """
        if not self.accept(target, value) or not is_wanted:
            return None
        self.total, self.message = total, message
        if value <= self._told_before:
            return None
        return self._send(value if value > self._sent else next_float(self._sent))

    def heartbeat_value(self) -> float | None:
        """Return the value of a heartbeat: the next float above the last value that was sent, 0 before the first."""
        return self._send(0.0 if self._sent == -math.inf else next_float(self._sent))

    def _send(self, value: float) -> float | None:
        if not value < math.inf:
            return None
        self._sent = value
        self.sent_at = trio.current_time()
        return value

    def begin_heartbeat(self) -> trio.CancelScope:
        """Return the scope for the heartbeat of a leg that begins now."""
        self.sent_at = trio.current_time()
        self.heartbeat = trio.CancelScope()
        return self.heartbeat

    async def send_heartbeats(self, send: Callable[[], None], seconds: float, leg: trio.CancelScope) -> None:
        """Call `send` whenever nothing was reported for this long, until the leg is cancelled."""
        with leg:
            while True:
                due = self.sent_at + seconds
                await trio.sleep_until(due)
                # The body may have reported meanwhile, which puts the heartbeat off.
                if self.sent_at + seconds <= due:
                    self.sent_at = trio.current_time()
                    send()

    def end_heartbeat(self) -> None:
        """End the heartbeat, if there is one, because the leg has ended."""
        if self.heartbeat is not None:
            # Not `cancel()`, which would keep the frames of its callers, and with them the result, until the task runs.
            self.heartbeat.deadline = -math.inf
            self.heartbeat = None

    def close(self) -> None:
        """Log how many reports were only counted; the call is over."""
        if self._records is not None:
            self._records.close()


def next_float(value: float) -> float:
    """Return the next float above a number, which may be a large int; infinity if there is none."""
    try:
        return math.nextafter(value, math.inf)
    except OverflowError:
        return math.inf
