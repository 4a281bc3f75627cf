"""Serving the requests that a legacy server sends to its client: pings, and the questions of its calls."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.logs import RepeatedRecords
from ..errors import CapabilityError, MalformedQuestion, McpError, PeerError, ProviderError
from ..protocol.codec.models import model_of
from ..protocol.codec.unknown import UnknownParams
from ..protocol.connection import Connection, RequestIn
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Notification,
    RequestId,
    Response,
)
from ..runtime import Outbox
from ..types import EmptyResult, Model
from .batch import OpenBatch
from .envelope import Envelope
from .received_tasks import MAX_WAITING, METHODS, Encode, ReceivedTasks

RequestHandler: TypeAlias = Callable[[Model], Awaitable[Model]]
"""Serves one method of the server's requests: gets the params, returns the result."""

MAX_HANDLERS: Final = 64
"""Handlers of one server's questions that run at once, unless the program allows more or fewer."""


@dataclass(slots=True, eq=False, repr=False)
class ServerRequests:
    """The requests of the server that a task of this client serves.

    Args:
        connection: learns which requests were answered.
        outbox: where the answers go.
        records: counts how often handlers failed.
        limit: requests that are served concurrently.
    """

    _handlers: Mapping[str, RequestHandler]
    _connection: Connection
    _outbox: Outbox[Envelope]
    _records: RepeatedRecords
    _limit: int
    _scopes: dict[RequestId, trio.CancelScope] = field(default_factory=dict[RequestId, trio.CancelScope])
    _about: dict[RequestId, RequestId] = field(default_factory=dict[RequestId, RequestId])
    """The request of this client on whose response a request came, where the transport knows it."""
    _about_tasks: set[RequestId] = field(default_factory=set[RequestId])
    """Those of the requests that are about tasks."""
    _tasks: ReceivedTasks = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = ReceivedTasks(self._ask, self._notify, self._limit)

    def __len__(self) -> int:
        return len(self._scopes) + self._tasks.working

    def admit(
        self, request: RequestIn, nursery: trio.Nursery, batch: OpenBatch | None, about: RequestId | None = None
    ) -> None:
        """Serve a request in a task of the nursery, if not too many are being served.

        Args:
            about: the request of this client on whose response it came.
        """
        if batch is not None:
            batch.expect()
        # Immediately, and outside of the limit: a server that gets no `pong` from a busy client would drop it (L-PING-1b).
        answer: Response | ErrorResponse
        if request.method == "ping":
            answer = Response(request.id, request.terms.codec.encode_result("ping", EmptyResult()))
        elif (busy := self._refusal(request)) is not None:
            answer = ErrorResponse(request.id, ErrorDetail(SERVER_BUSY, busy))
        else:
            scope = self._scopes[request.id] = trio.CancelScope()
            if request.method in METHODS:
                self._about_tasks.add(request.id)
            if about is not None:
                self._about[request.id] = about
            nursery.start_soon(self._serve, request, scope, batch, nursery)
            return
        self._connection.release_id(request.id)
        self.reply(answer, batch)

    def _refusal(self, request: RequestIn) -> str | None:
        """Return why a request is not served now, or None.

        Requests about tasks run no handler, and but for `tasks/result` they are answered at once: a server must always be able
        to cancel a task.
        """
        if request.method not in METHODS:
            if len(self._scopes) - len(self._about_tasks) >= self._limit:
                return f"this client already answers {self._limit} requests; the limit is max_handlers"
        elif request.method == "tasks/result" and len(self._about_tasks) >= MAX_WAITING:
            return f"{MAX_WAITING} requests wait for the results of tasks already; the limit is MAX_WAITING"
        return None

    def cancel(self, request_id: RequestId) -> bool:
        """Cancel the handler of a request, which then gets no answer. Return False if none runs."""
        scope = self._scopes.get(request_id)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def cancel_about(self, lost: RequestId) -> None:
        """Cancel the handlers of the requests that came on the response of a request of this client, which was lost."""
        for request_id, about in self._about.items():
            if about == lost:
                self._scopes[request_id].cancel()

    def cancel_all(self) -> None:
        """Cancel the handlers of all requests: the session that would get their answers has ended."""
        for scope in self._scopes.values():
            scope.cancel()
        self._tasks.cancel_all()

    def reply(self, answer: Response | ErrorResponse | None, batch: OpenBatch | None) -> None:
        """Send an answer, with the others of its batch if it is part of one; None is the end of a request without an answer."""
        if batch is not None:
            batch.settle(answer)
        elif answer is not None:
            self._outbox.post(Envelope(answer, about=answer.id))

    def _notify(self, notification: Notification) -> None:
        self._outbox.post(Envelope(notification))

    async def _serve(
        self, request: RequestIn, scope: trio.CancelScope, batch: OpenBatch | None, nursery: trio.Nursery
    ) -> None:
        answer = None
        try:
            with scope:
                answer = await self._answer(request, nursery)
        finally:
            del self._scopes[request.id]
            self._about_tasks.discard(request.id)
            self._about.pop(request.id, None)
            self._connection.release_id(request.id)
        # A handler may turn its cancel into an error or ignore it. The id may belong to another session by now.
        self.reply(None if scope.cancel_called else answer, batch)

    async def _answer(self, request: RequestIn, nursery: trio.Nursery) -> Response | ErrorResponse:
        # A request that was withdrawn creates no task: its sender would never learn the id.
        await trio.lowlevel.checkpoint_if_cancelled()
        is_about_task = type(request.params) is not UnknownParams and self._tasks.takes(request)
        if is_about_task and (request.method.startswith("tasks/") or request.method in self._handlers):
            answer = await self._tasks.answer(request, nursery)
        else:
            encode = partial(request.terms.codec.encode_result, request.method)
            answer = await self._ask(request.method, model_of(request.params), encode)
        if isinstance(answer, ErrorDetail):
            return ErrorResponse(request.id, answer)
        return Response(request.id, answer)

    async def _ask(self, method: str, params: Model, encode: Encode) -> Encoded | ErrorDetail:
        try:
            handler = self._handlers.get(method)
            if handler is None:
                raise PeerError(METHOD_NOT_FOUND, f"this client does not serve {method}")
            return encode(await handler(params))
        except PeerError as error:
            detail = ErrorDetail(error.code, error.message, error.data, error.more)
        except (CapabilityError, MalformedQuestion) as error:
            detail = ErrorDetail(INVALID_PARAMS, str(error))
        except ProviderError as error:
            # Without the traceback, which may show what the provider's libraries were called with.
            self._records.log("the model's provider gave no answer (%s): %s", error.kind, error, level=logging.ERROR)
            detail = ErrorDetail(INTERNAL_ERROR, error.public_text)
        except Exception as error:  # noqa: BLE001  whatever a handler raises
            # The method is a part of the kind: those that have a handler are few.
            kind = f"the handler of {method} failed"
            self._records.log(kind, level=logging.ERROR, exc_info=error)
            # Only the text of our own errors is sent: that of any other exception may hold secrets of the program.
            why = f": {error}" if isinstance(error, McpError) else ""
            detail = ErrorDetail(INTERNAL_ERROR, f"the client's handler of {method} failed{why}")
        return detail
