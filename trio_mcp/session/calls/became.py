"""A call that has become a task, as the next process knows it: by the last entry of its log, which has the answer to its request.

The entry is written together with the task. A repeat of the request, which comes to another process after a crash, gets the same
task from there; else the body would run again, and make a second task that does everything once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ...protocol.jsonrpc import Encoded
from ...runtime import EntryKind, JournalEntry
from ...storage import Change
from ..replies import LegOutcome
from .log import CallLog


@dataclass(frozen=True, slots=True)
class LoggedAnswer:
    """The answer to the request of a call that becomes a task, in the log of the call."""

    _log: CallLog

    def creating(self, outcome: LegOutcome) -> Sequence[Change]:
        """Return the changes that store the answer."""
        assert isinstance(outcome, Encoded)
        return [self._log.ending_with(JournalEntry(EntryKind.BECAME, "", outcome.raw.decode()))]

    def taking_back(self) -> Sequence[Change]:
        """Return the changes after which nothing is known of it; the call may go on."""
        return [self._log.ending_with()]


def answer_in(logged: Sequence[JournalEntry]) -> Encoded | None:
    """Return the answer to the request of a call that has become a task, from its log; None if it has not."""
    if not logged or logged[-1].kind is not EntryKind.BECAME:
        return None
    return Encoded(cast("str", logged[-1].value).encode())
