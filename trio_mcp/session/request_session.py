"""The second interface between a transport and a session: the transport hands in each message itself.

A channel (`channel.py`) suits a connection that lasts as long as its session: `serve_channel` reads it in one task and writes
it in another. Over HTTP the session outlives its connections, or a connection carries one request, and every request already
has a task. A channel per session would add two tasks and two queues to each request, which would cost more than the call. So
`http` and `sse` use this interface instead. Nothing else of a session may be used by a transport.
"""

from __future__ import annotations

from typing import Protocol

from ..protocol.codec.reading import Inbound
from ..protocol.connection import Connection, Refused
from ..runtime import CancelReason, Outbox
from .batch import OpenBatch
from .envelope import Envelope, Received
from .replies import ReplyTarget
from .server import ServerSession
from .service import Service


class RequestSession(Protocol):
    """One session, as a transport uses it that hands in the messages itself. No method blocks."""

    @property
    def connection(self) -> Connection:
        """The state of the protocol; a transport reads the revision in use from its codec."""
        ...

    @property
    def initialized(self) -> bool:
        """Whether the client's `initialize` was answered with a result."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a request of the client has no answer yet."""
        ...

    def receive(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool = False,
        inbound: Inbound | None = None,
    ) -> ReplyTarget | OpenBatch | Refused | None:
        """Act on one message; everything that is sent about it goes to `outbox`.

        Args:
            owns_outbox: the outbox serves only this message; the session closes it after the answer.
            inbound: the message of the envelope, if the transport has classified it already.

        Returns:
            for a request or a batch, what `disconnect` takes; for a message that was rejected unread, what was wrong with it.
        """
        ...

    def disconnect(self, target: ReplyTarget | OpenBatch) -> None:
        """Cancel what runs for this request alone: its client can no longer get the answer."""
        ...

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Send messages that belong to no request to this outbox from now on; None keeps them until there is one again."""
        ...

    def close(self, reason: CancelReason) -> None:
        """End the session: everything that runs for it is cancelled for this reason."""
        ...


def open_request_session(service: Service, *, shared: bool = False) -> RequestSession:
    """Open a session that a transport feeds.

    Args:
        shared: all messages belong to one connection, so two open requests may not have the same id.
    """
    return ServerSession(service, shared=shared)
