"""The client's end of a conversation: requests out, answers in, and what the server asks of this side.

Each request waits in a mailbox of its own. A caller whose scope is cancelled, or whose time is up, withdraws its request: the
server is told in the way the transport has for it. Requests of the server (handshake era) are served by tasks of the nursery
given to `run`; the server may cancel them.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import trio

from ..errors import CapabilityError, Disconnected, McpError, PeerError, RequestTimeout
from ..protocol.codec import Codec
from ..protocol.connection import (
    BatchIn,
    CancelIn,
    Connection,
    Ignored,
    NotificationIn,
    Refused,
    ReplyIn,
    RequestIn,
    Stray,
    StrayKind,
)
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    ErrorDetail,
    ErrorResponse,
    Notification,
    RequestId,
    Response,
    Unanswered,
    error_response,
)
from ..protocol.meta import SUBSCRIPTION_ID
from ..protocol.revisions import Side
from ..runtime import Mailbox, Outbox
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
from .channel import AnyChannel, as_message_channel
from .envelope import Envelope, Peer, Received
from .idle import IdleTimer, OnProgress
from .pump import CLEAN_UP, write_all

logger = logging.getLogger("trio_mcp.client")

Answerer: TypeAlias = Callable[[Model], Awaitable[Model]]
"""Serves one method that the server may ask for."""

OnNotification: TypeAlias = Callable[[str, Model], None]

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

MAX_SERVING = 64
"""Requests of the server that this client answers at once."""


class ClientSession:
    """One conversation with a server over a channel.

    Args:
        answerers: what serves the server's requests, by method.
        on_notification: called with each notification that belongs to no request of ours.
        on_session_lost: called when the transport learns that the server no longer knows the session that is open now.
    """

    def __init__(
        self,
        channel: AnyChannel,
        answerers: Mapping[str, Answerer],
        on_notification: OnNotification,
        on_session_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = Connection(Side.SERVER)
        self.codec: Codec = self.connection.codec
        """The codec of the revision in use; the client sets it once the era is known."""
        self.stamp: JsonObject = {}
        """Members that every request carries in `_meta`: none in the handshake era."""
        self.strays: Counter[StrayKind] = Counter()
        """Replies of the server that nobody waited for."""
        self._channel = as_message_channel(channel)
        self._answerers = answerers
        self._on_notification = on_notification
        self._on_session_lost = on_session_lost
        self._outbox: Outbox[Envelope] = Outbox()
        self._mailbox = Mailbox(limit=100_000)
        self._progress: dict[RequestId, OnProgress] = {}
        self._streams: dict[str, OnNotification] = {}
        """What hears the notifications of a request that is a stream of them, by the request's id."""
        self._tokens = itertools.count(1)
        self._serving: dict[RequestId, trio.CancelScope] = {}
        self._over: Disconnected | None = None
        self._written = trio.Event()

    async def request(
        self,
        method: str,
        params: RequestParams,
        *,
        codec: Codec | None = None,
        timeout: float | None = None,
        idle: float = math.inf,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Model:
        """Ask the server and return its decoded result.

        Args:
            timeout: seconds to wait for the answer; None waits as long as it takes.
            idle: seconds without a report of progress, after which nothing more is waited for either.
            on_progress: called with each progress notification about this request, in the reader's task.
            on_notification: called with each notification that names this request as its subscription (M-META-3s).
            headers: sent with the request where the transport has headers.

        Raises:
            PeerError: the server answered with an error.
            RemoteProtocolError: its answer is malformed.
            RequestTimeout: no answer within `timeout`, or no progress for `idle` seconds; the server was told that none is wanted
                any more, unless it is `initialize` (L-CAN-1b).
            Disconnected: the connection ended first; `SessionLost` if the server did nothing for this request.

        A cancel withdraws the request at the server.
        """
        if self._over is not None:
            raise Disconnected(str(self._over))
        token = next(self._tokens)
        timer = None
        if idle < math.inf:
            on_progress = timer = IdleTimer(idle, on_progress, lambda: bool(self._serving))
        stamped = self._stamped(params, None if on_progress is None else token)
        request = self.connection.ask(method, stamped, codec or self.codec)
        slot = self._mailbox.open(str(request.id), Model)
        if on_progress is not None:
            self._progress[token] = on_progress
        if on_notification is not None:
            self._streams[str(request.id)] = on_notification
        self._outbox.post(Envelope(request, request.id, Peer(headers=headers)))
        try:
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                return await (slot.take() if timer is None else timer.take(slot, method))
        finally:
            self._progress.pop(token, None)
            self._streams.pop(str(request.id), None)
            slot.give_up()
            notice = self.connection.withdraw(request.id, "the caller no longer needs the answer")
            if notice is not None:
                self._outbox.post(Envelope(notice, about=request.id))
        raise RequestTimeout(f"the server did not answer {method} within {timeout} seconds")

    def notify(self, method: str, params: Model) -> None:
        """Tell the server something; it is sent as soon as the connection takes it."""
        self._outbox.post(Envelope(Notification(method, self.codec.encode_notification(method, params))))

    @property
    def over(self) -> Disconnected | None:
        """Why the connection has ended, when it has."""
        return self._over

    @property
    def modern(self) -> bool:
        """Whether every request carries its own context, and no session is kept."""
        return bool(self.stamp)

    async def run(self, nursery: trio.Nursery) -> None:
        """Carry messages until the channel ends; then everything that waits for an answer gets `Disconnected`."""
        why = "the server closed the connection"
        nursery.start_soon(self._write)
        try:
            async for envelope in self._channel:
                self._receive(envelope, nursery)
                del envelope  # the next one may come in an hour, and this one may be large
                if self._outbox.full:  # a server that does not read our answers is not read either
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
        """Write what is queued, within a bound, and send nothing more."""
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
            self._outbox.take_nowait()  # nobody else will take it
            self._written.set()

    def _stamped(self, params: RequestParams, token: int | None) -> RequestParams:
        """With what every request says in its `_meta`, and the token under which its progress is told."""
        meta: JsonObject = {**self.stamp, **(params.meta or {})}
        if token is not None:
            meta["progressToken"] = token
        return params.model_copy(update={"meta": meta}) if meta else params

    def _end(self, why: str) -> None:
        if self._over is None:
            self._over = Disconnected(why)
            self.connection.close()
            self._mailbox.close(self._over)
            self._outbox.close()

    def _receive(self, envelope: Envelope[Received], nursery: trio.Nursery, batch: OpenBatch | None = None) -> None:
        message = envelope.message
        if isinstance(message, Unanswered) and message.session_lost and message.id is None:
            self._on_session_lost()
        event = self.connection.receive(message)
        match event:
            case ReplyIn(request_id, result):
                self._reply(request_id, result)
            case NotificationIn(method, params):
                self._notified(method, params)
            case RequestIn():
                self._admit(event, nursery, batch)
            case CancelIn(request_id):
                self._cancelled(request_id)
            case Refused(error, answer):
                logger.warning("the server sent something invalid: %s", error)
                if answer and error.request_id is not None and not self.modern:  # M-RPC-1c: it is sent no answers
                    self._say(error_response(error), batch)
            case BatchIn():
                self._receive_batch(event, nursery)
            case Ignored(why):
                if isinstance(event, Stray):
                    self.strays[event.kind] += 1
                logger.debug("a message was ignored: %s", why)

    def _receive_batch(self, event: BatchIn, nursery: trio.Nursery) -> None:
        """What several messages ask is answered in one array, as it came (L-RPC-1b)."""
        batch = OpenBatch(self._outbox)
        for message in event.messages:
            self._receive(Envelope(message), nursery, batch)
        batch.all_read()

    def _say(self, answer: Response | ErrorResponse, batch: OpenBatch | None) -> None:
        if batch is None:
            self._outbox.post(Envelope(answer, about=answer.id))
        else:
            batch.answer(answer)

    def _admit(self, request: RequestIn, nursery: trio.Nursery, batch: OpenBatch | None) -> None:
        """Serve what the server asks; not of a modern one, which may not ask this way (M-RPC-1c), and not without limit."""
        if self.modern:
            logger.warning("a modern server sent the request %s; it was ignored", request.method)
            self.connection.answered(request.id)
        elif request.method == "ping":  # a sign of life has no limit (L-PING-1b)
            self.connection.answered(request.id)
            self._say(Response(request.id, request.codec.encode_result("ping", EmptyResult())), batch)
        elif len(self._serving) >= MAX_SERVING:
            self.connection.answered(request.id)
            detail = ErrorDetail(SERVER_BUSY, f"this client already answers {MAX_SERVING} requests, which is its limit")
            self._say(ErrorResponse(request.id, detail), batch)
        else:
            scope = self._serving[request.id] = trio.CancelScope()
            if batch is not None:
                batch.expect()
            nursery.start_soon(self._serve, request, scope, batch)

    def _cancelled(self, request_id: RequestId) -> None:
        """The server withdraws its question, or ends a stream of notifications that we asked for (M-CAN-2s)."""
        if request_id in self._serving:
            self._serving[request_id].cancel()
        elif str(request_id) in self._streams:
            self.connection.withdraw(request_id, "the server ended it")
            self._mailbox.post(str(request_id), SubscriptionsListenResult())

    def _reply(self, request_id: RequestId, result: Model | Exception) -> None:
        if isinstance(result, Exception):
            self._mailbox.fail(str(request_id), result)
        else:
            self._mailbox.post(str(request_id), result)

    def _notified(self, method: str, params: Model) -> None:
        try:
            if isinstance(params, ProgressNotificationParams):
                on_progress = self._progress.get(params.progress_token)
                if on_progress is not None:
                    on_progress(params)
            else:
                self._hearer(params)(method, params)
        except Exception:  # the caller's function must not end everybody's connection
            logger.exception("a handler of %s failed", method)

    def _hearer(self, params: Model) -> OnNotification:
        meta = params.meta if isinstance(params, NotificationParams) else None
        stream = None if meta is None else meta.get(SUBSCRIPTION_ID)
        return self._on_notification if stream is None else self._streams.get(str(stream), unheard)

    async def _serve(self, request: RequestIn, scope: trio.CancelScope, batch: OpenBatch | None) -> None:
        answer = None
        with scope:
            try:
                answer = await self._answer(request)
            finally:
                del self._serving[request.id]
                self.connection.answered(request.id)
        if batch is not None:
            batch.settle(answer)
        elif answer is not None:
            self._outbox.post(Envelope(answer, about=request.id))

    async def _answer(self, request: RequestIn) -> Response | ErrorResponse:
        answerer = self._answerers.get(request.method)
        if answerer is None:
            detail = ErrorDetail(METHOD_NOT_FOUND, f"this client does not serve {request.method}")
            return ErrorResponse(request.id, detail)
        try:
            result = await answerer(request.params)
            return Response(request.id, request.codec.encode_result(request.method, result))
        except PeerError as error:
            return ErrorResponse(request.id, ErrorDetail(error.code, error.message, error.data))
        except CapabilityError as error:
            return ErrorResponse(request.id, ErrorDetail(INVALID_PARAMS, str(error)))
        except Exception as error:
            logger.exception("the handler of %s failed", request.method)
            why = f": {error}" if isinstance(error, McpError) else ""  # of others nobody knows what they give away
            text = f"the client's handler of {request.method} failed{why}"
            return ErrorResponse(request.id, ErrorDetail(INTERNAL_ERROR, text))


def unheard(method: str, _params: Model) -> None:
    """A notification of a stream that has ended on this side."""
    logger.debug("%s came for a subscription that has ended", method)
