"""The state of one JSON-RPC connection, for either side, without any I/O.

Messages go in and events come out; intents go in and messages come out. The connection knows which revision a message is
written in: a request that carries a modern `_meta` names its own, everything else follows the one agreed on by
`initialize`. It does not know which side it plays, except for the direction in which a method may travel.

    phase        may receive (legacy methods)             leaves it by
    OPENING      initialize, ping                          a valid initialize (server) or its result (client)
    OPEN         everything; initialize only as before     close
    CLOSED       nothing

Modern requests are valid in every phase but CLOSED: they carry all their context with them (protocol.md M-ST-1s).

A batch, which only 2025-03-26 has, is taken apart: each of its messages is then received by itself.
"""

# A trace of a server's end, on a pipe that speaks both eras (what arrives, and the event that comes out):
#
#     tools/list, id 1                          Rejected    OPENING: neither a session nor a modern `_meta`
#     initialize, id 1, 2025-11-25              RequestIn   OPENING, id 1 is open
#     accept_handshake(...), release_id(1)      -           OPEN, id 1 is free
#     the same initialize, id 2                 RequestIn   answered again; with other params it is Rejected
#     tools/call, id 7, `_meta` 2026-07-28      RequestIn   in any phase: its terms come from its `_meta`
#     tools/call, id 7 again                    Rejected    the id is in use until `release_id(7)`
#     notifications/cancelled of 7              CancelIn    the id stays in use until `release_id(7)`
#     reply to 99, which no request had         StrayReply  counted, and otherwise ignored
#     close(), then anything                    Ignored     CLOSED

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum
from typing import TypeAlias

from .. import types
from ..base.named_tuples import NamedTuple
from ..base.values import make_tuple
from ..errors import (
    Disconnected,
    LocalProtocolError,
    PeerError,
    RemoteProtocolError,
    SessionLost,
    Unreachable,
    without_traceback,
)
from ..types import InitializeRequestParams, JsonObject, Model
from .batches import LostAnswers, checked_in_batch
from .codec import Codec, codec_for
from .codec.models import Dropped, Params, validated
from .codec.reading import CLOSED, Inbound, Phase, RequestTerms, SessionTerms, read_request
from .codec.unknown import UnknownParams, UnknownResult, Unread
from .jsonrpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Answers,
    Batch,
    Encoded,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    as_integer,
    is_request_id,
)
from .revisions import Side


class RequestIn(NamedTuple):
    """The peer asks something of us: `params` are decoded, `terms` say how to answer."""

    id: RequestId
    method: str
    params: Params
    terms: RequestTerms


class NotificationIn(NamedTuple):
    """The peer tells us something."""

    method: str
    params: Model


class CancelIn(NamedTuple):
    """The peer no longer wants the answer to its request `id`."""

    id: RequestId
    reason: str | None


class ReplyIn(NamedTuple):
    """The answer to our request `id`: a decoded result, or the error to raise where it is awaited."""

    id: RequestId
    result: Model | Exception


class BatchIn(NamedTuple):
    """Several messages came together; receive each of them, in order, and answer the requests among them together."""

    messages: tuple[Message | Malformed | Unanswered, ...]


class Rejected(NamedTuple):
    """The message broke a rule; `error` says which, and its `request_id` names the request to answer (None: no answer)."""

    error: RemoteProtocolError
    answer: bool = True


class Ignored:
    """Nothing to do; `why` is for the log."""

    __slots__ = ("why",)
    __match_args__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.why}>"


class StrayKind(Enum):
    """Why a reply matched no open request: its request was withdrawn, was answered, or was never sent on this connection.

    The last may be meant for another session. Perhaps it was sent there, but nothing is delivered from here.
    """

    LATE = "late"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class StrayReply(Ignored):
    """A reply that matches no open request."""

    __slots__ = ("kind",)

    def __init__(self, why: str, kind: StrayKind) -> None:
        super().__init__(why)
        self.kind = kind


class LateTask(StrayReply):
    """A request that was withdrawn has become a task, whose result is not needed."""

    __slots__ = ("task_id",)

    def __init__(self, why: str, task_id: str) -> None:
        super().__init__(why, StrayKind.LATE)
        self.task_id = task_id


Event: TypeAlias = RequestIn | NotificationIn | CancelIn | ReplyIn | BatchIn | Rejected | Ignored


class PendingRequest(NamedTuple):
    """A request of ours that has no answer yet."""

    method: str
    codec: Codec
    may_be_task: bool
    is_unread: bool = False
    """The answer passes unread, as the request did."""


MAX_WITHDRAWN = 1024
"""Withdrawn requests of ours that are remembered, to tell a late answer from a repeated one; the oldest goes first."""


class Connection:
    """One conversation.

    Args:
        peer: which side the other end plays.
        shared_channel: all requests travel on one channel, so two open requests of the peer may not share an id (-32600). Where
            every request has a separate stream (HTTP) they may: hosts exist that number everything 1.
        first_id: the id of our first request; lower ones are those of requests from before a restart.
        unread: which requests and notifications are events with `UnknownParams`, for a proxy that passes them on.
        takes_plain: what serves `tools/call` takes `PlainCall` as its params, too.
    """

    __slots__ = (
        "_lost",
        "_next_id",
        "_peer",
        "_pending",
        "_withdrawn",
        "dropped",
        "notified",
        "open_ids",
        "shared_channel",
        "takes_plain",
        "terms",
        "unread",
    )

    def __init__(
        self,
        peer: Side,
        *,
        shared_channel: bool = True,
        first_id: int = 1,
        unread: Unread = Unread.NONE,
        takes_plain: bool = False,
    ) -> None:
        self._peer = peer
        self.unread = unread
        self.takes_plain = takes_plain
        self.shared_channel = shared_channel
        self.terms = SessionTerms()
        """What the handshake has agreed on; the newest legacy revision before that."""
        self.open_ids: set[RequestId] = set()
        """The ids of the peer's open requests; an id is removed when its request is over."""
        self._pending: dict[RequestId, PendingRequest] = {}
        self._next_id = first_id - 1
        self._withdrawn: dict[RequestId, PendingRequest] = {}
        self._lost = LostAnswers()
        self.dropped: list[Dropped] | None = [] if peer is Side.SERVER else None
        """The invalid items removed from results since this list was last emptied; a server rejects such answers instead."""
        self.notified = False
        """Whether a notification was sent to the peer since it last answered a request: some peers answer those too."""

    def accept_handshake(self, params: InitializeRequestParams, version: str) -> None:
        """Open the session that a client asked for, with the revision that was chosen for it."""
        self.set_version(version)
        self.terms.proposed_version = params.protocol_version
        self.terms.client_capabilities = params.capabilities
        self.terms.client_info = params.client_info

    def set_version(self, version: str) -> None:
        """Open the session with the revision that the handshake has chosen."""
        self.terms.codec = codec_for(version)
        self.terms.phase = Phase.OPEN

    def close(self) -> list[RequestId]:
        """Close the connection, and return the ids of our requests that will never be answered."""
        self.terms.phase = Phase.CLOSED
        lost = list(self._pending)
        self._pending.clear()
        self.open_ids.clear()
        return lost

    # messages in

    def receive(self, message: Message | Answers | Malformed | Unanswered, inbound: Inbound | None = None) -> Event:
        """Work out what a message means. Never raises for anything a peer may send.

        Args:
            inbound: the same message, if it was classified before.
        """
        if self.terms.phase is CLOSED:
            return Ignored("the connection is closed")
        if self._lost.lost and (lost := self._with_lost(message)) is not None:
            return lost
        try:
            # Nearly every message; it costs less than a case of the statement below.
            if isinstance(message, Request):
                return self._request(message, inbound)
            match message:
                case Notification():
                    return self._notification(message)
                case Response() | ErrorResponse():
                    return self._reply(message)
                case Batch():
                    return self._batch(message)
                case Malformed(error, None, is_answer=True) if self._pending:
                    return Rejected(error) if self._answers_notification() else self._lose(message)
                case Malformed(error, answers):
                    may_be_request = error.request_id is not None or message.is_cut
                    if answers is None or (may_be_request and answers not in self._pending):
                        return Rejected(error)
                    return self._failed(answers, error)
                case Unanswered():
                    return self._unanswered(message)
                case Answers():
                    raise LocalProtocolError("an array is received as a Batch")
        except RemoteProtocolError as error:
            if isinstance(message, Request):
                error.request_id = message.id
            return Rejected(without_traceback(error), answer=isinstance(message, Request))

    def skip_ids(self, last: int) -> None:
        """Give the next request of ours an id above this one: there may still be answers to those of an earlier session."""
        self._next_id = last

    def release_id(self, request_id: RequestId) -> None:
        """Let the peer use the id of its request again: our answer is on its way, or there will be none."""
        self.open_ids.discard(request_id)

    # messages out

    def new_request(
        self, method: str, params: Model | JsonObject, codec: Codec | None = None, result_method: str | None = None
    ) -> Request:
        """Return a new request, with an id that is unique for the life of the connection (L-RPC-2b).

        Args:
            params: a model, or the members of a request that passes unread.
            result_method: of the request whose result answers this one, as with `tasks/result`; None for `method`.
        """
        if self.terms.phase is Phase.CLOSED:
            raise LocalProtocolError("the connection is closed")
        codec = codec or self.terms.codec
        if type(params) is UnknownParams:
            params = params.wire()
        encoded, may_be_task = codec.new_request(method, params)
        self._next_id += 1
        self._pending[self._next_id] = PendingRequest(
            result_method or method, codec, may_be_task, isinstance(params, dict)
        )
        return make_tuple(Request, (self._next_id, method, encoded))

    def wait_again(self, request_id: RequestId, method: str) -> None:
        """Wait for the answer to a request that this side sent before it was restarted; nothing is sent."""
        self._pending[request_id] = PendingRequest(method, self.terms.codec, may_be_task=True)

    @property
    def unanswered(self) -> Collection[RequestId]:
        """The ids of our requests that have no answer yet, now and later."""
        return self._pending.keys()

    def method_of(self, request_id: RequestId) -> str:
        """Return the method of a request of ours that has no answer yet."""
        return self._pending[request_id].method

    def withdraw(self, request_id: RequestId, reason: str) -> Notification | None:
        """Stop waiting for an answer; return the notification for the peer, or None if it has answered or must get none.

        `initialize` is never cancelled (L-CAN-1b).
        """
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return None
        self._lost.withdrawn(request_id)
        self._withdrawn[request_id] = pending
        if len(self._withdrawn) > MAX_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]
        if pending.method == "initialize":
            return None
        method, params = (
            "notifications/cancelled",
            types.CancelledNotificationParams(request_id=request_id, reason=reason),
        )
        return Notification(method, pending.codec.encode_notification(method, params))

    # one step each

    def _request(self, message: Request, inbound: Inbound | None) -> RequestIn:
        terms, params = read_request(
            message, inbound, self.terms, self._peer, self.unread, takes_plain=self.takes_plain
        )
        request_id, method, _ = message
        if self.shared_channel:
            if request_id in self.open_ids:
                in_use = f"the request id {request_id!r} is in use by a request that is still open"
                raise RemoteProtocolError(in_use, code=INVALID_REQUEST)
            self.open_ids.add(request_id)
        return make_tuple(RequestIn, (request_id, method, params, terms))

    def _notification(self, message: Notification) -> Event:
        params = message.params
        assert not isinstance(params, Encoded)
        decoded = self.terms.codec.decode_notification(message.method, params, sender=self._peer, unread=self.unread)
        if decoded is None:
            return Ignored(f"unknown notification {message.method}")
        # The type is loaded with the first cancellation.
        if message.method == "notifications/cancelled" and isinstance(decoded, types.CancelledNotificationParams):
            if decoded.request_id is None:
                return Ignored("a cancellation that names no request")
            return CancelIn(decoded.request_id, decoded.reason)
        return NotificationIn(message.method, decoded)

    def _reply(self, message: Response | ErrorResponse) -> Event:
        id = message.id
        pending = None if id is None else self._pending.pop(id, None)
        if pending is None or id is None:
            return self._misdirected(message)
        self.notified = False
        if isinstance(message, ErrorResponse):
            return ReplyIn(id, PeerError(*message.error))
        result = message.result
        assert not isinstance(result, Encoded)
        try:
            if pending.is_unread:
                return ReplyIn(id, validated(UnknownResult, result, "result"))
            decode, may_be_task, dropped = pending.codec.decode_result, pending.may_be_task, self.dropped
            decoded = decode(pending.method, result, may_be_task=may_be_task, dropped=dropped)
            return make_tuple(ReplyIn, (id, decoded))
        except RemoteProtocolError as malformed:
            return ReplyIn(id, without_traceback(malformed))

    def _misdirected(self, message: Response | ErrorResponse) -> Event:
        id = message.id
        if id is None and isinstance(message, ErrorResponse):
            about_notification = message.error.code == METHOD_NOT_FOUND and self._answers_notification()
            return self._stray(None) if about_notification or not self._pending else self._lose(message)
        late = self._withdrawn.get(id) if isinstance(message, Response) and id is not None else None
        stray = self._stray(id)
        if late is not None and late.may_be_task:
            return _late_task(late, message) or stray
        if stray.kind is not StrayKind.UNKNOWN or not self._pending or self._peer is Side.CLIENT:
            return stray
        if isinstance(id, str) and id.isdecimal() and id.isascii() and len(id) < 16 and int(id) in self._pending:
            return self._failed(int(id), _other_id(id))
        return self._lose(message if isinstance(message, ErrorResponse) else Malformed(_other_id(id)))

    def _answers_notification(self) -> bool:
        """Return whether an answer without an id may be to a notification, which has none, rather than to a request."""
        # One that leaves all ids out does so in the answer to `initialize` too, before which there is no notification.
        may_be, self.notified = self.notified or self._peer is Side.CLIENT, False
        return may_be

    def _lose(self, message: Malformed | ErrorResponse) -> Event:
        """Note that one of the open requests has got an unusable answer, and fail it if it is known which."""
        if not (known := self._lost.add(message, self._pending.keys())):
            return Ignored("an answer that does not say which request it belongs to")
        return self.receive(known[0]) if len(known) == 1 else BatchIn(known)

    def _with_lost(self, message: Message | Answers | Malformed | Unanswered) -> BatchIn | None:
        """Return this answer and those that are known to be lost with it; None if it is no answer or tells nothing of them."""
        match message:
            case Response(id) | ErrorResponse(id) | Unanswered(id) | Malformed(answers=id):
                known = self._lost.answered(id, self._pending.keys())
                return BatchIn((message, *known)) if known else None
            case _:
                return None

    def _unanswered(self, message: Unanswered) -> ReplyIn | Ignored:
        if message.id is None:
            return Ignored(message.why)
        kind = SessionLost if message.session_lost else Disconnected if message.is_sent else Unreachable
        return self._failed(message.id, message.error or kind(message.why))

    def _failed(self, request_id: RequestId, error: Exception) -> ReplyIn | Ignored:
        """End our request with an error: it gets no usable answer."""
        if self._pending.pop(request_id, None) is None:
            return self._stray(request_id)
        return ReplyIn(request_id, error)

    def _stray(self, request_id: RequestId | None) -> StrayReply:
        """Return the event for an answer to a request that is not open."""
        if request_id in self._withdrawn:
            del self._withdrawn[request_id]
            kind = StrayKind.LATE
        elif isinstance(request_id, int) and 0 < request_id <= self._next_id:
            kind = StrayKind.DUPLICATE
        else:
            kind = StrayKind.UNKNOWN
        return StrayReply(f"{kind.value} answer to {request_id!r}, which is not open", kind)

    def _batch(self, batch: Batch) -> BatchIn | Rejected:
        if not self.terms.codec.revision.batches:
            return self._reject_batch(batch)
        try:
            messages = batch.messages()
        except RemoteProtocolError as error:
            return Rejected(without_traceback(error))
        ids = Counter(message.id for message in messages if isinstance(message, Request))
        return BatchIn(tuple([checked_in_batch(message, ids) for message in messages]))

    def _reject_batch(self, batch: Batch) -> BatchIn | Rejected:
        """Fail our requests that the batch would have answered; otherwise they would never end."""
        ids = [as_integer(item.get("id")) for item in batch.items if isinstance(item, dict) and "method" not in item]
        lost = [id for id in ids if is_request_id(id) and id in self._pending]
        return BatchIn(tuple([Malformed(batch.error, id) for id in lost])) if lost else Rejected(batch.error)

    def __repr__(self) -> str:
        version = self.terms.codec.revision.name
        return f"<Connection {self.terms.phase.value} {version} open={len(self.open_ids)} asked={len(self._pending)}>"


def _late_task(withdrawn: PendingRequest, answer: Response | ErrorResponse) -> LateTask | None:
    """Return the task that a withdrawn request has become, or None."""
    assert isinstance(answer, Response)
    assert not isinstance(answer.result, Encoded)
    try:
        result = withdrawn.codec.decode_result(withdrawn.method, answer.result, may_be_task=True)
    except RemoteProtocolError:
        return None
    if not isinstance(result, types.CreateTaskResult):
        return None
    return LateTask("a request that was withdrawn has become a task", task_id=result.task_id)


def _other_id(id: RequestId | None) -> RemoteProtocolError:
    return RemoteProtocolError(f"an answer came under the id {id!r:.80}, which no request has")
