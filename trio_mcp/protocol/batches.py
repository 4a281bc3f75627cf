"""Batches (2025-03-26): what they may hold; and which request a response without its id belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from typing import TypeAlias

from ..errors import RemoteProtocolError
from .codec.reading import classify
from .jsonrpc import INVALID_REQUEST, ErrorResponse, Malformed, Message, Request, RequestId


def checked_in_batch(message: Message | Malformed, ids: Mapping[RequestId, int]) -> Message | Malformed:
    """Return the message, or why no batch can hold this request. An id may occur once, since the answers have no order."""
    if not isinstance(message, Request):
        return message
    if ids[message.id] > 1:
        problem = f"the request id {message.id!r} stands more than once in this batch"
    elif message.method == "initialize":
        problem = "initialize cannot be part of a batch"
    elif classify(message).meta is not None:
        problem = "a request that names its revision in params._meta cannot be part of a batch: send it by itself"
    else:
        return message
    return Malformed(RemoteProtocolError(problem, code=INVALID_REQUEST, request_id=message.id))


# Answers that do not say which request of ours they belong to, and which request they turn out to belong to.

# One of the requests that are open when such an answer comes will get no other. Which one it is shows when as many of them are
# left as such answers came: those fail, each with one of them. Until then all may still be answered.
#
#     requests 1, 2 and 3 are open      suspects        lost
#     an error without an id            1, 2, 3         error
#     the answer to 2                   1, 3            error
#     request 4 is sent, and answered   1, 3            error
#     the answer to 1                   3, which fails with the error


Lost: TypeAlias = Malformed | ErrorResponse


class LostAnswers:
    """Those of one connection whose requests are not known yet. It holds no more of them than there are open requests."""

    __slots__ = ("_suspects", "lost")

    def __init__(self) -> None:
        self.lost: list[Lost] = []
        """The answers, in the order in which they came; only this class changes it."""
        self._suspects: set[RequestId] = set()

    def add(self, lost: Lost, open_ids: AbstractSet[RequestId]) -> tuple[Lost, ...]:
        """Add an answer; return it, and those before it, as the answers to the open requests, if these are known now."""
        self.lost.append(lost)
        self._suspects = set(open_ids)
        return self._known()

    def answered(self, request_id: RequestId | None, open_ids: AbstractSet[RequestId]) -> tuple[Lost, ...]:
        """Note that this request has an answer; return the lost answers with their requests' ids, if these are known now."""
        if request_id not in self._suspects:
            return ()
        self._suspects &= open_ids
        self._suspects.discard(request_id)
        return self._known()

    def withdrawn(self, request_id: RequestId) -> None:
        """Note that nothing waits for this request any more; the lost answer may have been that to it."""
        if request_id in self._suspects and self.lost:
            self._suspects.discard(request_id)
            self.lost.pop()

    def _known(self) -> tuple[Lost, ...]:
        if len(self._suspects) > len(self.lost):
            return ()
        lost, self.lost = self.lost, []
        # The ids of a connection are numbers, given in order.
        return tuple([_answer_to(id, each) for each, id in zip(lost, sorted(self._suspects, key=str), strict=False)])


def _answer_to(request_id: RequestId, lost: Lost) -> Lost:
    return Malformed(lost.error, request_id) if isinstance(lost, Malformed) else lost._replace(id=request_id)
