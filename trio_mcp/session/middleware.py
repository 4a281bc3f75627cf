"""Message middleware: functions that see each message of a client before it is acted on, and may reject it."""

from __future__ import annotations

from ..errors import ProtocolError, RemoteProtocolError
from ..logs import peer_logger
from ..protocol.codec.reading import Inbound
from ..protocol.connection import CancelIn, Event, NotificationIn, Rejected, RequestIn
from ..protocol.jsonrpc import RequestId
from ..runtime import Account, Outbox
from ..types import CancelledNotificationParams, Model
from .batch import OpenBatch
from .calls.facts import RequestFacts
from .calls.failures import error_detail
from .envelope import ANONYMOUS, Envelope, MessageFacts, Peer, Received
from .replies import ReplyTarget
from .server import ServerSession
from .service import Service

logger = peer_logger("trio_mcp.session")


def make_session(service: Service, *, shared_channel: bool = True, account: Account | None = None) -> ServerSession:
    """Return a session, which passes each message to the middleware of the service if there is any."""
    kind = WatchedSession if service.message_middleware else ServerSession
    return kind(service, shared_channel=shared_channel, account=account)


class WatchedSession(ServerSession):
    """A session whose requests and notifications pass message middleware."""

    _sender: Peer = ANONYMOUS
    """Of the message that is being received."""
    _size: int = 0

    def receive(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool = False,
        inbound: Inbound | None = None,
    ) -> ReplyTarget | OpenBatch | Rejected | None:
        self._sender, self._size = envelope.peer, envelope.size
        try:
            return super().receive(envelope, outbox, owns_outbox=owns_outbox, inbound=inbound)
        finally:
            self._sender = ANONYMOUS

    def _serve(self, request: RequestIn, target: ReplyTarget, peer: Peer, size: int) -> None:
        try:
            self._pass(request.method, request.id, request.params)
        except Exception as error:  # noqa: BLE001  one bad message must not end the session
            facts = RequestFacts(request.id, request.method, request.terms, peer.principal, peer.headers, size)
            self.requests.add(target)
            target.finish(error_detail(facts, error))
        else:
            super()._serve(request, target, peer, size)

    def _take(self, event: Event) -> Rejected | None:
        try:
            match event:
                case NotificationIn(method, params):
                    self._pass(method, None, params)
                case CancelIn(request_id, reason):
                    cancelled = CancelledNotificationParams(request_id=request_id, reason=reason)
                    self._pass("notifications/cancelled", None, cancelled)
        except Exception as error:
            # Nobody is answered, so the log has the only word of what is no refusal but a failure.
            if not isinstance(error, ProtocolError):
                logger.error("the message middleware failed", exc_info=error)
            return super()._take(Rejected(RemoteProtocolError(f"rejected by middleware: {error}"), answer=False))
        return super()._take(event)

    def _pass(self, method: str, request_id: RequestId | None, params: Model) -> None:
        facts = MessageFacts(method, request_id, params, self._sender, self._size)
        for middleware in self.service.message_middleware:
            middleware(facts)
