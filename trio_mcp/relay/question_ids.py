"""The ids of a server's questions, of a session that may be opened again.

A new session may use the ids of the old one, whose questions the host may still answer. So those of the old one are cancelled at
the host, and those of later ones get ids of the proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from ..protocol.jsonrpc import ErrorResponse, Notification, Request, RequestId, Response, decoded
from ..session import Envelope, Received, Sent
from .passing import CANCELLED
from .streams import id_in


class QuestionIds:
    """The questions that the host has not answered.

    Args:
        new_id: returns an id that no message of the host or the server has.
    """

    def __init__(self, new_id: Callable[[], RequestId]) -> None:
        self._new_id = new_id
        self._at_server: dict[RequestId, RequestId] = {}
        """Their ids at the server, by those at the host."""
        self._replaces = False

    def end_session(self) -> list[Notification]:
        """Forget the questions of this session, and return what tells the host so; those to come get new ids."""
        self._replaces = True
        asked, self._at_server = self._at_server, {}
        reason = "the server has lost the session"
        return [Notification(CANCELLED, {"requestId": request_id, "reason": reason}) for request_id in asked]

    def ask(self, question: Request, envelope: Envelope[Received]) -> Envelope[Received]:
        """Return a question of the server as the host gets it."""
        if not self._replaces:
            self._at_server[question.id] = question.id
            return envelope
        request_id = self._new_id()
        self._at_server[request_id] = question.id
        return envelope._replace(message=question._replace(id=request_id), raw=None)

    def withdraw(self, notice: Notification, envelope: Envelope[Received]) -> Envelope[Received]:
        """Return the server's cancellation of a question as the host gets it."""
        params = decoded(notice.params)
        named = id_in(params.get("requestId"))
        request_id = next((host_id for host_id, own in self._at_server.items() if own == named), None)
        if request_id is None:
            return envelope
        del self._at_server[request_id]
        if request_id == named:
            return envelope
        return envelope._replace(message=notice._replace(params={**params, "requestId": request_id}), raw=None)

    def answer(self, value: Envelope[Sent], answer: Response | ErrorResponse) -> Envelope[Sent] | None:
        """Return the answer to a question of this session as the server gets it; None if it is to one of an earlier session."""
        if answer.id is None:
            return value
        request_id = self._at_server.pop(answer.id, None)
        if request_id is None:
            # In the first session it is for the server to ignore.
            return None if self._replaces else value
        return value if request_id == answer.id else value._replace(message=answer._replace(id=request_id), raw=None)
