"""A batch (2025-03-26): requests that came in one array, and whose answers go back in one array.

Only the replies wait for each other. Messages about a running request (progress, logs, questions) are sent immediately, as they
are for any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..protocol.jsonrpc import Answers, ErrorResponse, RequestId, Response
from ..runtime import Outbox
from ..runtime.loop_turn import LoopTurn
from .envelope import Envelope, content_size
from .replies import LegOutcome, OpenRequests, ReplyTarget, reply_of

# A batch counts what it still waits for, and itself while it is read:
#
#     a batch of two requests and a bad message     open
#     the batch comes in                            1        the reader
#     request 1: reply_target                       2
#     request 1 is answered at once: settle         1        not 0, although every request so far has its answer
#     a bad message: expect, settle                 1        its answer is kept with the others
#     request 2: reply_target                       2
#     all_read                                      1
#     request 2 is answered: settle                 0        the array is sent


@dataclass(slots=True, eq=False, repr=False)
class OpenBatch:
    """A batch that has not been answered yet.

    Args:
        outbox: where the replies are sent.
        owns_outbox: the outbox is used for this batch only; it is closed when the batch has its replies.
    """

    outbox: Outbox[Envelope]
    owns_outbox: bool = False
    read_more: Callable[[OpenBatch], None] | None = field(default=None, init=False)
    """Processes its next messages, until the turn of the event loop is over; None when all have been processed."""
    reply_targets: list[BatchReplyTarget] = field(default_factory=list, init=False)
    """Those of its requests that were not rejected immediately."""
    _answers: list[Response | ErrorResponse] = field(default_factory=list, init=False)
    _open: int = field(default=1, init=False)  # the reader
    _drawn: int = field(default=0, init=False)

    @property
    def finished(self) -> bool:
        """Whether the batch has its replies, or will get none."""
        return not self._open

    @property
    def expects_reply(self) -> bool:
        """Whether a reply to what was read of it has been sent, or may still be."""
        return bool(self._answers) or bool(self.reply_targets)

    def reply_target(self, request_id: RequestId, open_requests: OpenRequests) -> BatchReplyTarget:
        """Expect an answer to this request of the batch."""
        target = BatchReplyTarget(request_id, self.outbox, open_requests=open_requests, batch=self)
        self.reply_targets.append(target)
        self.expect()
        return target

    def expect(self) -> None:
        """Count one more request that must be settled."""
        self._open += 1

    def settle(self, answer: Response | ErrorResponse | None) -> None:
        """Record the reply to a request, or that it gets none; the last one sends the array."""
        if answer is not None:
            self._answers.append(answer)
            self._count(content_size(answer))
        self._open -= 1
        if not self._open:
            self._send()

    async def read_rest(self, turn: LoopTurn) -> None:
        """Process the messages that were left for another turn of the event loop.

        A cancel leaves the batch without a reply; the session's end cancels its calls.
        """
        while self.read_more is not None:
            if turn.is_over:
                await turn.pass_on()
            self.read_more(self)

    def all_read(self) -> None:
        """Note that every message has been read."""
        self.read_more = None
        self.settle(None)

    def _count(self, size: int) -> None:
        """Count what the batch holds until its last answer has come; then its outbox does."""
        if self.outbox.account is not None:
            self.outbox.account.draw(size)
            self._drawn += size

    def _send(self) -> None:
        """Nothing for a batch whose requests were all cancelled: an array is never empty (JSON-RPC 2.0, 6)."""
        self._count(-self._drawn)
        if self._answers:
            self.outbox.post(Envelope(Answers(tuple(self._answers))), last=self.owns_outbox)
        elif self.owns_outbox:
            self.outbox.close()


@dataclass(slots=True, eq=False)
class BatchReplyTarget(ReplyTarget):
    """One request of a batch: messages about it go out immediately, its answer waits for the others."""

    batch: OpenBatch | None = None

    def finish(self, outcome: LegOutcome) -> None:
        """Hand the outcome to the batch."""
        outcome = self.sendable(outcome)
        if self.operation is not None:
            self.operation.answered(outcome)
        self.close()
        # The batch knows its targets: without a reference back, nothing is left to the garbage collector.
        batch, self.batch = self.batch, None
        if batch is not None:
            batch.settle(reply_of(self.request_id, outcome))
