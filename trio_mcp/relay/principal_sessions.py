"""The sessions that modern hosts over HTTP have at the server: one for each principal, since they have none themselves.

What a server asks, logs or announces outside of a request could else be about a request of another principal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.codec.reading import Inbound
from ..protocol.connection import Rejected
from ..protocol.jsonrpc import SERVER_BUSY, Request, error_response
from ..runtime import CancelReason, Outbox
from ..session import Envelope, OpenBatch, Received, ReplyTarget


class OneSession(Protocol):
    """What is needed of a session; it is a `RelaySession`."""

    @property
    def busy(self) -> bool: ...

    @property
    def working(self) -> bool: ...

    def close(self, reason: CancelReason) -> None: ...

    def receive_own(
        self, envelope: Envelope[Received], outbox: Outbox[Envelope], *, owns_outbox: bool, inbound: Inbound | None
    ) -> ReplyTarget | OpenBatch | Rejected | None: ...


class PrincipalSessions:
    """The sessions by principal, the one that was used last at the end.

    Args:
        make: makes the session of a principal, which connects to the server at its first message.
        limit: how many there may be.
    """

    def __init__(self, make: Callable[[str], OneSession], limit: int) -> None:
        self._make, self._limit = make, limit
        self._sessions: OrderedDict[str, OneSession] = OrderedDict()

    def receive(
        self, principal: str, envelope: Envelope[Received], outbox: Outbox[Envelope], inbound: Inbound
    ) -> ReplyTarget | OpenBatch | Rejected | None:
        """Take a request of a principal; it is rejected if requests use as many sessions as there may be."""
        found = self._sessions.pop(principal, None)
        try:
            if found is None:
                self._make_room()
                found = self._make(principal)
        except LimitExceeded as error:
            problem = RemoteProtocolError(str(error), code=SERVER_BUSY)
            problem.request_id = inbound.message.id if isinstance(inbound.message, Request) else None
            outbox.post(Envelope(error_response(problem), about=problem.request_id))
            return Rejected(problem, answer=True)
        self._sessions[principal] = found
        return found.receive_own(envelope, outbox, owns_outbox=True, inbound=inbound)

    def close_all(self, reason: CancelReason) -> None:
        """End all sessions."""
        while self._sessions:
            self._sessions.popitem()[1].close(reason)

    def _make_room(self) -> None:
        """End a session that no request uses, if there are too many. Raises `LimitExceeded` if requests use all of them."""
        if len(self._sessions) < self._limit:
            return
        idle = next((principal for principal, session in self._sessions.items() if not session.busy), None)
        if idle is None:
            raise LimitExceeded(f"{self._limit} principals use the server at once, and no more may (max_sessions)")
        self._sessions.pop(idle).close(CancelReason.SHUTDOWN)

    @property
    def busy(self) -> bool:
        """Whether a request has no reply yet."""
        return any(session.busy for session in self._sessions.values())

    @property
    def working(self) -> bool:
        """Whether a request other than a subscription has no reply yet."""
        return any(session.working for session in self._sessions.values())
