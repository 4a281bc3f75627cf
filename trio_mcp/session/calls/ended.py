"""What is kept of a call in rounds that has ended: the encoded outcomes of its legs, for requests that come once more."""

from __future__ import annotations

from ...base.named_tuples import NamedTuple
from ...errors import InvalidRequestState, LimitExceeded
from ...runtime import CancelReason
from ..replies import ReplyTarget
from .failures import SENDER_DISCONNECTED
from .legs import Decision, LegBook
from .memory import StatePayload


class EndedCall(NamedTuple):
    """The leg book of a call that has ended.

    Attributes:
        reason: why its actor was cancelled; None if it was not.
    """

    legs: LegBook
    reason: CancelReason | None

    def is_superseded(self, ended: int, payload: StatePayload) -> bool:
        """Return whether the call went on in another process, to the end of leg `ended`."""
        return self.legs.is_superseded(ended, payload.asked, self.reason)

    def carry_on(self, ended: int, target: ReplyTarget) -> None:
        """Answer a request that carries the call forward from the end of leg `ended`.

        Raises:
            InvalidRequestState: that leg is too long ago, or the call has waited too long.
            LimitExceeded: the server is shutting down.
        """
        decision = self.legs.decide(ended, self.reason)
        if decision is Decision.FINISH:
            self.legs.begin()
            self.legs.end(self.legs.final)
            target.finish(self.legs.final)
        else:
            repeat_or_reject(decision, self.legs, ended, target)


def repeat_or_reject(decision: Decision, legs: LegBook, ended: int, target: ReplyTarget) -> None:
    """Answer a request that starts nothing: with an outcome that was kept, or with the reason why there is none.

    Raises:
        InvalidRequestState, LimitExceeded: see `EndedCall.carry_on`.
    """
    match decision:
        case Decision.REPEAT:
            target.finish(legs.outcome(ended + 1) or SENDER_DISCONNECTED)
        case Decision.GONE:
            target.finish(SENDER_DISCONNECTED)
        case Decision.BUSY:
            raise LimitExceeded("this server is shutting down; send the same request again in a moment")
        case Decision.EXPIRED:
            raise InvalidRequestState("the call has waited too long")
        case _:
            raise InvalidRequestState(f"leg {ended + 1} of a call that is at leg {legs.number}")
