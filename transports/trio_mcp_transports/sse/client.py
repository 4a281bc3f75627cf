"""The client's end of HTTP+SSE (2024-11-05): a stream that brings everything, and a URI that everything is posted to.

The server says the URI in the stream's first event. Messages are posted one after the other, since the server takes them in the
order in which they come. The stream is the connection: when it ends, so does the connection.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import trio

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.base.values import shown_url
from trio_mcp.errors import AuthorizationError, Disconnected, RemoteProtocolError, RequestTimeout
from trio_mcp.protocol.http.sse import SseDecoder, SseEvent
from trio_mcp.protocol.jsonrpc import ErrorResponse, Malformed, Request, Unanswered, parse
from trio_mcp.session import Envelope, MessageChannel, Received, Sent
from trio_mcp.session.channel import OVER_HTTP, address_of
from trio_mcp.session.client import CLOSED
from trio_mcp.session.transport import AnyAuth, HeaderSource

from ..authorizing import log_in_if_asked
from ..background import open_background
from ..connecting import open_credentials
from ..httpx import (
    CONNECT_TIMEOUT,
    EVENT_STREAM,
    LARGE_PIECE,
    MAX_MESSAGE,
    ClientLimits,
    ServerConnection,
    error_reply,
    error_text,
    excerpt,
    joined_url,
    may_be_sent,
    open_body,
    open_http,
    read_body,
)

logger = peer_logger("trio_mcp.http")

ACCEPT_TIMEOUT: Final = 15.0
"""Seconds that a server may take to accept a message: ours waits ten for its reader."""

STALE: Final = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
"""Errors of a request on a kept connection that the server was just closing."""

POSTABLE = re.compile(r"[!-~]{1,4096}")
"""What may be a reference to the URI that is posted to: visible ASCII."""


class Posted(NamedTuple):
    """What became of a message that was posted.

    Attributes:
        status: of the answer to the POST; 0 if there was none.
        body: of that answer.
        why: what went wrong, in words.
        is_sent: it may have reached the server.
        headers: of that answer.
        rejection: why there are no credentials for it.
    """

    status: int
    body: bytes
    why: str
    is_sent: bool = True
    headers: Mapping[str, str] = {}
    rejection: AuthorizationError | None = None

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300


class SseChannel(MessageChannel):
    """One connection over HTTP+SSE: its stream, and what is posted beside it. Made by `connect_sse`.

    Args:
        connection: brings the server's messages; its inbox ends with the stream.
        nursery: owns the task that reads the stream.
        on_end: called with the reason when the stream has ended, and the channel was not closed; the inbox then stays open.
    """

    def __init__(
        self,
        connection: ServerConnection,
        nursery: trio.Nursery,
        on_end: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._connection = connection
        self.network = {**OVER_HTTP, **address_of(connection.url)}
        self._nursery = nursery
        self._on_end = on_end
        self._records = RepeatedRecords(logger)
        self._uri = ""
        self._reading = trio.CancelScope()
        self._turn = trio.StrictFIFOLock()
        self._broken: str | None = None
        """Why the stream ended, when that was not the server's wish."""
        self._ended = False
        self._closed = False

    async def open(self) -> None:
        """Open the stream; a task reads it from then on.

        Raises:
            Disconnected: the server cannot be reached, or the stream ended immediately.
            RequestTimeout: its first event did not come in time.
            RemoteProtocolError: it answers with something else, or names a URI of another origin.

        A cancel closes it again.
        """
        seconds = self._connection.limits.connect
        with trio.move_on_after(seconds):
            await self._nursery.start(self._read)
            return
        raise RequestTimeout(f"{self._connection.shown}: no event `endpoint` came within {seconds:g} seconds")

    async def send(self, value: Envelope) -> None:
        """Post one message, after those before it, and wait until the server has taken it.

        A message that does not arrive ends nothing else: a request gets an error, anything else is logged.

        Raises:
            trio.ClosedResourceError: the channel was closed.
            trio.BrokenResourceError: the server's stream has ended.

        After a cancel the message may or may not have been sent.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message, shown = value.message, self._connection.shown
        # The server takes messages in the order of their POSTs, so one waits for the other: `initialized` must not
        # overtake.
        async with self._turn:
            if self._ended:
                raise trio.BrokenResourceError(self._broken or "the server ended the stream")
            posted = await self._posted(message)
        if posted.accepted:
            return
        if not isinstance(message, Request):
            self._records.log("a %s did not reach %s: %s", type(message).__name__, shown, posted.why)
            return
        reply: ErrorResponse | Malformed | Unanswered
        if posted.rejection is not None:
            reply = Malformed(posted.rejection, message.id)
        elif posted.status:
            reply = error_reply(message, {}, posted.status, posted.body, headers=posted.headers)
        else:
            reply = Unanswered(message.id, f"{shown}: {posted.why}", is_sent=posted.is_sent)
        # In a task: the inbox may be full, and the one who empties it may wait for this very send.
        self._nursery.start_soon(self._connection.deliver, reply)

    async def receive(self) -> Envelope[Received]:
        """Return the next message of the server. A cancel loses nothing.

        Raises:
            trio.EndOfChannel: the server ended the stream; everything it had sent was received.
            trio.BrokenResourceError: the stream broke off; the text says why.
            trio.ClosedResourceError: the channel was closed.
        """
        try:
            return await self._connection.inbox.receive()
        except trio.EndOfChannel:
            if self._broken is None:
                raise
        raise trio.BrokenResourceError(self._broken)

    async def aclose(self) -> None:
        """End the stream, which ends the session at the server."""
        self._closed = True
        self._reading.cancel()
        self._connection.inbox.close()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return f"<SseChannel {'closed' if self._closed else 'open'}>"

    # one step each

    async def _read(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Read the stream to its end; an error before the first event is raised where the stream is opened."""
        try:
            with self._reading:
                await self._read_stream(task_status)
        except httpx2.HTTPError as error:
            self._broken = error_text(error)
        except RemoteProtocolError as error:
            if not self._uri:
                raise
            self._broken = str(error)
        finally:
            self._ended = True
            # Streamable HTTP goes on with the inbox when a stream that it tried for could not be opened.
            if self._uri and self._on_end is None:
                self._connection.arrived.close()
        if not self._uri:
            why = self._broken or "the server ended the stream before its first event"
            raise Disconnected(f"{self._connection.shown}: {why}")
        if self._on_end is not None and not self._closed:
            await self._on_end(CLOSED if self._broken is None else f"the connection broke: {self._broken}")

    async def _read_stream(self, task_status: trio.TaskStatus[None]) -> None:
        url, limits = self._connection.url, self._connection.limits
        async with self._asked() as response:
            await check_stream(response)
            decoder = SseDecoder(limits.message)
            async with open_body(response) as chunks:
                async for chunk in chunks:
                    for event in decoder.feed(chunk):
                        if self._uri:
                            await self._take(event)
                        else:
                            self._uri = endpoint_uri(url, event)
                            task_status.started()
                    if len(chunk) > LARGE_PIECE:
                        await trio.lowlevel.checkpoint()
        # Raises the error that waits, if there is one.
        decoder.feed(b"")

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[httpx2.Response]:
        """The response to the GET, whose body has not been read."""
        http = self._connection.http
        # `no-store` as browsers have it for an EventSource (WHATWG HTML, 9.2): no cache may answer for the server.
        request = http.build_request(
            "GET", self._connection.url, headers={"accept": EVENT_STREAM, "cache-control": "no-store"}
        )
        try:
            response = await http.send(request, stream=True)
        except STALE:
            # A server that rejects a POST before it has read the body may close the connection without saying so in the response.
            # So hypercorn does, and the client finds out with its next request. To ask twice for a stream does no harm.
            response = await http.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _take(self, event: SseEvent) -> None:
        if event.event == "message":
            await self._connection.deliver(parse(event.data.encode(), self._connection.json_limits))

    async def _posted(self, message: Sent) -> Posted:
        """Post a message and return what became of it."""
        headers = {"content-type": "application/json"}
        try:
            status, body, received = await self._connection.post_message(self._uri, message, headers, ACCEPT_TIMEOUT)
        except httpx2.HTTPError as error:
            return Posted(0, b"", error_text(error), may_be_sent(error))
        except AuthorizationError as error:
            return Posted(0, b"", str(error), rejection=error)
        return Posted(status, body, f"the server answered HTTP {status}{excerpt(body)}", headers=received)


@asynccontextmanager
async def connect_sse(
    url: str,
    *,
    headers: HeaderSource | None = None,
    auth: AnyAuth | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[SseChannel]:
    """A channel over the HTTP+SSE stream at `url`, such as `http://localhost:8000/sse`.

    Args:
        headers: sent with every request, for example `{"authorization": "Bearer ..."}`; or a plain or async function that returns
            them, called before each request.
        auth: how the client authenticates, as over Streamable HTTP.
        connect_timeout: seconds to reach the server, and until the stream's first event.
        max_message: the maximum size of one message of the server, in bytes.

    Raises:
        Disconnected, RequestTimeout, RemoteProtocolError: see `SseChannel.open`.
    """
    limits = ClientLimits(connect_timeout, message=max_message)
    async with (
        open_credentials(auth, url, connect_timeout) as credentials,
        open_http(limits, headers, credentials) as http,
        open_background() as nursery,
    ):
        await log_in_if_asked(http, url, credentials, connect_timeout)
        channel = SseChannel(ServerConnection(url, http, limits), nursery)
        await channel.open()
        try:
            yield channel
        finally:
            await channel.aclose()


async def check_stream(response: httpx2.Response) -> None:
    """Refuse an answer that is not a stream.

    Raises:
        RemoteProtocolError: it is something else; the text says what.
    """
    status = response.status_code
    if status != 200:
        body = await read_body(response, MAX_ERROR_BODY)
        raise RemoteProtocolError(f"the server answered HTTP {status}{excerpt(body)}")
    if not response.headers.get("content-type", "").lower().startswith(EVENT_STREAM):
        raise RemoteProtocolError("the server answered a GET with something else than a stream of events")


MAX_ERROR_BODY: Final = 64 * 1024


def endpoint_uri(url: str, event: SseEvent) -> str:
    """Return the URI that the first event of a stream names.

    Raises:
        RemoteProtocolError: it names none, or one of another origin.
    """
    if event.event != "endpoint":
        raise RemoteProtocolError(f"the first event of the stream is {event.event!r:.80}, not 'endpoint'")
    here = httpx2.URL(url)
    uri = joined_url(here, event.data) if POSTABLE.fullmatch(event.data) else None
    # The messages may hold secrets, and the headers do: they must not go to a host that the stream names.
    own = (here.scheme, here.host, here.port, b"")
    if uri is not None and (uri.scheme, uri.host, uri.port, uri.userinfo) == own:
        return str(uri)
    raise RemoteProtocolError(
        f"the event `endpoint` names no URI of the same origin as {shown_url(url)}: {event.data!r:.80}"
    )
