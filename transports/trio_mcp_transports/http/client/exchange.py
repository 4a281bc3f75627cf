"""One request over Streamable HTTP, and what all requests of a channel share: the endpoint, the session, the inbox.

The last message that is delivered for a request is its answer, or the news that there is none. A response that ends early is
resumed by GET if it belongs to a session and its events had ids; else the request is lost with it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import httpx2
import trio

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER, headers_of
from trio_mcp.protocol.http.sse import SseEvent
from trio_mcp.protocol.jsonrpc import (
    Batch,
    Encoded,
    ErrorResponse,
    Malformed,
    Message,
    Request,
    RequestId,
    Response,
    Unanswered,
    decoded,
    dump,
    parse,
)
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.session import Envelope, Received

from ...httpx import (
    EVENT_STREAM,
    LOST_SESSION,
    SESSION_LOST_MESSAGE,
    ClientLimits,
    ServerConnection,
    error_reply,
    error_text,
    joined_url,
    may_be_sent,
    read_body,
)
from .streams import NotResumable, ResumableStream

END_TIMEOUT: Final = 1.0
"""Seconds that a response may stay open once its request is answered, which ends it (M-HTTP-8s), or cancelled."""

MAX_RESUME_ATTEMPTS: Final = 20
"""How often in a row the rest of a response may be asked for without getting any of it."""

SSE_FALLBACK_STATUSES: Final = (400, 404, 405)
"""What a server that speaks HTTP+SSE only answers to the POST of `initialize` (L-HTTP-22)."""

ACCEPT: Final = "application/json, text/event-stream"
CONTENT: Final[Mapping[str, str]] = {"content-type": "application/json", "accept": ACCEPT}

SESSION_NOT_FOUND: Final = -32001
"""What the official SDKs have for it."""

MAX_SESSION_ID: Final = 4096
SESSION_ID: Final = re.compile(f"[!-~]{{0,{MAX_SESSION_ID}}}")


class PostHeaders(NamedTuple):
    """The headers of one POST.

    Attributes:
        every: all of them.
        session: those that name the session of the message; a GET for the rest of its response repeats them.
        resumable: False for a request that belongs to no session: nothing keeps the rest of its response.
    """

    every: Mapping[str, str]
    session: Mapping[str, str]
    resumable: bool


class OpenRequest:
    """A request that has no answer yet.

    Attributes:
        scope: cancels its exchange.
        questions: ids of the server's requests that came on its response.
    """

    __slots__ = ("id", "questions", "scope")

    def __init__(self, request_id: RequestId) -> None:
        self.id = request_id
        self.scope = trio.CancelScope()
        self.questions: set[RequestId] = set()

    def end_soon(self) -> None:
        """Let its response end by itself for a moment, so that its connection can be used again; then cancel the exchange."""
        self.scope.deadline = trio.current_time() + END_TIMEOUT


class OpenRequests:
    """The open requests by id."""

    def __init__(self) -> None:
        self._by_id: dict[RequestId, OpenRequest] = {}

    def add(self, request_id: RequestId) -> OpenRequest:
        """Open a request; one of the same id that is still ending is no longer found by it."""
        entry = self._by_id[request_id] = OpenRequest(request_id)
        return entry

    def get(self, request_id: RequestId | None) -> OpenRequest | None:
        """Return the open request of that id."""
        return None if request_id is None else self._by_id.get(request_id)

    def asked_on(self, question: RequestId) -> OpenRequest | None:
        """Return the open request on whose response the server asked this."""
        # Searched, since it is wanted only when the server rejects an answer, which costs a POST anyway.
        return next((entry for entry in self._by_id.values() if question in entry.questions), None)

    def remove(self, entry: OpenRequest) -> None:
        """Close a request."""
        # An id may be used again as soon as its request was answered, while the exchange of the older one still ends. So the
        # entry is compared before it is removed: the newer request stays.
        if self._by_id.get(entry.id) is entry:
            del self._by_id[entry.id]

    def cancel_all(self) -> None:
        """Cancel every exchange."""
        for entry in self._by_id.values():
            entry.scope.cancel()

    def __len__(self) -> int:
        return len(self._by_id)


class HttpConnection(ServerConnection):
    """The endpoint of one server, with its session and the open requests.

    Attributes:
        session: the headers that `initialize` brought, session id and revision, which later messages repeat (L-HTTP-17c,
            -20c). Empty before it was answered, and for a client that never sends it.
    """

    def __init__(self, url: str, http: httpx2.AsyncClient, limits: ClientLimits) -> None:
        super().__init__(url, http, limits)
        self.session: Mapping[str, str] = {}
        self.requests = OpenRequests()

    @property
    def has_session_id(self) -> bool:
        """Whether the server gave the session an id: then it has a standalone stream, and can be deleted."""
        return SESSION_HEADER in self.session

    def headers_of(self, envelope: Envelope) -> PostHeaders:
        """Return the headers to post a message with."""
        message, extra = envelope.message, envelope.peer.headers
        if envelope.stateless:
            return PostHeaders({**extra, **CONTENT}, {}, resumable=False)
        if isinstance(message, Request):
            # Our own client says `stateless`. A program that sends its own messages may only have named the revision in them.
            # One that is encoded comes from our own client, and may be large: the limits for peers do not apply to it.
            own = {} if isinstance(message.params, Encoded) else headers_of(message.method, message.params)
            if VERSION_HEADER in own:
                return PostHeaders({**extra, **CONTENT, **own}, {}, resumable=False)
            if message.method == "initialize":
                return PostHeaders({**extra, **CONTENT}, {}, resumable=True)
        return PostHeaders({**extra, **CONTENT, **self.session}, self.session, resumable=True)

    def parts(self, message: Received) -> Sequence[Received]:
        """Return what the session will make of a message: those of a batch, if the revision agreed on has batches."""
        if not isinstance(message, Batch):
            return (message,)
        revision = REVISIONS.get(self.session.get(VERSION_HEADER, ""))
        try:
            return message.messages() if revision is not None and revision.batches else ()
        except RemoteProtocolError:
            return ()  # the session reports it

    async def deliver(self, message: Received, about: RequestId | None = None) -> None:
        """Hand a message to the task that receives; the requests that it answers end soon, on whatever stream it came."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.arrived.send(Envelope(message, about))
        for part in self.parts(message):
            if isinstance(part, Response | ErrorResponse) and (answered := self.requests.get(part.id)) is not None:
                answered.end_soon()

    async def report_session_lost(self, session: Mapping[str, str]) -> None:
        """Report that the server does not know the session that these headers name, if it is the one that is open now."""
        # The news may be late: by now the client may have opened another session, which is not lost.
        if session.get(SESSION_HEADER) == self.session.get(SESSION_HEADER):
            await self.deliver(Unanswered(None, SESSION_LOST_MESSAGE, session_lost=True))


class RequestExchange:
    """One request and its response.

    Args:
        fall_back: called when the server rejects `initialize` as one that speaks HTTP+SSE only; True if it sent the request
            that way.

    Attributes:
        entry: its place among the open requests.
    """

    def __init__(
        self,
        connection: HttpConnection,
        request: Request,
        envelope: Envelope,
        fall_back: Callable[[Request], Awaitable[bool]],
    ) -> None:
        self.entry = connection.requests.add(request.id)
        self._connection = connection
        self._request = request
        # The headers are those of the session at this moment: the exchange may outlive it, and must not resume in another.
        self._headers = connection.headers_of(envelope)
        self._fall_back = fall_back

    async def run(self) -> None:
        """Post the request and deliver the messages of its response, until its scope is cancelled."""
        request_id = self._request.id
        with self.entry.scope:
            try:
                await self._post()
            except httpx2.HTTPError as error:
                why = f"{self._connection.shown}: {error_text(error)}"
                await self._connection.deliver(Unanswered(request_id, why, is_sent=may_be_sent(error)))
            except RemoteProtocolError as error:
                await self._connection.deliver(Malformed(error, request_id))
        self._connection.requests.remove(self.entry)

    async def _post(self) -> None:
        stream: ResumableStream | None = None
        connection, content, headers = self._connection, dump(self._request), self._headers.every
        async with connection.http.stream("POST", connection.url, content=content, headers=headers) as response:
            if response.status_code >= 300:
                await self._on_rejected(response)
            elif response.headers.get("content-type", "").lower().startswith(EVENT_STREAM):
                stream = self._stream(response.headers)
                await stream.read_first(response, self._headers.resumable)
            else:
                await self._on_body(response)
        # The response is closed before the rest of its stream is asked for: a server may allow one connection to a stream.
        if stream is not None and not stream.finished:
            await self._resume(stream)

    async def _on_rejected(self, response: httpx2.Response) -> None:
        request, status = self._request, response.status_code
        body = await read_body(response, self._connection.limits.message)
        location = response.headers.get("location", "")
        to = joined_url(response.url, location) if location else None
        shown = "" if to is None else str(to)
        answer = error_reply(request, self._headers.session, status, body, shown, response.headers)
        if request.method == "initialize" and status in SSE_FALLBACK_STATUSES and await self._fall_back(request):
            return
        if isinstance(answer, Unanswered) and answer.session_lost:
            await self._connection.report_session_lost(self._headers.session)
        await self._connection.deliver(answer)

    async def _on_body(self, response: httpx2.Response) -> None:
        """Deliver a whole body: the answer, or an array with the answer in it."""
        connection = self._connection
        body = await read_body(response, connection.limits.message)
        message, answered = self._read(body, response.headers)
        await connection.deliver(message if answered else no_answer(self._request, body, message))

    def _stream(self, headers: httpx2.Headers) -> ResumableStream:
        """Make the stream of events that is the response; its rest is asked for in the session that it began in."""

        async def on_event(event: SseEvent) -> None:
            if stream.finished:
                return
            message, answered = self._read(event.data.encode(), headers)
            await self._connection.deliver(message, self._request.id)
            if answered:
                stream.finish(END_TIMEOUT)

        stream = ResumableStream(self._connection, self._headers.session, on_event)
        return stream

    def _read(self, data: bytes, headers: Mapping[str, str]) -> tuple[Message | Malformed | Unanswered, bool]:
        """Parse a message that came on the response; return it, and whether it is the answer."""
        message = self._own(parse(data, self._connection.json_limits))
        if isinstance(message, ErrorResponse) and self._says_session_lost(message):
            return Unanswered(self._request.id, SESSION_LOST_MESSAGE, session_lost=True), True
        self._learn_session(message, headers)
        parts = self._connection.parts(message)
        self.entry.questions.update(part.id for part in parts if isinstance(part, Request))
        answers = [part.id for part in parts if isinstance(part, Response | ErrorResponse)]
        lost = isinstance(message, Malformed) and message.answers == self._request.id
        return message, lost or self._request.id in answers

    def _own(self, message: Message | Malformed) -> Message | Malformed:
        """Return the message, with the id of the request if it is an answer without one: it came on the request's response."""
        if isinstance(message, ErrorResponse) and message.id is None:
            return message._replace(id=self._request.id)
        if isinstance(message, Malformed) and message.is_answer:
            return Malformed(message.error, self._request.id)
        return message

    def _says_session_lost(self, answer: ErrorResponse) -> bool:
        """Return whether an error with a status of success says that the server no longer knows the session."""
        known = SESSION_HEADER in self._headers.session and answer.error.code == SESSION_NOT_FOUND
        return known and LOST_SESSION.search(answer.error.message) is not None

    async def _resume(self, stream: ResumableStream) -> None:
        """The answer has not come: get the rest of the stream if the server keeps it (L-HTTP-8c), else report the loss."""
        why = "the server ended the response without an answer"
        if self._headers.resumable and stream.last_event_id:
            try:
                await stream.resume(MAX_RESUME_ATTEMPTS)
                return
            except NotResumable as end:
                why = f"{why}, and did not go on with it: {end}"
                if end.status == 404:
                    await self._connection.report_session_lost(self._headers.session)
        await self._connection.deliver(Unanswered(self._request.id, why))

    def _learn_session(self, message: Message | Malformed, headers: Mapping[str, str]) -> None:
        """Remember the session if this message, which came with these headers, is the answer that opens one."""
        if self._request.method != "initialize" or not isinstance(message, Response):
            return
        version = decoded(message.result).get("protocolVersion")
        # The client ends a session whose revision it does not speak, so there is nothing to repeat then.
        if isinstance(version, str) and version in REVISIONS:
            session_id = session_id_in_headers(headers)
            self._connection.session = {VERSION_HEADER: version} | ({SESSION_HEADER: session_id} if session_id else {})


def no_answer(request: Request, body: bytes, message: Message | Malformed | Unanswered) -> Malformed | Unanswered:
    """Return what to deliver for a request whose whole response has no answer; a cancelled one may end so (L-CAN-2b)."""
    if not body:
        return Unanswered(request.id, "the server ended the request without an answer")
    if isinstance(message, Malformed):
        return Malformed(message.error, request.id)
    return Unanswered(request.id, "the server answered something else than what was asked")


def session_id_in_headers(headers: Mapping[str, str]) -> str:
    """Return the id of the session that an answer opens; empty if it opens none.

    Raises:
        RemoteProtocolError: no header can repeat the id (L-HTTP-16s).
    """
    session_id = headers.get(SESSION_HEADER, "")
    if not SESSION_ID.fullmatch(session_id):
        raise RemoteProtocolError(
            f"the session id {session_id!r:.80} is not of at most {MAX_SESSION_ID} visible ASCII characters"
        )
    return session_id
