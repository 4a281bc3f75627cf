"""The client's end of a connection: it sends requests, matches answers to them, and serves the requests of the server.

Each request waits in a slot of one mailbox. If its caller is cancelled or times out, the request is withdrawn: the transport
cancels it at the server in its own way. If the terms allow the server to send requests, tasks in the nursery given to `run`
serve them, and the server may cancel them.
"""

# Everything that arrives is dispatched in the reader's task, without an await between a message and its effect: the order of
# the wire is the order of the callbacks, so the last progress report comes before the result that follows it. Two things must
# not run there, because they take time that is not ours: handlers of server requests get a task each, and the reader itself
# waits for the writer only between two messages.
#
# Who may end the session: the reader, when the channel ends; the writer, when it breaks; `aclose` of the client, by a cancel of
# both. Whichever comes first names the reason, and every request that waits raises it.

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypedDict

import trio

from ..errors import CapabilityError, Disconnected, McpError, PeerError, RequestTimeout
from ..protocol.codec import Codec, codec_for
from ..protocol.connection import (
    BatchIn,
    CancelIn,
    Connection,
    Ignored,
    NotificationIn,
    Rejected,
    ReplyIn,
    RequestIn,
    StrayKind,
    StrayReply,
)
from ..protocol.http.headers import NAMED_BY, headers_of
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    ErrorDetail,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    error_response,
)
from ..protocol.meta import SUBSCRIPTION_ID
from ..protocol.revisions import NEWEST_LEGACY, Side
from ..runtime import Mailbox, Outbox, Slot
from ..types import (
    EmptyResult,
    JsonObject,
    Model,
    NotificationParams,
    ProgressNotificationParams,
    RequestParams,
    SubscriptionsListenResult,
)
from .batch import OpenBatch
from .channel import AnyChannel, as_message_channel, write_all
from .envelope import Envelope, Peer, Received
from .idle_timeout import IdleTimeout, OnProgress
from .pump import CLEAN_UP

logger = logging.getLogger("trio_mcp.client")

RequestHandler: TypeAlias = Callable[[Model], Awaitable[Model]]
"""Serves one method of the server's requests: gets the params, returns the result."""

OnNotification: TypeAlias = Callable[[str, Model], None]

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

MAX_SERVER_REQUESTS = 64
"""Requests of the server that this client serves concurrently."""

BUSY: Final = f"this client already answers {MAX_SERVER_REQUESTS} requests, which is its limit"


class RequestOptions(TypedDict, total=False):
    """The keyword arguments of `ClientSession.request`, for functions that pass them on."""

    timeout: float
    idle: float
    on_progress: OnProgress | None
    on_notification: OnNotification | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """What applies to every message of a session; the client's dialect sets it.

    Attributes:
        codec: writes messages in the revision that is spoken.
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
        request_handlers: what serves the server's requests, by method.
        on_notification: called with each notification that belongs to no request of this client.
        on_session_lost: called when the transport learns that the server no longer knows the session that is open now.

    Attributes:
        terms: what applies to every message; the client sets it once it knows the revision.
        closed_because: why the connection has ended; None while it is open.
        stray_replies: how many replies matched no open request, by kind.
    """

    def __init__(
        self,
        channel: AnyChannel,
        request_handlers: Mapping[str, RequestHandler],
        on_notification: OnNotification,
        on_session_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = Connection(Side.SERVER)
        self.terms = SessionTerms(codec_for(NEWEST_LEGACY), {}, stateless=False)
        self.stray_replies: Counter[StrayKind] = Counter()
        self._channel = as_message_channel(channel)
        self._request_handlers = request_handlers
        self._on_notification = on_notification
        self._on_session_lost = on_session_lost
        self._outbox: Outbox[Envelope] = Outbox()
        self._mailbox = Mailbox(limit=100_000)
        self._progress: dict[RequestId, OnProgress] = {}
        self._streams: dict[str, OnNotification] = {}
        """Handlers of the notifications that belong to an open request, by the request's id."""
        self._tokens = itertools.count(1)
        self._serving: dict[RequestId, trio.CancelScope] = {}
        self.closed_because: Disconnected | None = None
        self._written = trio.Event()

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
            Disconnected: the connection ended first; `SessionLost` if the server did nothing for this request.

        A cancel withdraws the request at the server.
        """
        if self.closed_because is not None:
            # A new exception for each caller: a shared one would collect the tracebacks of all of them.
            raise Disconnected(str(self.closed_because))
        timer = None
        if idle < math.inf:
            on_progress = timer = IdleTimeout(idle, on_progress, lambda: bool(self._serving))
        # Not the id of the request: the token is part of its params, which are encoded before the connection assigns the id.
        token = next(self._tokens)
        params = self._with_request_meta(params, None if on_progress is None else token)
        request = self.connection.new_request(method, params, self.terms.codec)
        slot = self._mailbox.open(str(request.id), Model, None if timer is None else timer.settled.set)
        if on_progress is not None:
            self._progress[token] = on_progress
        if on_notification is not None:
            self._streams[str(request.id)] = on_notification
        # Posted last: no report and no answer may come before what waits for it is registered.
        self._post(request, params, headers)
        answered = False
        try:
            with trio.move_on_after(timeout):
                result = await (slot.take() if timer is None else timer.take(slot, method))
                answered = True
                return result
        finally:
            self._progress.pop(token, None)
            self._streams.pop(str(request.id), None)
            # Also after an error of the server: withdrawing a request that is answered sends nothing.
            if not answered:
                self._withdraw(request.id, slot)
        raise RequestTimeout(f"the server did not answer {method} within {timeout:g} seconds")

    def notify(self, method: str, params: Model) -> None:
        """Queue a notification; it is sent as soon as the channel has room."""
        self._outbox.post(Envelope(Notification(method, self.terms.codec.encode_notification(method, params))))

    async def run(self, nursery: trio.Nursery) -> None:
        """Send and receive until the channel ends; then raise `Disconnected` in every request that waits for an answer."""
        why = "the server closed the connection"
        nursery.start_soon(self._write)
        try:
            async for envelope in self._channel:
                self._receive(envelope, nursery)
                # The next one may come in an hour, and this one may be large.
                del envelope
                # A server that asks without reading our answers is not read either, or the outbox would grow without a limit.
                if self._outbox.full:
                    await self._outbox.room()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            why = f"the connection broke: {error}" if str(error) else "the connection broke"
        except trio.Cancelled:
            why = "the client was closed"
            raise
        finally:
            reason = self._channel.close_reason
            self._end(why if reason is None else f"{why} ({reason})")

    async def flush(self) -> None:
        """Stop queueing, and wait until what is queued is written, `CLEAN_UP` seconds at most."""
        self._outbox.close()
        with trio.move_on_after(CLEAN_UP, shield=True):
            await self._written.wait()

    def __repr__(self) -> str:
        return f"<ClientSession {self.connection!r} serving={len(self._serving)}>"

    # one step each

    async def _write(self) -> None:
        try:
            await write_all(self._channel, self._outbox)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            logger.debug("writing ended: %s", error)
            self._end(f"the connection broke: {error}")
        finally:
            self._outbox.close()
            # This was the only reader of the outbox: the reader may wait for room in it.
            self._outbox.take_nowait()
            self._written.set()

    def _with_request_meta(self, params: RequestParams, token: int | None) -> RequestParams:
        """Add the session's members of `_meta`, and the token that progress is reported under."""
        # The caller's members win. Ours come first, so that the caller can replace the log level of a single request.
        meta: JsonObject = {**self.terms.request_meta, **(params.meta or {})}
        if token is not None:
            meta["progressToken"] = token
        return params.model_copy(update={"meta": meta}) if meta else params

    def _post(self, request: Request, params: RequestParams, headers: Mapping[str, str]) -> None:
        stateless = self.terms.stateless
        if stateless:
            # Built here, where the params are still a model: the HTTP channel would have to parse what was just encoded.
            named = NAMED_BY.get(request.method, "")
            described: JsonObject = {"_meta": params.meta, named: getattr(params, named, None)}
            headers = {**headers, **headers_of(request.method, described)}
        self._outbox.post(Envelope(request, request.id, Peer(headers=headers), stateless=stateless))

    def _withdraw(self, request_id: RequestId, slot: Slot[Model]) -> None:
        slot.give_up()
        notice = self.connection.withdraw(request_id, "the caller no longer needs the answer")
        if notice is not None:
            self._outbox.post(Envelope(notice, about=request_id, stateless=self.terms.stateless))

    def _end(self, why: str) -> None:
        # The first reason is the cause; the others follow from it.
        if self.closed_because is None:
            self.closed_because = Disconnected(why)
            self.connection.close()
            self._mailbox.close(self.closed_because)
            self._outbox.close()

    def _receive(self, envelope: Envelope[Received], nursery: trio.Nursery, batch: OpenBatch | None = None) -> None:
        message = envelope.message
        # With an id, the request itself gets `SessionLost`, and its sender reopens the session.
        if isinstance(message, Unanswered) and message.session_lost and message.id is None:
            self._on_session_lost()
        event = self.connection.receive(message)
        match event:
            case ReplyIn(request_id, Exception() as error):
                self._mailbox.fail(str(request_id), error)
            case ReplyIn(request_id, result):
                self._mailbox.post(str(request_id), result)
            case NotificationIn(method, params):
                self._notified(method, params)
            case RequestIn():
                self._admit(event, nursery, batch)
            case CancelIn(request_id):
                self._cancelled(request_id)
            case Rejected(error, answer):
                logger.warning("the server sent something invalid: %s", error)
                # A modern server gets no answers, not even errors: it may not have sent a request (M-RPC-1c).
                if answer and error.request_id is not None and not self.terms.stateless:
                    self._send_answer(error_response(error), batch)
            case BatchIn():
                self._receive_batch(event, nursery)
            case Ignored(why):
                if isinstance(event, StrayReply):
                    self.stray_replies[event.kind] += 1
                logger.debug("a message was ignored: %s", why)

    def _receive_batch(self, event: BatchIn, nursery: trio.Nursery) -> None:
        """Receive each message of a batch; the answers to its requests go back in one array (L-RPC-1b)."""
        batch = OpenBatch(self._outbox)
        for message in event.messages:
            self._receive(Envelope(message), nursery, batch)
        batch.all_read()

    def _send_answer(self, answer: Response | ErrorResponse, batch: OpenBatch | None) -> None:
        if batch is None:
            self._outbox.post(Envelope(answer, about=answer.id))
        else:
            batch.answer(answer)

    def _admit(self, request: RequestIn, nursery: trio.Nursery, batch: OpenBatch | None) -> None:
        """Serve a request of the server, if the terms allow any (M-RPC-1c) and not too many are being served."""
        if self.terms.stateless:
            logger.warning("the server sent the request %s, which its revision forbids; it was ignored", request.method)
            self.connection.release_id(request.id)
        # Immediately, and outside of the limit: a server that gets no `pong` from a busy client would drop it (L-PING-1b).
        elif request.method == "ping":
            self.connection.release_id(request.id)
            self._send_answer(Response(request.id, request.terms.codec.encode_result("ping", EmptyResult())), batch)
        elif len(self._serving) >= MAX_SERVER_REQUESTS:
            self.connection.release_id(request.id)
            self._send_answer(ErrorResponse(request.id, ErrorDetail(SERVER_BUSY, BUSY)), batch)
        else:
            scope = self._serving[request.id] = trio.CancelScope()
            if batch is not None:
                batch.expect()
            nursery.start_soon(self._serve, request, scope, batch)

    def _cancelled(self, request_id: RequestId) -> None:
        """The server cancels its own request, or ends a stream of notifications that this client opened (M-CAN-2s)."""
        if request_id in self._serving:
            self._serving[request_id].cancel()
        elif str(request_id) in self._streams:
            self.connection.withdraw(request_id, "the server ended it")
            self._mailbox.post(str(request_id), SubscriptionsListenResult())

    def _notified(self, method: str, params: Model) -> None:
        try:
            if not isinstance(params, ProgressNotificationParams):
                self._notification_handler(params)(method, params)
            # A report may come after the answer; its token is then unknown, and the report is dropped.
            elif (on_progress := self._progress.get(params.progress_token)) is not None:
                on_progress(params)
        # A callback that fails must not end the connection, which other calls use.
        except Exception:
            logger.exception("a handler of %s failed", method)

    def _notification_handler(self, params: Model) -> OnNotification:
        meta = params.meta if isinstance(params, NotificationParams) else None
        stream = None if meta is None else meta.get(SUBSCRIPTION_ID)
        return self._on_notification if stream is None else self._streams.get(str(stream), ignore_notification)

    async def _serve(self, request: RequestIn, scope: trio.CancelScope, batch: OpenBatch | None) -> None:
        # Stays None if the server cancels the request, which then gets no answer.
        answer = None
        with scope:
            try:
                answer = await self._answer(request)
            finally:
                del self._serving[request.id]
                self.connection.release_id(request.id)
        if batch is not None:
            batch.settle(answer)
        elif answer is not None:
            self._outbox.post(Envelope(answer, about=request.id))

    async def _answer(self, request: RequestIn) -> Response | ErrorResponse:
        try:
            handler = self._request_handlers.get(request.method)
            if handler is None:
                raise PeerError(METHOD_NOT_FOUND, f"this client does not serve {request.method}")
            result = await handler(request.params)
            return Response(request.id, request.terms.codec.encode_result(request.method, result))
        except PeerError as error:
            detail = ErrorDetail(error.code, error.message, error.data)
        except CapabilityError as error:
            detail = ErrorDetail(INVALID_PARAMS, str(error))
        except Exception as error:
            logger.exception("the handler of %s failed", request.method)
            # Only the text of our own errors is sent: that of any other exception may hold secrets of the program.
            why = f": {error}" if isinstance(error, McpError) else ""
            detail = ErrorDetail(INTERNAL_ERROR, f"the client's handler of {request.method} failed{why}")
        return ErrorResponse(request.id, detail)


def ignore_notification(method: str, _params: Model) -> None:
    """Log a notification of a subscription that this client has ended."""
    logger.debug("%s came for a subscription that has ended", method)
