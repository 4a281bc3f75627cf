"""The sessions that clients open over HTTP and name in later requests."""

from __future__ import annotations

import secrets
from typing import Final, Generic, TypeVar

from trio_mcp.protocol.jsonrpc import ErrorDetail
from trio_mcp.runtime import Account, CancelReason
from trio_mcp.runtime.quota import Quota
from trio_mcp.session import ServerSession

from .access import SHUTTING_DOWN, HttpRejection

# How many of something the clients of an HTTP application may hold, in total and each caller of them.


class HttpQuota(Quota):
    """A quota whose refusals are responses. Its limit for one caller is for principals; others have their share.

    Attributes:
        draining: nothing more is taken, because the server is shutting down.
    """

    draining: bool = False

    def admit(self, account: Account) -> None:
        """Raise `HttpRejection` (503) unless there is room for one more of the caller of this account."""
        self.check_not_draining()
        rejection = self.rejection(account)
        if rejection is not None:
            self.count_refusal()
            raise HttpRejection(503, rejection)

    def check_not_draining(self) -> None:
        """Raise `HttpRejection` (503) if the server is shutting down."""
        if self.draining:
            raise HttpRejection(503, SHUTTING_DOWN)

    def rejection(self, account: Account) -> str | None:
        """Return the reason to reject one more of the caller of this account, or None if there is room."""
        return self.refusal(account.caller, capped=account.principal is not None)


ID_BYTES: Final = 24
ID_LENGTH: Final = 32
"""Characters of an id."""


class OpenSession:
    """One session, and whose it is.

    Attributes:
        id: 192 random bits.
        account: counts what the session holds; closed at its end.
        ended: its id is unknown from then on.
    """

    __slots__ = ("account", "ended", "id", "principal", "session")

    def __init__(self, session: ServerSession, principal: str | None, account: Account) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.session = session
        self.principal = principal
        self.account = account
        self.ended = False

    def close_streams(self) -> None:
        """End the streams that belong to no request, after what was said in them."""
        raise NotImplementedError


S = TypeVar("S", bound=OpenSession)


class SessionTable(Generic[S]):
    """The open sessions of one application, found by id and owner.

    Args:
        advice: what a client does whose session is unknown.

    Attributes:
        quota: for sessions; one that is added counts.
        reply_at_end: to the requests that run when their session ends; None where it would not reach their client.
    """

    reply_at_end: ErrorDetail | None = None

    def __init__(self, quota: HttpQuota, advice: str) -> None:
        self.quota = quota
        self._advice = advice
        self._sessions: dict[str, S] = {}

    def add(self, entry: S) -> S:
        """Keep a session."""
        self._sessions[entry.id] = entry
        self.quota.add(entry.account.caller)
        return entry

    def find(self, session_id: str, principal: str | None) -> S:
        """Return the session of that id.

        Raises:
            HttpRejection: 404. A session of another principal is as unknown as one that never was.
        """
        entry = self._sessions.get(session_id)
        # Compared with the owner of now and not only at the opening: an id that leaked is worth nothing without the
        # credentials (S-42).
        if entry is None or entry.principal != principal:
            raise self.session_over()
        return entry

    def at_rest(self) -> list[S]:
        """Return the sessions of which no request runs."""
        return [entry for entry in self._sessions.values() if not entry.session.busy]

    def session_over(self) -> HttpRejection:
        """Return the rejection of a request that names a session which is unknown, or has just ended."""
        return HttpRejection(404, f"This session is unknown or has ended: {self._advice}")

    def end(self, entry: S, reason: CancelReason) -> None:
        """End a session: its calls are cancelled and unwind in the service, its streams end."""
        if entry.ended:
            return
        # Set first, so that ending it again while this goes on does nothing.
        entry.ended = True
        del self._sessions[entry.id]
        self.quota.give_back(entry.account.caller)
        # It knows the entry: without a reference back, nothing is left to the garbage collector.
        entry.session.on_over = None
        # After a shutdown the next process may answer.
        entry.session.close(reason, None if reason is CancelReason.SHUTDOWN else self.reply_at_end)
        entry.close_streams()
        entry.account.close()

    def end_all(self, reason: CancelReason) -> None:
        """End every session."""
        for entry in list(self._sessions.values()):
            self.end(entry, reason)

    def close_streams(self) -> None:
        """End the streams of every session that belong to no request: the server is going away."""
        # A copy: the end of its stream ends a session of HTTP+SSE.
        for entry in list(self._sessions.values()):
            entry.close_streams()
