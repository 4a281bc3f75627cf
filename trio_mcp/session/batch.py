"""A batch (2025-03-26): requests that came in one array, and whose answers go back in one array.

Only the answers wait for each other. What a request says on its way (progress, logs, questions) goes out at once, as it does
for any other.
"""

from __future__ import annotations

from ..protocol.jsonrpc import Answers, Encoded, ErrorResponse, RequestId, Response
from ..runtime import Outbox
from .envelope import Envelope
from .replies import LegOutcome, OpenRequests, ReplyTarget

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


class OpenBatch:
    """A batch that has not been answered yet.

    Args:
        outbox: where the answers go.
        owns_outbox: the outbox serves nothing but this batch; it is closed when the batch has had its answers.
    """

    __slots__ = ("_answers", "_open", "_owns_outbox", "outbox", "reply_targets")

    def __init__(self, outbox: Outbox[Envelope], *, owns_outbox: bool = False) -> None:
        self.outbox = outbox
        self.reply_targets: list[BatchReplyTarget] = []
        """Those of its requests that were not refused at once."""
        self._owns_outbox = owns_outbox
        self._answers: list[Response | ErrorResponse] = []
        self._open = 1  # the reader

    @property
    def finished(self) -> bool:
        """It has had its answers, or will get none."""
        return not self._open

    def reply_target(self, request_id: RequestId, open_requests: OpenRequests) -> BatchReplyTarget:
        """Expect an answer to this request of the batch."""
        target = BatchReplyTarget(request_id, self, open_requests)
        self.reply_targets.append(target)
        self.expect()
        return target

    def expect(self) -> None:
        """One more request is to be settled."""
        self._open += 1

    def settle(self, answer: Response | ErrorResponse | None) -> None:
        """A request has its answer, or will get none; the last one sends what there is."""
        if answer is not None:
            self._answers.append(answer)
        self._open -= 1
        if not self._open:
            self._send()

    def all_read(self) -> bool:
        """Every message has been read; returns whether the batch gets an answer, now or later. It may still end without one."""
        waits = bool(self._answers) or bool(self.reply_targets)
        self.settle(None)
        return waits

    def _send(self) -> None:
        """Nothing for a batch whose requests were all cancelled: an array is never empty (JSON-RPC 2.0, 6)."""
        if self._answers:
            self.outbox.post(Envelope(Answers(tuple(self._answers))))
        if self._owns_outbox:
            self.outbox.close()

    def __repr__(self) -> str:
        return f"<OpenBatch open={self._open} answers={len(self._answers)}>"


class BatchReplyTarget(ReplyTarget):
    """One request of a batch: what it says goes out at once, its answer waits for the others."""

    __slots__ = ("_batch",)

    def __init__(self, request_id: RequestId, batch: OpenBatch, open_requests: OpenRequests) -> None:
        super().__init__(request_id, batch.outbox, open_requests=open_requests)
        self._batch: OpenBatch | None = batch

    def finish(self, outcome: LegOutcome) -> None:
        """Hand the outcome to the batch."""
        self.close()
        batch, self._batch = self._batch, None  # which knows all its listeners: nothing is left to the collector
        if batch is None:
            return
        if isinstance(outcome, Encoded):
            batch.settle(Response(self.request_id, outcome))
        else:
            batch.settle(None if outcome is None else ErrorResponse(self.request_id, outcome))
