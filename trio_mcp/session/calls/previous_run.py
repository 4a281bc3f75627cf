"""What is known of a call that a process before this one has begun, for the run that carries it on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from ...base.logs import RepeatedRecords
from ...base.named_tuples import NamedTuple
from ...errors import CallLost, StepMayHaveRun, without_traceback
from ...protocol.jsonrpc import RequestId
from ...runtime import Actor, EntryKind, JournalEntry, Lane
from ...storage import EventsGone, Store, UnreadableRecord
from ...types import Model
from ..recovery.stored_journal import LOG_KIND, decoded_entry
from .call import Body, Call, Plan
from .facts import ResumeMode

PAGE: Final = 256
"""Entries of a log that are read at once."""


class PreviousRequest(NamedTuple):
    """A request that an earlier run of a call sent, and that may still be on the user's screen.

    Attributes:
        fingerprint: tells its question from another one under the same key.
        in_turn: it is for the user, who gets one at a time.
    """

    id: RequestId
    method: str
    fingerprint: str
    in_turn: bool


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """One run of a call, which ended with its process.

    Attributes:
        entries: what it recorded.
        requests: what it asked and has no answer yet, by the keys of the questions.
        begun: the steps that were running, as they are named in the journal.
        logged: how many entries its log has.
        progress: the last value that was reported to its client; None if there was none.
        is_readable: its log could be read; if not, nothing of the others is known.
    """

    entries: tuple[JournalEntry, ...] = ()
    requests: Mapping[str, PreviousRequest] = field(default_factory=dict[str, PreviousRequest])
    begun: tuple[str, ...] = ()
    logged: int = 0
    progress: float | None = None
    is_readable: bool = True

    def loss(self, plan: Plan, *, always_replay: bool = False) -> CallLost | None:
        """Return the error of a call that must not be replayed, None if it may."""
        if not self.is_readable:
            return CallLost(UNREADABLE)
        if plan.resume is ResumeMode.PARKED and not always_replay:
            return CallLost(RESTARTED)
        return self.unknown_step(plan)

    def unknown_step(self, plan: Plan) -> CallLost | None:
        """Return the error of a call that was running a step, which must not run twice; None if it may be replayed."""
        if not self.begun or plan.repeatable:
            return None
        # What comes before the name is the path of the branch.
        path, colon, name = self.begun[0].partition(":")
        return StepMayHaveRun(name if colon else path)


async def left_run(store: Store, key: str, records: RepeatedRecords) -> PreviousRun:
    """Return what a run has left in its log; a log that cannot be read is reported, and ends its own call only.

    Raises:
        StoreError: whatever else the store raises.
    """
    try:
        return earlier_run(await read_log(store, key))
    except (ValueError, TypeError, UnreadableRecord) as error:
        records.log(UNREADABLE_CALL, level=logging.ERROR, exc_info=error)
        return PreviousRun(is_readable=False)


async def read_log(store: Store, key: str) -> list[JournalEntry]:
    """Return what is in the log of a call; nothing if it has none.

    Raises:
        StoreError: whatever the store raises.
        ValueError, TypeError: another version of this package wrote it.
    """
    entries: list[JournalEntry] = []
    with suppress(EventsGone):
        while page := await store.entries(LOG_KIND, key, len(entries), PAGE):
            entries += [decoded_entry(data) for data in page]
    return entries


def earlier_run(logged: Sequence[JournalEntry], recorded: Iterable[JournalEntry] = ()) -> PreviousRun:
    """Return what a run has left.

    Args:
        logged: its log.
        recorded: what it had recorded before the log began.
    """
    entries = {(entry.kind, entry.name): entry for entry in recorded}
    requests: dict[str, PreviousRequest] = {}
    begun: dict[str, None] = {}
    for entry in logged:
        match entry.kind:
            case EntryKind.INTENT:
                begun[entry.name] = None
                continue
            case EntryKind.FAILED:
                begun.pop(entry.name, None)
                continue
            case EntryKind.ASKED:
                request_id, method, in_turn = cast("tuple[RequestId, str, bool]", entry.value)
                requests[entry.name] = PreviousRequest(request_id, method, entry.digest, in_turn)
                continue
            case EntryKind.STEP:
                begun.pop(entry.name, None)
            case EntryKind.ANSWER | EntryKind.REJECTED | EntryKind.WITHDRAWN:
                requests.pop(entry.name, None)
            case EntryKind.NUMBER:
                pass
        if entry.kind is not EntryKind.WITHDRAWN:
            # The newest counts: the body may have asked something else in its place.
            entries.pop((entry.kind, entry.name), None)
            entries[entry.kind, entry.name] = entry
    return PreviousRun(tuple(entries.values()), requests, tuple(begun), len(logged))


RESTARTED: Final = (
    "This call was lost: the server was restarted while it ran. Nothing more of it was run; what it did before stays done. "
    "Start it again if that is safe."
)


UNREADABLE_CALL: Final = "a stored call cannot be read, and does not go on"
"""The line for the log of the server."""

UNREADABLE: Final = (
    "This call was lost: the server was restarted while it ran, and what it had recorded cannot be read. Nothing more of it was "
    "run; what it did before stays done. Start it again if that is safe."
)


def failing_body(error: Exception) -> Body:
    """Return a body that only raises an error."""

    async def body(_call: Call, _place: Actor | Lane) -> Model:
        # A copy: this one is held by the frame that its traceback would hold.
        raise without_traceback(error)

    return body
