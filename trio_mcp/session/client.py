"""The client's end of a connection: it sends requests, matches answers to them, and serves the requests of the server.

Each request waits in a slot of one mailbox. If its caller is cancelled or times out, the request is withdrawn: the transport
cancels it at the server in its own way. If the terms allow the server to send requests, tasks in a nursery given to `run`
serve them (`server_requests`). The server may cancel them, and the end of the channel does.
"""

# Everything that arrives is dispatched in the reader's task, without an await between a message and its effect: the order of
# the wire is the order of the callbacks, so the last progress report comes before the result that follows it. Two things must
# not run there, because they take time that is not ours: handlers of server requests get a task each, and the reader itself
# waits for the writer only between two messages.
#
# Who may end the session: the reader, when the channel ends; the writer, when it breaks; `aclose` of the client, by a cancel of
# both. Whichever comes first names the reason, and every request that waits raises it.

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypedDict

import trio

from ..base.logs import RepeatedRecords, peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import Disconnected, LimitExceeded, LocalProtocolError, McpError, RequestTimeout, Unreachable
from ..protocol.codec import Codec, codec_for
from ..protocol.codec.tasks import MAX_TASK_ID
from ..protocol.codec.unknown import NO_PARAMS, UnknownParams, is_without_members
from ..protocol.connection import (
    BatchIn,
    CancelIn,
    Connection,
    Ignored,
    LateTask,
    NotificationIn,
    Rejected,
    ReplyIn,
    RequestIn,
)
from ..protocol.http.headers import headers_for, headers_of
from ..protocol.jsonrpc import (
    Notification,
    Request,
    RequestId,
    Unanswered,
    error_response,
)
from ..protocol.revisions import NEWEST_LEGACY, Side
from ..runtime import Mailbox, Outbox, Slot
from ..types import (
    CallToolRequestParams,
    CreateTaskResult,
    JsonObject,
    Model,
    RequestParams,
    SubscriptionsListenResult,
    TaskRequestParams,
)
from .batch import OpenBatch
from .channel import OVER_PIPE, AnyChannel, MessageChannel, as_message_channel, read_all, write_all
from .dropped_items import DroppedMembers
from .envelope import Envelope, Peer, Received
from .forwarded import ForwardedRequest
from .notification_dispatch import IdleTimeout, NotificationDispatch, OnNotification, OnProgress
from .pump import CLEAN_UP
from .server_requests import MAX_HANDLERS, RequestHandler, ServerRequests

if TYPE_CHECKING:
    from ..telemetry import Operation, Telemetry

CLOSED: Final = "the server closed the connection"
NO_LONGER_NEEDED: Final = "the client was closed"

logger = peer_logger("trio_mcp.client")

MAX_REQUESTS: Final = 100_000
"""Requests of one connection that wait for their answers."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

NO_LIMIT: Final = nullcontext()
"""In place of a cancel scope where there is no time limit, as for most requests: a scope is some thirty calls of functions."""


class RequestOptions(TypedDict, total=False):
    """The keyword arguments of `ClientSession.request`, for functions that pass them on."""

    timeout: float
    idle: float
    on_progress: OnProgress | None
    on_notification: OnNotification | None
    headers: Mapping[str, str]


class SessionTerms(NamedTuple):
    """What applies to every message of a session; the client's dialect sets it.

    Attributes:
        codec: writes messages in the negotiated revision.
        request_meta: members of `_meta` that every request carries.
        stateless: each request carries all its context, so there is no session at the server. It must send no requests then, and
            is sent no answers (M-RPC-1c).
    """

    codec: Codec
    request_meta: JsonObject
    stateless: bool


class ClientSession:
    """One connection to a server over a channel.

    Args:
        request_handlers: the handlers of the server's requests, by method.
        on_notification: called with each notification that belongs to no request of this client.
        on_session_lost: called when the transport learns that the server no longer knows the session that is open now.
        on_stream_lost: called with the reason when what belongs to no request no longer arrives in this session.
        max_handlers: requests of the server that are served concurrently.
        on_lost: called with the reason when the connection was lost, or the session, before `on_session_lost`.
        dropped: remembers the invalid items that are removed from the server's results; by default a new one.

    Attributes:
        terms: the terms of every message; the client sets them once it knows the revision.
        closed_because: why the connection has ended; None while it is open.
        records: counts what the server can make this client log.
        notifications: sends the notifications of the server on.
        raised: the exceptions of a server in this process, for a program that wants them; None elsewhere.
        telemetry: makes the spans and metrics of requests; None without telemetry.
    """

    def __init__(
        self,
        channel: AnyChannel,
        request_handlers: Mapping[str, RequestHandler],
        on_notification: OnNotification,
        on_session_lost: Callable[[], None] = lambda: None,
        on_stream_lost: Callable[[str], None] = lambda _why: None,
        max_handlers: int = MAX_HANDLERS,
        on_lost: Callable[[str], None] = lambda _why: None,
        dropped: DroppedMembers | None = None,
    ) -> None:
        self.connection = Connection(Side.SERVER)
        self.dropped = dropped or DroppedMembers(logger)
        self.terms = SessionTerms(codec_for(NEWEST_LEGACY), {}, stateless=False)
        self._channel = as_message_channel(channel)
        self.telemetry: Telemetry | None = None
        self._opened_at = time.perf_counter()
        self.raised = self._channel.raised
        self._on_session_lost = on_session_lost
        self._on_stream_lost = on_stream_lost
        self._on_lost = on_lost
        self._unanswered = self.connection.unanswered
        self._outbox: Outbox[Envelope] = Outbox(unanswered=self._unanswered)
        self.records = RepeatedRecords(logger)
        self._server_requests = ServerRequests(
            request_handlers, self.connection, self._outbox, self.records, max_handlers
        )
        self._mailbox = Mailbox(limit=MAX_REQUESTS)
        self.notifications = NotificationDispatch(on_notification, self.records)
        self.closed_because: Disconnected | None = None
        self._written = trio.Event()
        self._handlers: trio.Nursery | None = None

    async def request(
        self,
        method: str,
        params: RequestParams,
        *,
        timeout: float = math.inf,
        idle: float = math.inf,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Model:
        """Send a request and return its decoded result.

        Args:
            timeout: seconds to wait for the answer.
            idle: seconds to wait for the answer or the next report of progress.
            on_progress: called with each progress notification about this request, in the reader's task.
            on_notification: called with each notification that names this request as its subscription (M-META-3s).
            headers: sent with the request where the transport has headers.

        Raises:
            PeerError: the server answered with an error.
            RemoteProtocolError: its answer is malformed.
            RequestTimeout: no answer within `timeout`, or no progress for `idle` seconds. The request is withdrawn at the server,
                unless it is `initialize` (L-CAN-1b).
            Disconnected: the connection ended first; `SessionLost` or `Unreachable` if the server did not process this request.
            LimitExceeded: too many requests wait for their answers.

        A cancel withdraws the request at the server.
        """
        if self.closed_because is not None:
            # A new exception for each caller: a shared one would collect the tracebacks of all of them.
            raise Unreachable(str(self.closed_because))
        timer = None
        if idle < math.inf:
            on_progress = timer = IdleTimeout(idle, on_progress, lambda: len(self._server_requests) > 0)
        # Not the id of the request: the token is part of its params, which are encoded before the connection assigns the id.
        token = self.notifications.new_token()
        operation = self._observed(method, params)
        params = self._with_request_meta(params, None if on_progress is None else token, operation)
        self._check_room()
        request = self.connection.new_request(method, params, self.terms.codec)
        slot = self._mailbox.open(str(request.id), Model, None if timer is None else timer.settled.set)
        self._register(request.id, token, on_notification, on_progress)
        # Posted last: no report and no answer may come before what waits for it is registered.
        self._post(request, params, headers, operation)
        answered = False
        try:
            with NO_LIMIT if timeout == math.inf else trio.move_on_after(timeout):
                taking = slot.take() if timer is None else timer.take(slot, method)
                result = await (taking if self.raised is None else self.raised.result_of(request.id, taking))
                answered = True
                if operation is not None:
                    operation.returned(result)
                return result
        except BaseException as error:
            # What the server asked meanwhile is a part of a call that has failed: the user need not answer.
            if isinstance(error, Disconnected):
                self._server_requests.cancel_about(request.id)
            if operation is not None:
                operation.raised(error)
            raise
        finally:
            self._forget(request.id, token)
            # Also after an error of the server: withdrawing a request that is answered sends nothing.
            if not answered:
                self._withdraw(request.id, slot, params)
            if operation is not None:
                operation.end(missing=None if answered else RequestTimeout)
        raise RequestTimeout(f"the server did not answer {method} within {timeout:g} seconds")

    def forward(
        self,
        method: str,
        params: JsonObject,
        on_notification: OnNotification,
        headers: Mapping[str, str] = NO_HEADERS,
        on_settled: Callable[[], None] | None = None,
    ) -> ForwardedRequest:
        """Queue a request of another client unread; the other arguments are those of `request`.

        Args:
            params: its members.
            on_settled: called in the step in which the answer comes.

        Raises:
            Unreachable: the connection has ended.
            LimitExceeded: too many requests wait for their answers.
        """
        if self.closed_because is not None:
            raise Unreachable(str(self.closed_because))
        self._check_room()
        request = self.connection.new_request(method, params, self.terms.codec)
        slot = self._mailbox.open(str(request.id), Model, on_settled)
        self.notifications.streams[str(request.id)] = on_notification
        self._post(request, params, headers)
        return ForwardedRequest(self.end_forwarded, request.id, slot)

    def end_forwarded(self, request_id: RequestId, slot: Slot[Model]) -> None:
        """Wait no longer for the answer to such a request, and withdraw it if there is none; see `ForwardedRequest`."""
        del self.notifications.streams[str(request_id)]
        slot.give_up()
        notice = self.connection.withdraw(request_id, "the caller no longer needs the answer")
        if notice is not None:
            self._outbox.post(Envelope(notice, about=request_id, stateless=self.terms.stateless), unasked=True)

    def notify(self, method: str, params: Model) -> None:
        """Queue a notification; it is sent as soon as the channel has room."""
        self.connection.notified = True
        encoded = NO_PARAMS if is_without_members(params) else self.terms.codec.encode_notification(method, params)
        self._outbox.post(Envelope(Notification(method, encoded)), unasked=True)

    def pass_on(self, method: str, params: UnknownParams) -> None:
        """Queue a notification of the host of a proxy; it is dropped if the server does not read, or JSON cannot hold it."""
        why = "the server does not read"
        if not self.is_full:
            try:
                self.notify(method, params)
                return
            except LocalProtocolError as error:
                why = str(error)
        self.records.log("%s was dropped: %s", method, why)

    @property
    def is_full(self) -> bool:
        """Whether the server reads so slowly that nothing should be queued for it whose answer is not needed."""
        return self._outbox.is_full

    @property
    def unsent(self) -> int:
        """How many messages wait to be written."""
        return len(self._outbox.items)

    def cancel_handlers(self) -> None:
        """Cancel the handlers that serve requests of the server: the session that would get their answers was lost."""
        self._server_requests.cancel_all()

    async def run(self, nursery: trio.Nursery, handlers: trio.Nursery) -> None:
        """Send and receive until the channel ends; then raise `Disconnected` in every request that waits for an answer.

        Args:
            nursery: runs the writer.
            handlers: runs the handlers of the server's requests, which are cancelled at the end of the channel.
        """
        why = None
        self._handlers = handlers
        nursery.start_soon(self._write)
        try:
            await read_all(self._channel, partial(self._receive, handlers), self._outbox)
            why = why_ended(self._channel, None)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            why = why_ended(self._channel, error)
        finally:
            self._end(why or NO_LONGER_NEEDED)

    async def flush(self) -> None:
        """Accept no more messages, and wait until the queued ones are written, `CLEAN_UP` seconds at most."""
        self._outbox.close()
        with trio.move_on_after(CLEAN_UP, shield=True):
            await self._written.wait()

    def __repr__(self) -> str:
        return f"<ClientSession {self.connection!r} serving={len(self._server_requests)}>"

    # one step each

    def _check_room(self) -> None:
        """Raise `LimitExceeded` if too many requests wait for their answers."""
        if len(self._unanswered) >= MAX_REQUESTS:
            raise LimitExceeded(f"{MAX_REQUESTS} requests wait for answers of the server already, and no more may")

    async def _write(self) -> None:
        try:
            await write_all(self._channel, self._outbox)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            logger.debug("writing ended: %s", error)
            # A server that has ended is met by the reader or by the writer, whichever is first: the reason is one.
            reason = self._channel.close_reason
            self._end(f"the connection broke: {error}" if reason is None else f"{CLOSED} ({reason})")
        finally:
            self._outbox.close()
            # This was the only reader of the outbox: the reader may wait for room in it.
            self._outbox.take_nowait()
            self._written.set()

    def _register(
        self, id: RequestId, token: int, on_notification: OnNotification | None, on_progress: OnProgress | None
    ) -> None:
        """Have these called with the notifications about a request, until `_forget`."""
        if on_progress is not None:
            self.notifications.progress[token] = on_progress
        if on_notification is not None:
            self.notifications.streams[str(id)] = on_notification

    def _forget(self, id: RequestId, token: int) -> None:
        self.notifications.progress.pop(token, None)
        self.notifications.streams.pop(str(id), None)

    def _observed(self, method: str, params: RequestParams) -> Operation | None:
        """Return what observes a request that is about to be sent; None without telemetry."""
        if self.telemetry is None:
            return None
        return self.telemetry.sending(method, params, self.terms.codec.revision.name, self._channel.network)

    def _with_request_meta(
        self, params: RequestParams, token: int | None, operation: Operation | None
    ) -> RequestParams:
        """Add the session's members of `_meta`, the token that progress is reported under, and where its span is."""
        # The caller's members win. Ours come first, so that the caller can replace the log level of a single request.
        meta: JsonObject = {**self.terms.request_meta, **(params.meta or {})}
        if token is not None:
            meta["progressToken"] = token
        if operation is not None:
            meta |= operation.carried()
        return params.model_copy(update={"meta": meta}) if meta else params

    def _post(
        self,
        request: Request,
        params: RequestParams | JsonObject,
        headers: Mapping[str, str],
        operation: Operation | None = None,
    ) -> None:
        stateless = self.terms.stateless
        # A pipe has none.
        if stateless and self._channel.network is not OVER_PIPE:
            # Built here, where the params are still a model: the HTTP channel would have to parse what was just encoded.
            repeated = (
                headers_of(request.method, params) if isinstance(params, dict) else headers_for(request.method, params)
            )
            headers = {**headers, **repeated}
        self._outbox.post(Envelope(request, request.id, Peer(headers=headers), stateless=stateless), unasked=True)
        if operation is not None:
            operation.sent_as(request.id)

    def _withdraw(self, request_id: RequestId, slot: Slot[Model], params: RequestParams) -> None:
        answer = slot.untaken
        if isinstance(answer, CreateTaskResult) and self._handlers is not None and self.closed_because is None:
            self._handlers.start_soon(self._cancel_task, answer.task_id)
        slot.give_up()
        notice = self.connection.withdraw(request_id, "the caller no longer needs the answer")
        # One that asks for a task is never cancelled by a notification, but by `tasks/cancel` when the id is known (L-CAN-1b).
        wants_task = isinstance(params, CallToolRequestParams) and params.task is not None
        if notice is not None and not wants_task:
            self._outbox.post(Envelope(notice, about=request_id, stateless=self.terms.stateless), unasked=True)

    def _end(self, why: str) -> None:
        # The first reason is the cause; the others follow from it.
        if self.closed_because is None:
            self.closed_because = Disconnected(why)
            self.connection.close()
            self._mailbox.close(self.closed_because)
            self._outbox.close()
            self._server_requests.cancel_all()
            self.records.close()
            if self.telemetry is not None:
                error = None if why in (CLOSED, NO_LONGER_NEEDED) else type(self.closed_because).__qualname__
                version, network = self.terms.codec.revision.name, self._channel.network
                self.telemetry.session_ended("client", self._opened_at, version, network, error)

    def _receive(self, handlers: trio.Nursery, envelope: Envelope[Received], batch: OpenBatch | None = None) -> None:
        message = envelope.message
        # With an id, the request itself gets `SessionLost`, and its sender reopens the session.
        if isinstance(message, Unanswered) and message.id is None:
            if message.connection_lost or message.session_lost:
                self._on_lost(message.why)
            if message.connection_lost:
                self._lose_connection(handlers, message.why)
            elif message.session_lost:
                self._on_session_lost()
            else:
                self._on_stream_lost(message.why)
        event = self.connection.receive(message)
        if self.connection.dropped:
            self.dropped.add(self.connection.dropped)
            self.connection.dropped.clear()
        match event:
            case ReplyIn(request_id, result):
                self._mailbox.post(str(request_id), result)
            case NotificationIn(method, params):
                self.notifications.dispatch(method, params)
            # The server may send requests in a session only (M-RPC-1c).
            case RequestIn(request_id, method) if self.terms.stateless:
                self.records.log("the server sent the request %s, which its revision forbids; it was ignored", method)
                self.connection.release_id(request_id)
            case RequestIn():
                self._server_requests.admit(event, handlers, batch, envelope.about)
            case CancelIn(request_id):
                self._cancelled(request_id)
            case Rejected(error, answer):
                self.records.log("the server sent something invalid: %s", error)
                # A modern server gets no answers, not even errors: it may not have sent a request (M-RPC-1c).
                if answer and error.request_id is not None and not self.terms.stateless:
                    if batch is not None:
                        batch.expect()
                    self._server_requests.reply(error_response(error), batch)
            case BatchIn():
                self._receive_batch(event, handlers, envelope.about)
            case LateTask(task_id=task_id):
                handlers.start_soon(self._cancel_task, task_id)
            case Ignored(why):
                logger.debug("a message was ignored: %s", why)

    async def _cancel_task(self, task_id: str) -> None:
        """Cancel the task that a withdrawn request has become (L-CAN-1b)."""
        if len(task_id) > MAX_TASK_ID:
            return
        try:
            await self.request("tasks/cancel", TaskRequestParams(task_id=task_id), timeout=CLEAN_UP)
        except McpError as error:
            logger.info("a task that is no longer needed was not cancelled: %s", error)

    def _lose_connection(self, handlers: trio.Nursery, why: str) -> None:
        """Fail every request that waits; what is queued was meant for the connection that has ended."""
        self._outbox.take_nowait()
        for request_id in tuple(self.connection.unanswered):
            self._receive(handlers, Envelope(Unanswered(request_id, why)))
        if not self.terms.stateless:
            self._on_session_lost()

    def _receive_batch(self, event: BatchIn, handlers: trio.Nursery, about: RequestId | None) -> None:
        """Receive each message of a batch; the answers to its requests go back in one array (L-RPC-1b)."""
        batch = OpenBatch(self._outbox)
        for message in event.messages:
            self._receive(handlers, Envelope(message, about), batch)
        batch.all_read()

    def _cancelled(self, request_id: RequestId) -> None:
        """The server cancels its own request, or ends a stream of notifications that this client opened (M-CAN-2s)."""
        if not self._server_requests.cancel(request_id) and str(request_id) in self.notifications.streams:
            self.connection.withdraw(request_id, "the server ended it")
            self._mailbox.post(str(request_id), SubscriptionsListenResult())


def why_ended(channel: MessageChannel, error: Exception | None) -> str:
    """Return why a channel has ended, for messages.

    Args:
        error: what it raised; None if the peer closed it.
    """
    why = CLOSED if error is None else f"the connection broke: {error}" if str(error) else "the connection broke"
    reason = channel.close_reason
    return why if reason is None else f"{why} ({reason})"
