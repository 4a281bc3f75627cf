"""What is known of a call that a process before this one has begun, for the run that carries it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...errors import without_traceback
from ...protocol.jsonrpc import RequestId
from ...runtime import Actor, JournalEntry, Lane
from ...types import Model
from .call import Body, Call
from .facts import ResumeMode


class EarlierRequest(NamedTuple):
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
class EarlierRun:
    """One run of a call, which ended with its process.

    Attributes:
        entries: what it recorded.
        requests: what it asked and has no answer yet, by the keys of the questions.
    """

    entries: tuple[JournalEntry, ...] = ()
    requests: Mapping[str, EarlierRequest] = field(default_factory=dict[str, EarlierRequest])

    def lost_reason(self, mode: ResumeMode) -> str | None:
        """Return why the call cannot be replayed, None if it can."""
        return RESTARTED if mode is ResumeMode.PARKED else None


RESTARTED: Final = (
    "This call was lost: the server was restarted while it ran. Nothing more of it was run; what it did before stays done. "
    "Start it again if that is safe."
)


def failing_body(error: Exception) -> Body:
    """Return a body that only raises an error."""

    async def body(_call: Call, _place: Actor | Lane) -> Model:
        # A copy: this one is held by the frame that its traceback would hold.
        raise without_traceback(error)

    return body
