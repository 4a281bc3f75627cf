"""The requests of a host that have no reply yet, in a session that may be opened again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ..protocol.jsonrpc import Request, RequestId
from ..session import Envelope, Sent
from .session_memory import SessionMemory

MAX_WAITING: Final = 256
"""Requests that wait for a session."""


class SentRequest(NamedTuple):
    """A request that is at the server.

    Attributes:
        session: the number of the session that it was sent in.
        is_repeat: it has waited for a session, and does so no second time.
    """

    envelope: Envelope[Sent]
    session: int
    is_repeat: bool


class SentRequests:
    """Those that are at the server, and those that wait for a session.

    Args:
        memory: knows which requests may be sent again.
        fail: answers a request with an error, with this text.
        gone: returns the error for requests that the server does not answer any more, for a reason.
    """

    def __init__(
        self, memory: SessionMemory, fail: Callable[[RequestId, str], None], gone: Callable[[str], str]
    ) -> None:
        self._memory, self._fail, self._gone = memory, fail, gone
        self._sent: dict[RequestId, SentRequest] = {}
        self._waiting: dict[RequestId, Envelope[Sent]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether some wait."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._waiting) >= MAX_WAITING

    def add_sent(self, request_id: RequestId, envelope: Envelope[Sent], session: int) -> None:
        """Note a request that is sent now."""
        self._sent[request_id] = SentRequest(envelope, session, is_repeat=False)

    def add_waiting(self, request_id: RequestId, envelope: Envelope[Sent]) -> None:
        """Let a request wait for a session."""
        self._waiting[request_id] = envelope

    def take(self, request_id: RequestId) -> SentRequest | None:
        """Remove a request that is at the server, and return it; None if it is not."""
        return self._sent.pop(request_id, None)

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request that the host no longer wants."""
        self._sent.pop(request_id, None)
        self._waiting.pop(request_id, None)

    def take_waiting(self, session: int) -> list[Envelope[Sent]]:
        """Return the requests that wait; they are sent now, in this session."""
        waiting, self._waiting = self._waiting, {}
        for request_id, envelope in waiting.items():
            self._sent[request_id] = SentRequest(envelope, session, is_repeat=True)
        return list(waiting.values())

    def fail_waiting(self, why: str) -> None:
        """Answer what waits with an error."""
        waiting, self._waiting = self._waiting, {}
        for request_id in waiting:
            self._fail(request_id, why)

    def lose_all(self, why: str) -> None:
        """Let what is at the server wait for the next session if it may be sent again, and answer the rest with an error."""
        sent, self._sent = self._sent, {}
        for request_id, lost in sent.items():
            self.lose(request_id, lost, why)

    def lose(self, request_id: RequestId, lost: SentRequest, why: str, *, was_ignored: bool = False) -> None:
        """Do the same for one request.

        Args:
            was_ignored: the server did nothing for it.
        """
        request = lost.envelope.message
        # For type checkers: nothing else is added.
        assert isinstance(request, Request)
        if not lost.is_repeat and (was_ignored or self._memory.is_repeatable(request)):
            self._waiting[request_id] = lost.envelope
            return
        unknown = "" if was_ignored or request.method != "tools/call" else ". The tool may or may not have run"
        self._fail(request_id, f"{self._gone(why)}{unknown}")
