"""Requests that wait for their answers: where each answer goes, and which of them are open on a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ..protocol.jsonrpc import Encoded, ErrorDetail, ErrorResponse, RequestId, Response
from ..runtime import CancelReason, Outbox
from .envelope import Envelope

LegOutcome: TypeAlias = Encoded | ErrorDetail | None
"""How a leg of a call ended: a result, an error, or nothing because its client cancelled it."""


class Answering(Protocol):
    """The work that will answer a request."""

    @property
    def method(self) -> str:
        """The method of the request."""
        ...

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:
        """Stop answering this request; the work is cancelled unless another request waits for it too."""
        ...

    def disconnect(self, target: ReplyTarget) -> None:
        """Forget a request whose reply cannot be delivered any more; otherwise like `withdraw`."""
        ...


@dataclass(slots=True, eq=False)
class ReplyTarget:
    """One request id and the outbox its reply goes to; `owns_outbox` if the outbox serves nothing but this request."""

    request_id: RequestId
    outbox: Outbox[Envelope]
    owns_outbox: bool = False
    on_finished: Callable[[ReplyTarget], None] | None = None
    work: Answering | None = field(default=None, init=False)
    """What will answer the request; None before it has started, and after the end."""
    finished: bool = field(default=False, init=False)
    """The reply was sent, or there will be none."""
    end_response: Callable[[float | None], Awaitable[None]] | None = field(default=None, init=False)
    """Ends the stream that the reply would go out on; the argument is the seconds the client waits before it asks for the
    rest. None where a stream cannot be ended early."""

    def finish(self, outcome: LegOutcome) -> None:
        """Send the outcome."""
        self.close()
        if isinstance(outcome, Encoded):
            response = Envelope(Response(self.request_id, outcome), about=self.request_id)
            self.outbox.post(response, last=self.owns_outbox)
        elif outcome is not None:
            error = Envelope(ErrorResponse(self.request_id, outcome), about=self.request_id)
            self.outbox.post(error, last=self.owns_outbox)
        elif self.owns_outbox:
            self.outbox.close()

    def close(self) -> None:
        """Take the request off the list of open ones."""
        self.finished = True
        # Both know this target: without a reference back, nothing is left to the garbage collector.
        self.work = self.end_response = None
        if self.on_finished is not None:
            self.on_finished(self)


class OpenRequests:
    """The requests of one connection that wait for a reply; every step takes constant time, however many there are.

    Usually an id is open once. Over HTTP a legacy client may use one id for several requests at a time, and an id whose
    request was cancelled may be used again while the cancelled call cleans up.
    """

    __slots__ = ("_cancelled", "_first", "_further")

    def __init__(self) -> None:
        self._first: dict[RequestId, ReplyTarget] = {}
        self._further: dict[RequestId, dict[ReplyTarget, None]] = {}
        self._cancelled: dict[ReplyTarget, None] = {}

    def add(self, target: ReplyTarget) -> None:
        if target.request_id in self._first:
            self._further.setdefault(target.request_id, {})[target] = None
        else:
            self._first[target.request_id] = target

    def take(self, request_id: RequestId) -> ReplyTarget | None:
        """Return the oldest request of this id, for a cancel; it stays open, and its id is free for another request."""
        target = self._first.pop(request_id, None)
        if target is not None:
            self._cancelled[target] = None
            self._promote(request_id)
        return target

    def discard(self, target: ReplyTarget) -> bool:
        """Remove a request; returns whether its id was still in use by it."""
        request_id = target.request_id
        if self._first.get(request_id) is target:
            del self._first[request_id]
            self._promote(request_id)
            return True
        if target in self._cancelled:
            del self._cancelled[target]
            return False
        further = self._further.get(request_id)
        if further is None or target not in further:
            return False
        del further[target]
        if not further:
            del self._further[request_id]
        return True

    def _promote(self, request_id: RequestId) -> None:
        further = self._further.get(request_id)
        if further is None:
            return
        oldest = next(iter(further))
        del further[oldest]
        self._first[request_id] = oldest
        if not further:
            del self._further[request_id]

    def __iter__(self) -> Iterator[ReplyTarget]:
        yield from self._cancelled
        yield from self._first.values()
        for further in self._further.values():
            yield from further

    def __bool__(self) -> bool:
        return bool(self._first or self._cancelled)

    def __len__(self) -> int:
        return len(self._first) + len(self._cancelled) + sum(map(len, self._further.values()))
