"""Message middleware: functions that see each message of a client before it is acted on, and may reject it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

from .. import session, types
from ..errors import McpError, RemoteProtocolError
from ..protocol.codec.models import Params, model_of
from ..protocol.codec.reading import Inbound, codec_for
from ..protocol.connection import CancelIn, Event, NotificationIn, Rejected
from ..protocol.jsonrpc import Encoded, Malformed, Message, Notification, RequestId, Unanswered, decoded
from ..protocol.revisions import Side
from ..runtime import Account, Outbox
from ..types import Model
from .calls.facts import RequestFacts
from .envelope import ANONYMOUS, Envelope, MessageFacts, Peer, Received
from .replies import ReplyTarget
from .server import ServerSession
from .service import Service


def make_session(
    service: Service,
    *,
    shared_channel: bool = True,
    account: Account | None = None,
    snapshot: session.recovery.session_record.SessionSnapshot | None = None,
) -> ServerSession:
    """Return a session, which passes each message to the middleware of the service if there is any.

    Args:
        shared_channel, account, snapshot: see `ServerSession`. The session of a proxy has no snapshot.
    """
    if service.session_type is not None:
        return cast("ServerSession", service.session_type(service, shared_channel=shared_channel, account=account))
    kind = WatchedSession if service.watches_messages else ServerSession
    return kind(service, shared_channel=shared_channel, account=account, snapshot=snapshot)


class WatchedSession(ServerSession):
    """A session whose requests and notifications pass message middleware."""

    _sender: Peer = ANONYMOUS
    """Of the message that is being read; a session reads one at a time, without an await in between."""
    _size: int = 0

    def receive(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool = False,
        inbound: Inbound | None = None,
    ) -> ReplyTarget | session.OpenBatch | Rejected | None:
        self._sender, self._size = envelope.peer, envelope.size
        return super().receive(envelope, outbox, owns_outbox=owns_outbox, inbound=inbound)

    def receive_ignored(self, envelope: Envelope[Received], version: str) -> None:
        message = envelope.message
        assert isinstance(message, Notification)
        self._sender, self._size = envelope.peer, envelope.size
        try:
            params = codec_for(version).decode_notification(message.method, decoded(message.params), sender=Side.CLIENT)
        except RemoteProtocolError as error:
            self._take(Rejected(error, answer=False), self._size)
            return
        if params is not None:
            # Also a cancellation: on a session that all requests share, its id may be that of another client's request.
            self._take(NotificationIn(message.method, params), self._size)

    def _read_batch(
        self, unread: Iterator[Message | Malformed | Unanswered], peer: Peer, size: int, batch: session.OpenBatch
    ) -> None:
        # Also called in a later turn of the event loop, when other messages may have been received.
        self._sender, self._size = peer, size
        super()._read_batch(unread, peer, size, batch)

    def _answer(self, facts: RequestFacts, params: Params, target: ReplyTarget) -> Encoded | None:
        self._pass(facts.method, facts.id, model_of(params))
        return super()._answer(facts, params, target)

    def _take(self, event: Event, size: int) -> Rejected | None:
        try:
            match event:
                case NotificationIn(method, params):
                    self._pass(method, None, params)
                case CancelIn(request_id, reason):
                    cancelled = types.CancelledNotificationParams(request_id=request_id, reason=reason)
                    self._pass("notifications/cancelled", None, cancelled)
        except Exception as error:  # noqa: BLE001  one bad message must not end the session
            # A notification has no response, so the log is the only place for the cause of a failure.
            if not isinstance(error, McpError):
                self.service.records.log("message middleware failed", level=logging.ERROR, exc_info=error)
            return super()._take(Rejected(RemoteProtocolError(f"rejected by middleware: {error}"), answer=False), size)
        return super()._take(event, size)

    def _pass(self, method: str, request_id: RequestId | None, params: Model) -> None:
        facts = MessageFacts(method, request_id, params, self._sender, self._size)
        for middleware in self.service.offers.message_middleware:
            middleware(facts)
