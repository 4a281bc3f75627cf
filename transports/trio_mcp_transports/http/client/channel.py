"""The client's end of Streamable HTTP: a channel in which every message is a POST and its answer comes back with it.

The channel reads the era off the messages: a request with a version in its `_meta` is modern and closing its response is how it
is cancelled (M-HTTP-10s); any other belongs to the session that `initialize` opened. In a session, a GET brings what belongs
to no request, and the rest of a response that ended early. A response that ends without an answer and cannot be gone on with
is told to whoever waits for it at once; so is a session that the server no longer knows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import httpx2
import trio

from trio_mcp.errors import McpError, RemoteProtocolError
from trio_mcp.protocol.http.headers import METHOD_HEADER, SESSION_HEADER, VERSION_HEADER, mirrored
from trio_mcp.protocol.http.sse import SseEvent
from trio_mcp.protocol.jsonrpc import (
    Answers,
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    decoded,
    dump,
    parse,
)
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session import Envelope, MessageChannel, Received, Sent

from ...background import open_background
from ...httpx.answers import LOST, refusal
from ...httpx.limits import CONNECT_TIMEOUT, INBOX, MAX_MESSAGE, TELL_TIMEOUT, ClientLimits
from ...httpx.requests import EVENT_STREAM, open_http, reason, whole
from ...sse.client import SseConversation
from .answers import answers, is_notice, session_opened, unanswering
from .streams import EventStream, NotContinued

logger = logging.getLogger("trio_mcp.http")

DELETE_TIMEOUT = 2.0
END_TIMEOUT = 1.0
"""Seconds that a response may stay open once its request is answered, which ends it (M-HTTP-8s), or given up."""

STAND_TIMEOUT = 1.0
"""Seconds that a session's first request waits for the stream of what belongs to none: some servers lose what they ask before."""

MAX_ANSWERING = 32
"""Answers to questions of the server that are on their way at once; while there are so many, its next questions wait."""

TRIES = 20
"""How often in a row the rest of a response may be asked for in vain."""

OLDER = (400, 404, 405)
"""What a server that speaks HTTP+SSE only answers to the POST of `initialize` (L-HTTP-22)."""

ACCEPT = "application/json, text/event-stream"


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    tell_timeout: float = TELL_TIMEOUT,
    max_message: int = MAX_MESSAGE,
) -> AsyncIterator[HttpChannel]:
    """A channel to the MCP endpoint at `url`. Nothing is sent before the first message.

    Args:
        headers: sent with every request, for example `{"authorization": "Bearer ..."}`.
        connect_timeout: seconds to reach the server, and to hand it a message.
        tell_timeout: seconds that a server may take to accept what it need not answer.
        max_message: bytes that one message of the server may have.

    A session has one more stream, for what belongs to no request. It is opened again whenever it ends, if the server has it.
    A server that speaks HTTP+SSE only (2024-11-05) is found out when the session is opened (L-HTTP-22).
    On the way out open requests are abandoned, which cancels modern ones, and a session is deleted (two seconds at most).
    """
    limits = ClientLimits(connect_timeout, tell_timeout, max_message)
    async with open_http(limits, headers) as http, open_background() as nursery:
        channel = HttpChannel(url, http, nursery, limits)
        try:
            yield channel
        finally:
            await channel.aclose()


class HttpChannel(MessageChannel):
    """One conversation over Streamable HTTP; made by `connect`."""

    def __init__(self, url: str, http: httpx2.AsyncClient, nursery: trio.Nursery, limits: ClientLimits) -> None:
        self._url = url
        self._http = http
        self._nursery = nursery
        self._limits = limits
        self._json_limits = JsonLimits(max_bytes=limits.message)
        self._arrived, self._inbox = trio.open_memory_channel[Envelope[Received]](INBOX)
        self._open: dict[RequestId, trio.CancelScope] = {}
        self._session: dict[str, str] = {}
        self._asked_by: dict[RequestId, RequestId] = {}
        """The request of ours on whose response the server asked, by the id of its question."""
        self._answering = trio.Semaphore(MAX_ANSWERING)
        self._closed = False
        self._opening = trio.CancelScope()
        """Of the last `initialize`."""
        self._standing = trio.CancelScope()
        """Of the stream for what belongs to no request."""
        self._older: SseConversation | None = None
        """What carries everything when the server turned out to speak HTTP+SSE only."""

    async def send(self, value: Envelope) -> None:
        """Post one message. Waited for are a notification, since what comes next may depend on it, and room for an answer.

        What does not arrive ends nothing but itself: a request is told so, anything else is logged.

        Raises:
            trio.ClosedResourceError: the channel was closed.
            trio.BrokenResourceError: the stream of an HTTP+SSE server has ended.

        A cancel may or may not have sent it.
        """
        if self._closed:
            raise trio.ClosedResourceError
        message = value.message
        if self._older is not None:
            await self._older.post(self._nursery, message)
        elif isinstance(message, Request):
            scope = self._open[message.id] = trio.CancelScope()
            if message.method == "initialize":  # nobody waits for the answer to one before, which is never withdrawn
                self._opening.cancel()
                self._opening = scope
            self._nursery.start_soon(self._exchange, message, value.peer.headers, scope)
            await trio.lowlevel.checkpoint()
        elif is_notice(message, "notifications/cancelled"):
            self._nursery.start_soon(self._withdraw, message, value.about)
        elif isinstance(message, Notification):
            accepted = await self._tell(message)
            if accepted and is_notice(message, "notifications/initialized") and SESSION_HEADER in self._session:
                await self._open_standing()
        else:
            await self._answering.acquire()
            self._nursery.start_soon(self._answer, message)

    async def receive(self) -> Envelope[Received]:
        """The next message of the server, whichever response brought it.

        Raises:
            trio.ClosedResourceError: the channel was closed.
            trio.EndOfChannel, trio.BrokenResourceError: the stream of an HTTP+SSE server ended, or broke off.
        """
        try:
            return await self._inbox.receive()
        except trio.EndOfChannel:
            if self._older is not None:
                self._older.check()
            raise

    async def aclose(self) -> None:
        """Abandon what is open and delete the session; bounded, also when cancelled."""
        if self._closed:
            return
        self._closed = True
        for scope in (*self._open.values(), self._standing):
            scope.cancel()
        if self._older is not None:
            self._older.close()
        if SESSION_HEADER in self._session:
            with trio.move_on_after(DELETE_TIMEOUT, shield=True):
                try:
                    async with self._http.stream("DELETE", self._url, headers=self._session):
                        pass
                except httpx2.HTTPError as error:
                    logger.debug("the session was not deleted: %s", error)
        self._inbox.close()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return f"<HttpChannel {self._url} open={len(self._open)}>"

    # one step each

    async def _withdraw(self, notice: Notification, request_id: RequestId | None) -> None:
        """Give up a request. Closing its response tells a modern server; a legacy one is told in words, and then has
        a moment to withdraw its own questions on that response, which it need not end (L-CAN-2b)."""
        scope = trio.CancelScope() if request_id is None else self._open.get(request_id, trio.CancelScope())
        if self._session:
            await self._tell(notice)
            scope.deadline = trio.current_time() + END_TIMEOUT
        else:
            scope.cancel()
            await trio.lowlevel.checkpoint()

    async def _exchange(self, request: Request, headers: Mapping[str, str], scope: trio.CancelScope) -> None:
        """Post a request and pass on what comes back; its last part is an answer, or that there is none."""
        with scope:
            try:
                await self._post(request, {**headers, **self._headers(request)})
            except httpx2.HTTPError as error:
                await self._pass_on(Unanswered(request.id, f"{self._url}: {reason(error)}"))
            except RemoteProtocolError as error:
                await self._pass_on(Malformed(error, request.id))
        if self._open.get(request.id) is scope:  # the id may be used again as soon as it was answered
            del self._open[request.id]
        self._asked_by = {asked: by for asked, by in self._asked_by.items() if by != request.id}

    async def _post(self, request: Request, sent: Mapping[str, str]) -> None:
        """Post it. Of a stream, what came after the response broke off or ended early is asked for separately."""
        stream: EventStream | None = None
        async with self._http.stream("POST", self._url, content=dump(request), headers=sent) as response:
            if response.status_code >= 300:
                answer = refusal(request, sent, response.status_code, await whole(response, self._limits.message))
                if request.method == "initialize" and response.status_code in OLDER and await self._fall_back(request):
                    return
                if isinstance(answer, Unanswered) and answer.session_lost:
                    await self._session_lost(sent)
                await self._pass_on(answer)
            elif response.headers.get("content-type", "").startswith(EVENT_STREAM):
                stream = self._stream(request, sent, response.headers)
                await stream.read_first(response, METHOD_HEADER not in sent)
            else:
                message = parse(body := await whole(response, self._limits.message), self._json_limits)
                self._learn(request, message, response.headers)
                answered = any(answers(request, part) for part in self._parts(message))
                await self._pass_on(message if answered else unanswering(request, body, message))
        if stream is not None and not stream.finished:
            await self._read_on(request, stream, sent)

    async def _fall_back(self, request: Request) -> bool:
        """Whether the server speaks HTTP+SSE (L-HTTP-22); then the conversation goes on over that, from `initialize` on."""
        older = SseConversation(self._http, self._url, self._arrived.clone(), self._limits)
        try:
            await older.open(self._nursery)
        except McpError as error:
            logger.debug("no HTTP+SSE either: %s", error)
            return False
        self._arrived.close()
        self._older = older
        await older.post(self._nursery, request)
        return True

    def _stream(self, request: Request, sent: Mapping[str, str], headers: httpx2.Headers) -> EventStream:
        """The stream that answers a request; the rest of it is asked for in the session that it began in."""
        session = {name: sent[name] for name in (SESSION_HEADER, VERSION_HEADER) if name in sent}

        async def on_event(event: SseEvent) -> None:
            if not stream.finished and await self._event(request, event, headers):
                stream.finish(END_TIMEOUT)

        stream = EventStream(partial(self._get, session), on_event, self._limits.message)
        return stream

    async def _read_on(self, request: Request, stream: EventStream, sent: Mapping[str, str]) -> None:
        """The answer has not come: get the rest of the stream if the server keeps it (L-HTTP-8c), else say so."""
        why = "the server ended the response without an answer"
        if METHOD_HEADER not in sent and stream.last_event_id:
            try:
                await stream.go_on(TRIES)
                return
            except NotContinued as end:
                why = f"{why}, and did not go on with it: {end}"
                if end.status == 404:
                    await self._session_lost(sent)
        await self._pass_on(Unanswered(request.id, why))

    async def _open_standing(self) -> None:
        """Ask for the stream that brings what belongs to no request; what is sent next is sent when the server has answered."""
        self._standing.cancel()
        self._standing = trio.CancelScope()
        stream = EventStream(partial(self._get, self._session), self._unasked, self._limits.message)
        self._nursery.start_soon(self._stand, stream, self._session, self._standing)
        with trio.move_on_after(STAND_TIMEOUT):
            await stream.tried.wait()

    async def _stand(self, stream: EventStream, session: Mapping[str, str], scope: trio.CancelScope) -> None:
        """Keep that stream open (L-HTTP-10c), if the server has one."""
        with scope:
            try:
                await stream.go_on(math.inf, at_once=True)
            except NotContinued as end:
                logger.debug("there is no stream for what belongs to no request: %s", end)
                if end.status == 404 and stream.opened:  # at first it may mean that there is no such stream
                    await self._session_lost(session)
            except RemoteProtocolError as error:
                logger.warning("what belongs to no request is not heard any more: %s", error)

    async def _unasked(self, event: SseEvent) -> None:
        await self._pass_on(parse(event.data.encode(), self._json_limits))

    async def _session_lost(self, sent: Mapping[str, str]) -> None:
        """The server does not know the session that these headers name; that is news only of the one that is open now."""
        if sent.get(SESSION_HEADER) == self._session.get(SESSION_HEADER):
            await self._pass_on(Unanswered(None, LOST, session_lost=True))

    def _get(
        self, session: Mapping[str, str], headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        sent = httpx2.Headers({**session, **headers}, encoding="utf-8")  # an event id may have any characters
        return self._http.stream("GET", self._url, headers=sent)

    async def _event(self, request: Request, event: SseEvent, headers: httpx2.Headers) -> bool:
        """Pass on one message; whether it is the answer."""
        message = parse(event.data.encode(), self._json_limits)
        self._learn(request, message, headers)
        parts = self._parts(message)
        for part in parts:
            if isinstance(part, Request):
                self._asked_by[part.id] = request.id
        await self._pass_on(message)
        return any(answers(request, part) for part in parts)

    def _parts(self, message: Message | Malformed) -> Sequence[Message | Malformed]:
        """What the session will make of a message: those of a batch, if the revision agreed on has batches."""
        if not isinstance(message, Batch):
            return (message,)
        revision = REVISIONS.get(self._session.get(VERSION_HEADER, ""))
        try:
            return message.messages() if revision is not None and revision.batches else ()
        except RemoteProtocolError:
            return ()  # the session says so

    async def _tell(self, message: Sent) -> bool:
        """Post what has no answer; a server may take `tell_timeout` seconds to accept it. Whether it did."""
        what = type(message).__name__
        try:
            status = await self._told(message)
        except httpx2.HTTPError as error:
            logger.warning("a %s did not reach %s: %s", what, self._url, reason(error))
            return False
        if status >= 300:
            logger.warning("the server answered %s to a %s", status, what)
            for each in message.answers if isinstance(message, Answers) else (message,):
                await self._refused(each, status)
            return False
        return True

    async def _answer(self, message: Sent) -> None:
        try:
            await self._tell(message)
        finally:
            self._answering.release()

    async def _told(self, message: Sent) -> int:
        """Post what has no answer; the status. Of the body nothing is kept, and it need not end."""
        sent = self._headers(message)
        status = 0
        with trio.move_on_after(self._limits.tell):
            async with self._http.stream("POST", self._url, content=dump(message), headers=sent) as response:
                status = response.status_code
                await whole(response, self._limits.message)
        if not status:
            raise httpx2.ReadTimeout(f"it did not say within {self._limits.tell:g} seconds whether it took it")
        return status

    async def _refused(self, message: Message, status: int) -> None:
        """An answer that the server does not take leaves the call that asked waiting for ever: it is told instead."""
        if not isinstance(message, Response | ErrorResponse) or message.id is None:
            return
        asked_by = self._asked_by.get(message.id)
        if asked_by in self._open:
            self._open[asked_by].cancel()
            await self._pass_on(
                Unanswered(asked_by, f"the server refused the answer to its question with HTTP {status}")
            )

    async def _pass_on(self, message: Received) -> None:
        try:
            await self._arrived.send(Envelope(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it came after the channel was closed, or left for HTTP+SSE
        for part in () if isinstance(message, Unanswered) else self._parts(message):
            if isinstance(part, Response | ErrorResponse) and part.id in self._open:  # on whatever stream it came
                self._open[part.id].deadline = trio.current_time() + END_TIMEOUT

    def _headers(self, message: Sent) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": ACCEPT}
        if isinstance(message, Request):
            said = mirrored(message.method, decoded(message.params))
            if VERSION_HEADER in said:
                return headers | said
            if message.method == "initialize":
                return headers
        return headers | self._session

    def _learn(self, request: Request, message: Message | Malformed, headers: httpx2.Headers) -> None:
        self._session = session_opened(request, message, headers) or self._session
