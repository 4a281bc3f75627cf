"""The requests of a channel that have no answer yet, and what the server asked on their responses."""

from __future__ import annotations

import trio

from trio_mcp.protocol.jsonrpc import RequestId


class OpenRequest:
    """One request.

    Attributes:
        scope: cancels its exchange.
        questions: ids of the server's requests that came on its response.
    """

    __slots__ = ("id", "questions", "scope")

    def __init__(self, request_id: RequestId) -> None:
        self.id = request_id
        self.scope = trio.CancelScope()
        self.questions: set[RequestId] = set()

    def end_soon(self, seconds: float) -> None:
        """Let its response end by itself for so long, then cancel the exchange."""
        self.scope.deadline = trio.current_time() + seconds


class OpenRequests:
    """The open requests by id. A question costs one entry, and the end of a request its own entries only."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, OpenRequest] = {}
        self._asked_on: dict[RequestId, OpenRequest] = {}
        """The request on whose response the server asked, by the id of its question."""

    def add(self, request_id: RequestId) -> OpenRequest:
        """Open a request; one of the same id that is still ending is no longer found by it."""
        entry = self._by_id[request_id] = OpenRequest(request_id)
        return entry

    def get(self, request_id: RequestId | None) -> OpenRequest | None:
        """Return the open request of that id."""
        return None if request_id is None else self._by_id.get(request_id)

    def add_question(self, entry: OpenRequest, question: RequestId) -> None:
        """Remember on whose response the server asked."""
        entry.questions.add(question)
        self._asked_on[question] = entry

    def asked_on(self, question: RequestId) -> OpenRequest | None:
        """Return the open request on whose response the server asked this."""
        entry = self._asked_on.get(question)
        return entry if entry is not None and self._by_id.get(entry.id) is entry else None

    def remove(self, entry: OpenRequest) -> None:
        """Close a request. Its id may have been used again as soon as it was answered: the newer one stays."""
        if self._by_id.get(entry.id) is entry:
            del self._by_id[entry.id]
        for question in entry.questions:
            if self._asked_on.get(question) is entry:
                del self._asked_on[question]

    def cancel_all(self) -> None:
        """Cancel every exchange."""
        for entry in self._by_id.values():
            entry.scope.cancel()

    def __len__(self) -> int:
        return len(self._by_id)
