"""The requests of a legacy server that the proxy answers in place of the host."""

from __future__ import annotations

from collections.abc import Hashable

import trio

from ..errors import ProtocolError
from ..protocol.codec import Codec
from ..protocol.jsonrpc import (
    INVALID_REQUEST,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Request,
    RequestId,
    Response,
    decoded,
)
from ..session import Received
from .answers import Answers
from .upstream import Upstream


class Asked:
    """The requests of one server that are being answered.

    Args:
        caller: what the answers count for, see `Quota`.
        nursery: runs the answers; the end of the connection cancels it.
    """

    def __init__(self, upstream: Upstream, answers: Answers, caller: Hashable | None, nursery: trio.Nursery) -> None:
        self._upstream, self._answers, self._caller, self._nursery = upstream, answers, caller, nursery
        self._scopes: dict[RequestId, trio.CancelScope] = {}

    def are_answered_by(self, message: Received) -> bool:
        """Return whether a message of the host answers one of them."""
        match message:
            case Response(id) | ErrorResponse(id):
                return id in self._scopes
            case Malformed(_, answers):
                return answers in self._scopes
            case _:
                return False

    def take(self, message: Request, codec: Codec | None) -> None:
        """Begin to answer a request.

        Args:
            codec: of the revision of the session; None before there is one, and with a modern server, which asks in results.
        """
        if codec is None:
            self._reject(message, f"{message.method} came while no session is open")
        elif message.id in self._scopes:
            self._reject(message, f"the id {message.id!r} is in use")
        else:
            scope = self._scopes[message.id] = trio.CancelScope()
            self._nursery.start_soon(self._answer, message, codec, scope)

    def cancel(self, request_id: RequestId | None) -> bool:
        """End the answer to a request that the server no longer wants; False if it is not one of these."""
        scope = None if request_id is None else self._scopes.pop(request_id, None)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def _reject(self, message: Request, why: str) -> None:
        self._upstream.answer(ErrorResponse(message.id, ErrorDetail(INVALID_REQUEST, why)))

    async def _answer(self, message: Request, codec: Codec, scope: trio.CancelScope) -> None:
        """Answer a request; one that the server cancels gets no answer (L-CAN-2b)."""
        reply: Response | ErrorResponse
        with scope:
            try:
                answer = await self._answers.answer(message.method, decoded(message.params), self._caller)
                reply = Response(message.id, codec.encode_result(message.method, answer))
            except ProtocolError as error:
                reply = ErrorResponse(message.id, ErrorDetail(error.code, str(error), error.data))
            # The id may be that of another question by now, if a provider answers in spite of its cancel.
            if self._scopes.get(message.id) is scope:
                del self._scopes[message.id]
                self._upstream.answer(reply)
