"""Requests that wait for their answers: where each answer goes, and which of them are open on a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import trio

from .. import telemetry
from ..base.values import make_tuple
from ..errors import LimitExceeded
from ..protocol.jsonrpc import (
    SERVER_BUSY,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
)
from ..runtime import CancelReason, Outbox
from ..storage import Change
from ..types import Model
from .envelope import ANONYMOUS, Envelope, content_size

LegOutcome: TypeAlias = Encoded | ErrorDetail | None
"""How a leg of a call ended: a result, an error, or nothing because its client cancelled it."""


def reply_of(request_id: RequestId, outcome: LegOutcome) -> Response | ErrorResponse | None:
    """Return the message that an outcome is sent as; None if it is not sent."""
    if outcome is None:
        return None
    if isinstance(outcome, Encoded):
        return make_tuple(Response, (request_id, outcome))
    return ErrorResponse(request_id, outcome)


class OutcomeKeeper(Protocol):
    """What keeps the outcome of a call for repeats of its request: its idempotency key."""

    @property
    def is_stored(self) -> bool:
        """Whether the next process gets the outcome too, or goes on with the call."""
        ...

    def end_leg(self, outcome: LegOutcome, targets: Sequence[ReplyTarget]) -> bool:
        """Keep the outcome of the first leg; those of later ones are found by the state that leads to them.

        Returns:
            whether it is sent to the targets from here, once it is stored.
        """
        ...

    def end(self) -> None:
        """The call is over."""

    def handing_over(self) -> Sequence[Change]:
        """Return the changes after which nothing is run under the key any more, because a session goes on with the call."""
        ...

    def handed_over(self) -> None:
        """Note that these changes were made."""


class Answering(Protocol):
    """The work that will answer a request."""

    @property
    def method(self) -> str:
        """The method of the request."""
        ...

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:
        """Stop answering this request; the work is cancelled unless another request waits for it too."""

    def disconnect(self, target: ReplyTarget) -> None:
        """Forget a request whose reply cannot be delivered any more; otherwise like `withdraw`."""


@dataclass(slots=True, eq=False, repr=False)
class ReplyTarget:
    """One request id and the outbox its reply goes to; `owns_outbox` if the outbox is used for this request only."""

    request_id: RequestId
    outbox: Outbox[Envelope]
    owns_outbox: bool = False
    open_requests: OpenRequests | None = None
    """The table that the request is removed from at its end."""
    work: Answering | None = field(default=None, init=False)
    """What will answer the request; None before it has started, and after the end."""
    finished: bool = field(default=False, init=False)
    """The reply was sent, or there will be none."""
    params: Model | None = field(default=None, init=False)
    """Those of the request, where a store may keep it for the next process; None elsewhere, and after the end."""
    end_response: Callable[[float | None], Awaitable[None]] | None = field(default=None, init=False)
    """Ends the stream that the reply would go out on; the argument is the seconds the client waits before it asks for the
    rest. None where a stream cannot be ended early."""
    operation: telemetry.Operation | None = field(default=None, init=False)
    """Its span; None without telemetry, and after the end."""
    fallback: ErrorDetail | None = field(default=None, init=False)
    """The reply if the work has no outcome for the client; None: there is no reply then."""

    @property
    def about(self) -> RequestId | None:
        """The request that messages on the way are about."""
        return self.request_id

    @property
    def caller(self) -> Hashable | None:
        """Whose request it is, for the limits that callers share; see `Account`."""
        account = self.outbox.account
        return None if account is None else account.caller

    def check_room(self, size: int) -> None:
        """Raise `LimitExceeded` if the memory budget has no room for a message of this size about the request."""
        account = self.outbox.account
        if account is not None:
            account.check(size)

    async def send(self, message: Notification | Request) -> None:
        """Send a message about the request; waits while its reader is slow. A cancel while waiting leaves it unsent.

        Raises:
            LimitExceeded: the memory budget has no room for it."""
        self.check_room(content_size(message))
        await self.outbox.send(make_tuple(Envelope, (message, self.about, ANONYMOUS, 0, False)))

    def post(self, message: Notification | Request) -> None:
        """Queue such a message without waiting, whether or not there is room."""
        self.outbox.post(make_tuple(Envelope, (message, self.about, ANONYMOUS, 0, False)), unasked=True)

    def finish(self, outcome: LegOutcome) -> None:
        """Send the outcome, or what `sendable` returns in place of it."""
        outcome = self.sendable(outcome)
        if self.operation is not None:
            self.operation.answered(outcome)
        # First: a task that the reply wakes may look at the table, or use the id again.
        self.close()
        request_id = self.request_id
        reply = reply_of(request_id, outcome)
        if reply is not None:
            envelope = make_tuple(Envelope, (reply, request_id, ANONYMOUS, 0, False))
            self.outbox.post(envelope, last=self.owns_outbox)
        elif self.owns_outbox:
            self.outbox.close()

    def sendable(self, outcome: LegOutcome) -> LegOutcome:
        """Return the outcome, or the error to send in place of it if there is none, or the memory budget has no room."""
        if outcome is None:
            return self.fallback
        account = self.outbox.account
        if isinstance(outcome, Encoded) and account is not None:
            try:
                account.check(len(outcome.raw))
            except LimitExceeded as error:
                return ErrorDetail(SERVER_BUSY, f"the result of {len(outcome.raw)} bytes cannot be sent: {error}")
        return outcome

    def close(self) -> None:
        """Remove the request from the open ones."""
        self.finished = True
        if self.operation is not None:
            self._end_operation(self.operation)
        # Both know this target: without a reference back, nothing is left to the garbage collector.
        self.work = self.params = self.end_response = None
        if self.open_requests is not None:
            self.open_requests.discard(self)

    def _end_operation(self, operation: telemetry.Operation) -> None:
        self.operation = None
        # Only a call has them.
        details: Mapping[str, str | bool | int] | None = getattr(self.work, "span_details", None)
        operation.end(details)


@dataclass(slots=True, eq=False, repr=False)
class OwnTarget(ReplyTarget):
    """Where the messages of a call go that answers no request: the own channel of its session. Its outcome is sent nowhere."""

    request_id: RequestId = field(default=0, init=False)
    outbox: Outbox[Envelope]
    on_closed: Callable[[OwnTarget], object] | None = field(default=None, init=False)

    @property
    def about(self) -> None:
        return None

    def finish(self, outcome: LegOutcome) -> None:  # noqa: ARG002
        self.close()

    def close(self) -> None:
        ReplyTarget.close(self)
        if self.on_closed is not None:
            self.on_closed(self)


# Where a request is in the table; `count` is the number of all of them:
#
#     event                    what happens
#     add, of a free id        it becomes the one in `_first`
#     add, of an id in use     it goes to `_further`, behind the others of its id
#     take, by a cancel        `_first` -> `_cancelled`; the oldest in `_further` moves up to `_first`
#     discard, at its end      it is removed; from `_first` too, the oldest in `_further` moves up
#
# Three dicts and not a list: a client with ten thousand open requests may cancel each, and to look for each in a list would take
# n² steps. The values of `_further` are dicts because a set does not remember which request is the oldest.


@dataclass(slots=True, eq=False, repr=False)
class OpenRequests:
    """The requests of one connection that wait for a reply; every step takes constant time, however many there are.

    Args:
        ids_in_use: the ids that the connection accepts for no other request; an id is removed when its request is over.

    Usually an id is open once. Over HTTP a legacy client may use one id for several requests at a time, and an id whose
    request was cancelled may be used again while the cancelled call cleans up.
    """

    _ids_in_use: set[RequestId]
    count: int = 0
    """How many are open."""
    _first: dict[RequestId, ReplyTarget] = field(default_factory=dict)
    _further: dict[RequestId, dict[ReplyTarget, None]] = field(default_factory=dict)
    _cancelled: dict[ReplyTarget, None] = field(default_factory=dict)
    _none_left: trio.Event | None = None

    def add(self, target: ReplyTarget) -> None:
        self.count += 1
        if target.request_id in self._first:
            self._further.setdefault(target.request_id, {})[target] = None
        else:
            self._first[target.request_id] = target

    def take(self, request_id: RequestId) -> ReplyTarget | None:
        """Return the oldest request of this id, for a cancel; it stays open, and its id is free for another request."""
        target = self._first.pop(request_id, None)
        if target is not None:
            self._cancelled[target] = None
            self._ids_in_use.discard(request_id)
            self._move_up(request_id)
        return target

    def discard(self, target: ReplyTarget) -> None:
        """Remove a request that is over. Its id may be used again, unless a cancel made it free before."""
        request_id = target.request_id
        if self._first.get(request_id) is target:
            del self._first[request_id]
            self._ids_in_use.discard(request_id)
            if self._further:
                self._move_up(request_id)
        elif target in self._cancelled:
            del self._cancelled[target]
        elif target in self._further.get(request_id, ()):
            further = self._further[request_id]
            del further[target]
            if not further:
                del self._further[request_id]
        else:
            return
        self.count -= 1
        if not self.count and self._none_left is not None:
            self._none_left.set()

    def was_cancelled(self, target: ReplyTarget) -> bool:
        """Return whether the client has cancelled an open request."""
        return target in self._cancelled

    def is_open(self, request_id: RequestId) -> bool:
        """Return whether a request of this id waits for its reply, and was not cancelled."""
        return request_id in self._first

    async def wait_none_left(self) -> None:
        """Wait until every request has been answered or given up."""
        if self.count:
            # Made when a task first waits, and again after it was set, because a session becomes idle after each request.
            if self._none_left is None or self._none_left.is_set():
                self._none_left = trio.Event()
            await self._none_left.wait()

    def _move_up(self, request_id: RequestId) -> None:
        """The oldest request under this id no longer uses it; the next one, if there is one, is the oldest now."""
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

    def __len__(self) -> int:
        return self.count
