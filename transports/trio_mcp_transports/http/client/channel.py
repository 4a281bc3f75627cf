"""The client's end of Streamable HTTP: a channel in which every message is a POST and its answer comes back with it.

The envelope decides how a message travels. A stateless request belongs to no session, and closing its response cancels it
(M-HTTP-10s). Everything else belongs to the session that `initialize` opened: it is cancelled by a message,
its response can be resumed, and a GET brings what belongs to no request.

`exchange.py` is one request and what all of them share; here are the messages without an answer, and the standalone stream.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx2
import trio

from trio_mcp.base.backoff import Backoff
from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.errors import AuthorizationError, McpError, RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER
from trio_mcp.protocol.http.sse import SseEvent
from trio_mcp.protocol.jsonrpc import (
    Answers,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    Unanswered,
    parse,
)
from trio_mcp.session import Envelope, MessageChannel, Received, Sent
from trio_mcp.session.channel import OVER_HTTP, address_of
from trio_mcp.session.transport import AnyAuth, HeaderSource

from ...authorizing import end_retries, log_in_if_asked
from ...background import open_background
from ...connecting import BUSY, open_credentials
from ...httpx import (
    CONNECT_TIMEOUT,
    FROM_PROXY,
    MAX_MESSAGE,
    POST_TIMEOUT,
    ClientLimits,
    error_text,
    open_http,
    says_session_lost,
)
from ...sse.client import SseChannel
from .exchange import HttpConnection, RequestExchange
from .streams import NotResumable, ResumableStream

logger = peer_logger("trio_mcp.http")

DELETE_TIMEOUT: Final = 2.0

ANSWER_ATTEMPTS: Final = 6
"""How often an answer is posted to a server that ends without a response, as one does that is restarted."""

BACKOFF: Final = Backoff(first=0.25, longest=4.0)
"""How long to wait before that."""

MAX_ANSWERING: Final = 32
"""How many answers to the server's questions may be in flight; at this limit, its next questions wait."""

SESSION_LOST: Final = "the connection broke off, and the session ended with it"

STANDALONE_TIMEOUT: Final = 1.0
"""Seconds that a session's first request waits for the standalone stream: some servers lose what they ask before it is there."""


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: HeaderSource | None = None,
    auth: AnyAuth | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    post_timeout: float = POST_TIMEOUT,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[HttpChannel]:
    """Open a channel to the MCP endpoint at `url`. Nothing is sent before the first message.

    Args:
        headers: sent with every request, for example `{"authorization": "Bearer ..."}`; or a plain or async function that returns
            them, called before each request.
        auth: how the client authenticates: `OAuth()` or another of `trio_mcp.auth`; a bearer token, or a plain or async function
            that returns one; or an `httpx2.Auth`. A login takes place before the channel is open.
        connect_timeout: seconds to connect to the server, and to send it a message.
        post_timeout: seconds that the server may take to accept a message that needs no response.
        max_message: the maximum size of one message of the server, in bytes.

    A session has one more stream, for messages that belong to no request. It is reopened whenever it ends, if the server offers
    it. A server that speaks HTTP+SSE only (2024-11-05) is recognized when the session is opened (L-HTTP-22). Leaving the block
    closes the open requests, which cancels those without a session, and deletes the session (in two seconds at most).

    Raises:
        AuthorizationError: the login failed.
    """
    limits = ClientLimits(connect_timeout, post_timeout, max_message)
    async with (
        open_credentials(auth, url, connect_timeout) as credentials,
        open_http(limits, headers, credentials) as http,
        open_background() as nursery,
    ):
        await log_in_if_asked(http, url, credentials, connect_timeout)
        channel = HttpChannel(url, http, nursery, limits)
        try:
            yield channel
        finally:
            await channel.aclose()


class HttpChannel(MessageChannel):
    """One client's messages over Streamable HTTP; made by `connect`."""

    def __init__(self, url: str, http: httpx2.AsyncClient, nursery: trio.Nursery, limits: ClientLimits) -> None:
        self._connection = HttpConnection(url, http, limits)
        self.network = {**OVER_HTTP, **address_of(url)}
        self._nursery = nursery
        self._records = RepeatedRecords(logger)
        self._standalone = trio.CancelScope()
        """Of the stream that brings what belongs to no request (L-HTTP-10c)."""
        self._had_standalone = False
        """Whether an earlier session had such a stream."""
        self._answering = trio.Semaphore(MAX_ANSWERING)
        self._closed = False
        self._opening = trio.CancelScope()
        """Of the last `initialize`."""
        self._sse_fallback: SseChannel | None = None
        """What carries everything once the server turned out to speak HTTP+SSE only."""
        self._had_sse_fallback = False
        """There was one, which has ended."""

    async def send(self, value: Envelope) -> None:
        """Post one message. This waits for a notification to arrive, since what is sent next may depend on it, and for a free
        place among the answers.

        A message that does not arrive ends nothing else: a request gets an error, anything else is logged.

        Raises:
            trio.ClosedResourceError: the channel was closed.

        After a cancel the message may or may not have been sent.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = value.message
        if self._sse_fallback is not None:
            # Its stream may end meanwhile, which fails every request that has no answer.
            with suppress(trio.BrokenResourceError):
                await self._sse_fallback.send(value)
        elif self._had_sse_fallback and self._needs_lost_session(message):
            await self._send_without_session(value)
        elif isinstance(message, Request):
            self._start(message, value)
            await trio.lowlevel.checkpoint()
        elif isinstance(message, Notification):
            await self._notify(message, value)
        else:
            await self._answering.acquire()
            self._nursery.start_soon(self._answer, value)

    async def receive(self) -> Envelope[Received]:
        """Return the next message of the server, whichever response brought it.

        Raises:
            trio.ClosedResourceError: the channel was closed.
        """
        return await self._connection.inbox.receive()

    async def aclose(self) -> None:
        """Abandon what is open and delete the session; bounded, also when cancelled."""
        if self._closed:
            return
        self._closed = True
        end_retries(self._connection.http)
        self._connection.requests.cancel_all()
        self._standalone.cancel()
        if self._connection.has_session_id:
            await self._delete_session()
        self._connection.inbox.close()
        if self._sse_fallback is not None:
            await self._sse_fallback.aclose()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return f"<HttpChannel {self._connection.shown} open={len(self._connection.requests)}>"

    # one step each

    def _start(self, request: Request, value: Envelope) -> None:
        exchange = RequestExchange(self._connection, request, value, self._fall_back)
        if request.method == "initialize":
            # A client that opens a session again no longer waits for the earlier answer, and MCP has no cancel for `initialize`.
            self._opening.cancel()
            self._opening = exchange.entry.scope
        self._nursery.start_soon(exchange.run)

    async def _notify(self, notice: Notification, value: Envelope) -> None:
        if notice.method == "notifications/cancelled":
            # In a task: a server that is slow to take the news must not hold up what is sent next.
            self._nursery.start_soon(self._withdraw, value)
        elif (
            await self._post_and_report(value)
            and notice.method == "notifications/initialized"
            and self._connection.has_session_id
        ):
            await self._open_standalone()

    async def _withdraw(self, value: Envelope) -> None:
        """Cancel a request. Without a session, closing its response tells the server. In a session a message does, and the
        server then has a moment to withdraw its own questions on that response, which it need not end (L-CAN-2b)."""
        entry = self._connection.requests.get(value.about)
        if self._connection.session and not value.stateless:
            await self._post_and_report(value)
            if entry is not None:
                entry.end_soon()
        else:
            if entry is not None:
                entry.scope.cancel()
            await trio.lowlevel.checkpoint()

    async def _answer(self, value: Envelope) -> None:
        try:
            # The server drops an answer that comes twice. One that is lost would not be asked for again: its call would wait.
            await self._post_and_report(value, ANSWER_ATTEMPTS)
        finally:
            self._answering.release()

    # messages without an answer

    async def _post_and_report(self, envelope: Envelope, attempts: int = 1) -> bool:
        """Post a message and return whether the server accepted it; what went wrong is logged.

        If the server rejects an answer, our request on whose response it had asked fails; otherwise it would never end.

        Args:
            attempts: how often it is posted, with growing delays, to a server that is not reached, is busy or ends without a
                response.
        """
        what, failure = type(envelope.message).__name__, ""
        for attempt in range(attempts):
            try:
                return await self._post_once(envelope, what, is_last=attempt + 1 == attempts)
            except httpx2.HTTPError as error:
                failure = error_text(error)
            except AuthorizationError as error:
                failure = str(error)
                break
            if attempt + 1 < attempts:
                await trio.sleep(BACKOFF.delay(attempt))
        self._records.log("a %s did not reach %s: %s", what, self._connection.shown, failure)
        return False

    async def _post_once(self, envelope: Envelope, what: str, *, is_last: bool) -> bool:
        connection, message = self._connection, envelope.message
        headers, timeout = connection.headers_of(envelope).every, connection.limits.post_timeout
        session = connection.session
        status, body, _ = await connection.post_message(connection.url, message, headers, timeout)
        if status in (*BUSY, *FROM_PROXY) and not is_last:
            raise httpx2.ReadError(f"the server answered HTTP {status}")
        if status >= 300:
            if SESSION_HEADER in session and status != 404 and says_session_lost(status, body):
                await connection.report_session_lost(session)
            self._records.log("the server answered %s to a %s", status, what)
            for each in message.answers if isinstance(message, Answers) else (message,):
                await self._on_answer_rejected(each, status)
            return False
        return True

    async def _on_answer_rejected(self, message: Message, status: int) -> None:
        """Fail the request on whose response the server asked what this message answers."""
        if not isinstance(message, Response | ErrorResponse) or message.id is None:
            return
        entry = self._connection.requests.asked_on(message.id)
        if entry is not None:
            entry.scope.cancel()
            why = f"the server refused the answer to its question with HTTP {status}"
            await self._connection.deliver(Unanswered(entry.id, why))

    # the standalone stream

    async def _open_standalone(self) -> None:
        """Ask for the stream, in place of that of an earlier session; wait a moment until the server has answered."""
        self._standalone.cancel()
        scope = self._standalone = trio.CancelScope()
        session = self._connection.session
        stream = ResumableStream(self._connection, session, self._on_standalone_event)
        self._nursery.start_soon(self._keep_open, stream, session, scope)
        with trio.move_on_after(STANDALONE_TIMEOUT):
            await stream.tried.wait()

    async def _keep_open(self, stream: ResumableStream, session: Mapping[str, str], scope: trio.CancelScope) -> None:
        """Open the stream again whenever it ends, as long as the server has one."""
        with scope:
            try:
                await stream.resume(math.inf, at_once=True)
            except NotResumable as end:
                # A server without such a stream may answer 404 or 405 to the first GET. Later it means that the session is lost,
                # or the stream.
                if end.status == 404 and stream.opened:
                    await self._connection.report_session_lost(session)
                elif stream.opened or self._had_standalone:
                    await self._report_stream_lost(end)
                else:
                    logger.debug("there is no stream for what belongs to no request: %s", end)
            except RemoteProtocolError as error:
                await self._report_stream_lost(error)
            finally:
                self._had_standalone = self._had_standalone or stream.opened > 0

    async def _report_stream_lost(self, why: Exception) -> None:
        self._records.log("messages that belong to no request are no longer received: %s", why)
        await self._connection.deliver(Unanswered(None, f"the stream of changes has ended: {why}"))

    async def _on_standalone_event(self, event: SseEvent) -> None:
        await self._connection.deliver(parse(event.data.encode(), self._connection.json_limits))

    # the ends

    async def _fall_back(self, request: Request) -> bool:
        """Return whether the server speaks HTTP+SSE (L-HTTP-22); then everything travels over that, from `initialize` on."""
        # Both share one inbox, since the task that receives waits at it already.
        fallback = SseChannel(self._connection, self._nursery, self._on_sse_ended)
        try:
            await fallback.open()
        except McpError as error:
            logger.debug("no HTTP+SSE either: %s", error)
            return False
        self._sse_fallback = fallback
        await fallback.send(Envelope(request))
        return True

    async def _on_sse_ended(self, why: str) -> None:
        """Report that the stream of HTTP+SSE has ended, and the session with it."""
        # The next `initialize` is posted again: by now the server may speak Streamable HTTP.
        self._sse_fallback, self._had_sse_fallback = None, True
        await self._connection.deliver(Unanswered(None, why, connection_lost=True))

    def _needs_lost_session(self, message: Sent) -> bool:
        """Whether a message belongs to the session that ended with the stream of HTTP+SSE, and no other was opened since."""
        opens = isinstance(message, Request) and message.method == "initialize"
        return not opens and not self._connection.session

    async def _send_without_session(self, value: Envelope) -> None:
        """Answer a request that belongs to a session which has ended with its stream; drop anything else."""
        if isinstance(value.message, Request):
            # In a task: the inbox may be full, and the one who empties it may wait for this very send.
            lost = Unanswered(value.message.id, SESSION_LOST, session_lost=True)
            self._nursery.start_soon(self._connection.deliver, lost)
        await trio.lowlevel.checkpoint()

    async def _delete_session(self) -> None:
        connection = self._connection
        with trio.move_on_after(DELETE_TIMEOUT, shield=True):
            try:
                async with connection.http.stream("DELETE", connection.url, headers=connection.session):
                    pass
            except (httpx2.HTTPError, AuthorizationError) as error:
                logger.debug("the session was not deleted: %s", error)
