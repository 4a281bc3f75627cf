"""The client's end of Streamable HTTP: a channel in which every message is a POST and its answer comes back with it.

The envelope decides how a message travels. A stateless request belongs to no session, and closing its response cancels it
(M-HTTP-10s). Everything else belongs to the session that `initialize` opened: it is cancelled by a message,
its response can be resumed, and a GET brings what belongs to no request.

The parts: `exchange.py` is one request, `posts.py` are messages without an answer, `standalone.py` is the GET, `connection.py` is
what they share.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import trio

from trio_mcp.errors import McpError
from trio_mcp.protocol.jsonrpc import Notification, Request
from trio_mcp.session import Envelope, MessageChannel, Received

from ...background import open_background
from ...httpx.limits import CONNECT_TIMEOUT, MAX_MESSAGE, POST_TIMEOUT, ClientLimits
from ...httpx.requests import open_http
from ...sse.client import SseConnection
from .answers import is_notification
from .connection import END_TIMEOUT, HttpConnection
from .exchange import RequestExchange
from .posts import post_and_report
from .session import PostHeaders
from .standalone import StandaloneStream

logger = logging.getLogger("trio_mcp.http")

DELETE_TIMEOUT: Final = 2.0

MAX_ANSWERING: Final = 32
"""Answers to the server's questions that are on their way at a time; while there are so many, its next questions wait."""


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    post_timeout: float = POST_TIMEOUT,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[HttpChannel]:
    """Open a channel to the MCP endpoint at `url`. Nothing is sent before the first message.

    Args:
        headers: sent with every request, for example `{"authorization": "Bearer ..."}`.
        connect_timeout: seconds to reach the server, and to hand it a message.
        post_timeout: seconds that the server may take to accept a message that it does not answer.
        max_message: bytes that one message of the server may have.

    A session has one more stream, for what belongs to no request. It is reopened whenever it ends, if the server has it.
    A server that speaks HTTP+SSE only (2024-11-05) is recognized when the session is opened (L-HTTP-22).
    On the way out open requests are abandoned, which cancels those without a session, and a session is deleted (in two seconds
    at most).
    """
    limits = ClientLimits(connect_timeout, post_timeout, max_message)
    async with open_http(limits, headers) as http, open_background() as nursery:
        channel = HttpChannel(url, http, nursery, limits)
        try:
            yield channel
        finally:
            await channel.aclose()


class HttpChannel(MessageChannel):
    """One client's messages over Streamable HTTP; made by `connect`."""

    def __init__(self, url: str, http: httpx2.AsyncClient, nursery: trio.Nursery, limits: ClientLimits) -> None:
        self._connection = HttpConnection(url, http, limits)
        self._nursery = nursery
        self._standalone = StandaloneStream(self._connection, nursery)
        self._answering = trio.Semaphore(MAX_ANSWERING)
        self._closed = False
        self._opening = trio.CancelScope()
        """Of the last `initialize`."""
        self._sse_fallback: SseConnection | None = None
        """What carries everything once the server turned out to speak HTTP+SSE only."""

    async def send(self, value: Envelope) -> None:
        """Post one message. This waits for a notification to arrive, since what is sent next may depend on it, and for a free
        place among the answers.

        A message that does not arrive ends nothing else: a request gets an error, anything else is logged.

        Raises:
            trio.ClosedResourceError: the channel was closed.
            trio.BrokenResourceError: the stream of an HTTP+SSE server has ended.

        After a cancel the message may or may not have been sent.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = value.message
        if self._sse_fallback is not None:
            await self._sse_fallback.post(self._nursery, message)
        elif isinstance(message, Request):
            self._start(message, self._connection.session.of(value))
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
            trio.EndOfChannel, trio.BrokenResourceError: the stream of an HTTP+SSE server ended, or broke off.
        """
        try:
            return await self._connection.inbox.receive()
        except trio.EndOfChannel:
            if self._sse_fallback is not None:
                self._sse_fallback.check()
            raise

    async def aclose(self) -> None:
        """Abandon what is open and delete the session; bounded, also when cancelled."""
        if self._closed:
            return
        self._closed = True
        self._connection.requests.cancel_all()
        self._standalone.close()
        if self._sse_fallback is not None:
            self._sse_fallback.close()
        if self._connection.session.has_id:
            await self._delete_session()
        self._connection.inbox.close()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return f"<HttpChannel {self._connection.url} open={len(self._connection.requests)}>"

    # one step each

    def _start(self, request: Request, headers: PostHeaders) -> None:
        entry = self._connection.requests.add(request.id)
        if request.method == "initialize":  # the answer to an earlier one, which is never withdrawn, is not awaited
            self._opening.cancel()
            self._opening = entry.scope
        exchange = RequestExchange(self._connection, request, entry, headers, self._fall_back)
        self._nursery.start_soon(exchange.run)

    async def _notify(self, notice: Notification, value: Envelope) -> None:
        if is_notification(notice, "notifications/cancelled"):
            self._nursery.start_soon(self._withdraw, value)
            return
        accepted = await post_and_report(self._connection, value)
        if accepted and is_notification(notice, "notifications/initialized") and self._connection.session.has_id:
            await self._standalone.open()

    async def _withdraw(self, value: Envelope) -> None:
        """Cancel a request. Without a session, closing its response tells the server. In a session a message does, and the
        server then has a moment to withdraw its own questions on that response, which it need not end (L-CAN-2b)."""
        entry = self._connection.requests.get(value.about)
        if self._connection.session.current and not value.stateless:
            await post_and_report(self._connection, value)
            if entry is not None:
                entry.end_soon(END_TIMEOUT)
        else:
            if entry is not None:
                entry.scope.cancel()
            await trio.lowlevel.checkpoint()

    async def _answer(self, value: Envelope) -> None:
        try:
            await post_and_report(self._connection, value)
        finally:
            self._answering.release()

    async def _fall_back(self, request: Request) -> bool:
        """Return whether the server speaks HTTP+SSE (L-HTTP-22); then everything travels over that, from `initialize` on."""
        connection = self._connection
        fallback = SseConnection(connection.http, connection.url, connection.arrived.clone(), connection.limits)
        try:
            await fallback.open(self._nursery)
        except McpError as error:
            logger.debug("no HTTP+SSE either: %s", error)
            return False
        connection.arrived.close()
        self._sse_fallback = fallback
        await fallback.post(self._nursery, request)
        return True

    async def _delete_session(self) -> None:
        connection = self._connection
        with trio.move_on_after(DELETE_TIMEOUT, shield=True):
            try:
                async with connection.http.stream("DELETE", connection.url, headers=connection.session.current):
                    pass
            except httpx2.HTTPError as error:
                logger.debug("the session was not deleted: %s", error)
