"""The state of one JSON-RPC connection, for either side, without any I/O.

Messages go in and events come out; intents go in and messages come out. The connection knows which revision a message is
written in: a request that carries a modern `_meta` names its own, everything else follows the one agreed on by
`initialize`. It does not know which side it plays, except for the direction in which a method may travel.

    phase        may receive (legacy methods)             leaves it by
    OPENING      initialize, ping                          a valid initialize (server) or its result (client)
    OPEN         everything but initialize                 close
    CLOSED       nothing

Modern requests are valid in every phase but CLOSED: they carry all their context with them (protocol.md M-ST-1s).

A batch, which only 2025-03-26 has, is taken apart: each of its messages is then received by itself.
"""

# A trace of a server's end, on a pipe that speaks both eras (what arrives, and the event that comes out):
#
#     tools/list, id 1                        Refused     OPENING: neither a session nor a modern `_meta`
#     initialize, id 1, 2025-11-25            RequestIn   OPENING, id 1 is open
#     agree("2025-11-25"), answered(1)        -           OPEN, id 1 is free
#     tools/call, id 7, `_meta` 2026-07-28    RequestIn   in any phase: its terms come from its `_meta`
#     tools/call, id 7 again                  Refused     the id is in use until `answered(7)`
#     notifications/cancelled of 7            CancelIn    the id stays in use until `answered(7)`
#     reply to 99, which was never asked      Stray       counted, and otherwise ignored
#     close(), then anything                  Ignored     CLOSED

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from ..errors import Disconnected, LocalProtocolError, PeerError, RemoteProtocolError, SessionLost, without_traceback
from ..types import CancelledNotificationParams, Model
from .codec import Codec, codec_for
from .codec.reading import Inbound, Phase, RequestTerms, SessionTerms, classify, read_request
from .jsonrpc import (
    INVALID_REQUEST,
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
    is_request_id,
)
from .revisions import Side


class RequestIn(NamedTuple):
    """The peer asks something of us: `params` are decoded, `terms` say how to answer."""

    id: RequestId
    method: str
    params: Model
    terms: RequestTerms

    @property
    def codec(self) -> Codec:
        """The codec of the request's revision."""
        return self.terms.codec


@dataclass(frozen=True, slots=True)
class NotificationIn:
    """The peer tells us something."""

    method: str
    params: Model


@dataclass(frozen=True, slots=True)
class CancelIn:
    """The peer no longer wants the answer to its request `id`."""

    id: RequestId
    reason: str | None


class ReplyIn(NamedTuple):
    """The answer to our request `id`: a decoded result, or the error to raise where it is awaited."""

    id: RequestId
    result: Model | Exception


@dataclass(frozen=True, slots=True)
class BatchIn:
    """Several messages came together; receive each of them, in order, and answer the requests among them together."""

    messages: tuple[Message | Malformed, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The message broke a rule; `error` says which, and its `request_id` whom to answer (None for a reply: no answer)."""

    error: RemoteProtocolError
    answer: bool = True


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing to do; `why` is for the log."""

    why: str


class StrayKind(Enum):
    """Why a reply matched no open request: its question was withdrawn, was answered, or was never asked on this connection.

    The last may be meant for another session. There it was asked, perhaps, but nothing is delivered from here.
    """

    LATE = "late"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Stray(Ignored):
    """A reply that matches no open request."""

    kind: StrayKind = StrayKind.UNKNOWN


Event: TypeAlias = RequestIn | NotificationIn | CancelIn | ReplyIn | BatchIn | Refused | Ignored


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of ours that has no answer yet."""

    method: str
    codec: Codec


MAX_WITHDRAWN = 1024
"""Withdrawn requests of ours that are remembered, to tell a late answer from a repeated one; the oldest goes first."""


class Connection:
    """One conversation.

    Args:
        peer: which side the other end plays.
        shared: all requests travel on one channel, so two open requests of the peer may not share an id (-32600). Where every
            request has a separate stream (HTTP) they may: hosts exist that number everything 1.
    """

    __slots__ = ("_asked", "_next_id", "_peer", "_shared", "_withdrawn", "open_ids", "session")

    def __init__(self, peer: Side, *, shared: bool = True) -> None:
        self._peer = peer
        self._shared = shared
        self.session = SessionTerms()
        self.open_ids: set[RequestId] = set()
        """The ids of the peer's open requests; an id is removed when its request is over."""
        self._asked: dict[RequestId, Asked] = {}
        self._next_id = 0
        self._withdrawn: dict[RequestId, None] = {}

    @property
    def phase(self) -> Phase:
        return self.session.phase

    @property
    def codec(self) -> Codec:
        """The codec of the revision agreed on; the newest legacy one before that."""
        return self.session.codec

    def agree(self, version: str) -> None:
        """The handshake settled on this revision."""
        self.session.codec = codec_for(version)
        self.session.phase = Phase.OPEN

    def close(self) -> list[RequestId]:
        """The end; returns the ids of our requests that will never be answered."""
        self.session.phase = Phase.CLOSED
        lost = list(self._asked)
        self._asked.clear()
        self.open_ids.clear()
        return lost

    # messages in

    def receive(self, message: Message | Answers | Malformed | Unanswered, inbound: Inbound | None = None) -> Event:
        """Work out what a message means. Never raises for anything a peer may send.

        Args:
            inbound: the same message, if it was classified before.
        """
        if self.session.phase is Phase.CLOSED:
            return Ignored("the connection is closed")
        try:
            match message:
                case Request():
                    return self._request(message, inbound)
                case Notification():
                    return self._notification(message)
                case Response() | ErrorResponse():
                    return self._reply(message)
                case Batch():
                    return self._batch(message)
                case Malformed(error, answers):
                    return Refused(error) if answers is None else self._failed(answers, error)
                case Unanswered():
                    return self._unanswered(message)
                case Answers():
                    raise LocalProtocolError("an array is received as a Batch")
        except RemoteProtocolError as error:
            if isinstance(message, Request):
                error.request_id = message.id
            return Refused(without_traceback(error), answer=isinstance(message, Request))

    def answered(self, request_id: RequestId) -> None:
        """Our answer to the peer's request is on its way, or there will be none: its id may be used again."""
        self.open_ids.discard(request_id)

    # messages out

    def ask(self, method: str, params: Model, codec: Codec | None = None) -> Request:
        """A request with a fresh id, unique for the life of the connection (L-RPC-2b)."""
        if self.session.phase is Phase.CLOSED:
            raise LocalProtocolError("the connection is closed")
        codec = codec or self.session.codec
        encoded = codec.encode_request(method, params)
        self._next_id += 1
        self._asked[self._next_id] = Asked(method, codec)
        return Request(self._next_id, method, encoded)

    def withdraw(self, request_id: RequestId, reason: str) -> Notification | None:
        """Stop waiting for an answer; the notification tells the peer (None when it has answered, or must not be told).

        `initialize` is never cancelled (L-CAN-1b).
        """
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return None
        self._withdrawn[request_id] = None
        if len(self._withdrawn) > MAX_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]
        if asked.method == "initialize":
            return None
        params = CancelledNotificationParams(request_id=request_id, reason=reason)
        return Notification(
            "notifications/cancelled", asked.codec.encode_notification("notifications/cancelled", params)
        )

    # one step each

    def _request(self, message: Request, inbound: Inbound | None) -> RequestIn:
        terms, params = read_request(message, inbound, self.session, self._peer)
        if self._shared:
            if message.id in self.open_ids:
                raise RemoteProtocolError(
                    f"the request id {message.id!r} is in use by a request that is still open", code=INVALID_REQUEST
                )
            self.open_ids.add(message.id)
        return RequestIn(message.id, message.method, params, terms)

    def _notification(self, message: Notification) -> Event:
        params = message.params
        assert not isinstance(params, Encoded)
        decoded = self.session.codec.decode_notification(message.method, params, sender=self._peer)
        if decoded is None:
            return Ignored(f"unknown notification {message.method}")
        if isinstance(decoded, CancelledNotificationParams):
            if decoded.request_id is None:
                return Ignored("a cancellation that names no request")
            return CancelIn(decoded.request_id, decoded.reason)
        return NotificationIn(message.method, decoded)

    def _reply(self, message: Response | ErrorResponse) -> Event:
        asked = None if message.id is None else self._asked.pop(message.id, None)
        if asked is None or message.id is None:
            return self._stray(message.id)
        if isinstance(message, ErrorResponse):
            error = message.error
            return ReplyIn(message.id, PeerError(error.code, error.message, error.data))
        result = message.result
        assert not isinstance(result, Encoded)
        try:
            return ReplyIn(message.id, asked.codec.decode_result(asked.method, result))
        except RemoteProtocolError as malformed:
            return ReplyIn(message.id, without_traceback(malformed))

    def _unanswered(self, message: Unanswered) -> ReplyIn | Ignored:
        if message.id is None:
            return Ignored(message.why)
        return self._failed(message.id, SessionLost(message.why) if message.session_lost else Disconnected(message.why))

    def _failed(self, request_id: RequestId, error: Exception) -> ReplyIn | Ignored:
        """Our request gets no usable answer."""
        if self._asked.pop(request_id, None) is None:
            return self._stray(request_id)
        return ReplyIn(request_id, error)

    def _stray(self, request_id: RequestId | None) -> Stray:
        """An answer to a request that is not open."""
        if request_id in self._withdrawn:
            del self._withdrawn[request_id]
            kind = StrayKind.LATE
        elif isinstance(request_id, int) and 0 < request_id <= self._next_id:
            kind = StrayKind.DUPLICATE
        else:
            kind = StrayKind.UNKNOWN
        return Stray(f"{kind.value} answer to {request_id!r}, which is not open", kind)

    def _batch(self, batch: Batch) -> BatchIn | Refused:
        if not self.session.codec.revision.batches:
            return self._refuse_batch(batch)
        try:
            messages = batch.messages()
        except RemoteProtocolError as error:
            return Refused(without_traceback(error))
        ids = Counter(message.id for message in messages if isinstance(message, Request))
        return BatchIn(tuple([_in_batch(message, ids) for message in messages]))

    def _refuse_batch(self, batch: Batch) -> BatchIn | Refused:
        """Our requests that it would have answered fail with it; else they would wait for ever."""
        ids = [item.get("id") for item in batch.items if isinstance(item, dict) and "method" not in item]
        lost = [id for id in ids if is_request_id(id) and id in self._asked]
        return BatchIn(tuple([Malformed(batch.error, id) for id in lost])) if lost else Refused(batch.error)

    def __repr__(self) -> str:
        version = self.session.codec.revision.name
        return f"<Connection {self.session.phase.value} {version} open={len(self.open_ids)} asked={len(self._asked)}>"


def _in_batch(message: Message | Malformed, ids: Mapping[RequestId, int]) -> Message | Malformed:
    """The message, unless it is a request that no batch can hold. An id may stand in it once, for its answers have no order."""
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
