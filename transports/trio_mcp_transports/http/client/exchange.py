"""One request over Streamable HTTP: its POST, and the response, which may go on over several connections.

The last message that is delivered for a request is its answer, or the news that there is none. A response that ends early is
resumed by GET if it belongs to a session and its events had ids; else the request is lost with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import httpx2

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.sse import SseEvent
from trio_mcp.protocol.jsonrpc import Malformed, Request, Unanswered

from ...httpx.answers import error_reply
from ...httpx.requests import EVENT_STREAM, error_text, read_body
from .answers import answers, no_answer
from .connection import END_TIMEOUT, HttpConnection
from .open_requests import OpenRequest
from .session import PostHeaders
from .streams import NotResumable, ResumableStream

MAX_RESUME_ATTEMPTS: Final = 20
"""How often in a row the rest of a response may be asked for without getting any of it."""

SSE_FALLBACK_STATUSES: Final = (400, 404, 405)
"""What a server that speaks HTTP+SSE only answers to the POST of `initialize` (L-HTTP-22)."""


class RequestExchange:
    """One request and its response.

    Args:
        entry: its place among the open requests.
        fall_back: called when the server rejects `initialize` as one that speaks HTTP+SSE only; True if it sent the request
            that way.
    """

    def __init__(
        self,
        connection: HttpConnection,
        request: Request,
        entry: OpenRequest,
        headers: PostHeaders,
        fall_back: Callable[[Request], Awaitable[bool]],
    ) -> None:
        self._connection = connection
        self._request = request
        self._entry = entry
        self._headers = headers
        self._fall_back = fall_back

    async def run(self) -> None:
        """Post the request and deliver what comes back, until its scope is cancelled."""
        request_id = self._request.id
        with self._entry.scope:
            try:
                await self._post()
            except httpx2.HTTPError as error:
                await self._connection.deliver(Unanswered(request_id, f"{self._connection.url}: {error_text(error)}"))
            except RemoteProtocolError as error:
                await self._connection.deliver(Malformed(error, request_id))
        self._connection.requests.remove(self._entry)

    async def _post(self) -> None:
        """Post it. What came of a stream after the response ended early is asked for when the response is closed."""
        stream: ResumableStream | None = None
        async with self._connection.post(self._request, self._headers.every) as response:
            if response.status_code >= 300:
                await self._on_rejected(response)
            elif response.headers.get("content-type", "").startswith(EVENT_STREAM):
                stream = self._stream(response.headers)
                await stream.read_first(response, self._headers.resumable)
            else:
                await self._on_body(response)
        if stream is not None and not stream.finished:
            await self._resume(stream)

    async def _on_rejected(self, response: httpx2.Response) -> None:
        request, status = self._request, response.status_code
        body = await read_body(response, self._connection.limits.message)
        answer = error_reply(request, self._headers.session, status, body)
        if request.method == "initialize" and status in SSE_FALLBACK_STATUSES and await self._fall_back(request):
            return
        if isinstance(answer, Unanswered) and answer.session_lost:
            await self._connection.report_session_lost(self._headers.session)
        await self._connection.deliver(answer)

    async def _on_body(self, response: httpx2.Response) -> None:
        """The whole body is the answer, or an array with the answer in it."""
        connection, request = self._connection, self._request
        body = await read_body(response, connection.limits.message)
        message = connection.parse(body)
        connection.session.learn(request, message, response.headers)
        answered = any(answers(request, part) for part in connection.session.parts(message))
        await connection.deliver(message if answered else no_answer(request, body, message))

    def _stream(self, headers: httpx2.Headers) -> ResumableStream:
        """Make the stream of events that is the response; its rest is asked for in the session that it began in."""

        async def on_event(event: SseEvent) -> None:
            if not stream.finished and await self._on_event(event, headers):
                stream.finish(END_TIMEOUT)

        get = partial(self._connection.get, self._headers.session)
        stream = ResumableStream(get, on_event, self._connection.limits.message)
        return stream

    async def _on_event(self, event: SseEvent, headers: httpx2.Headers) -> bool:
        """Deliver one message; return whether it is the answer."""
        connection = self._connection
        message = connection.parse(event.data.encode())
        connection.session.learn(self._request, message, headers)
        parts = connection.session.parts(message)
        for part in parts:
            if isinstance(part, Request):
                connection.requests.add_question(self._entry, part.id)
        await connection.deliver(message)
        return any(answers(self._request, part) for part in parts)

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
