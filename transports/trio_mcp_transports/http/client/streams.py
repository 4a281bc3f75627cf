"""Streams of events as a client reads them: over as many connections as it takes (legacy era: L-HTTP-8c, L-HTTP-14c).

A stream can be resumed from an event with an id. When a stream breaks off, or its server ends it early to be polled, the client
waits as long as the server requested, and requests the events after the last such event with a GET.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import httpx2
import trio

from trio_mcp.base.backoff import STABLE_AFTER, Backoff
from trio_mcp.base.logs import peer_logger
from trio_mcp.protocol.http.sse import SseDecoder, SseEvent

from ...httpx import (
    EVENT_STREAM,
    LARGE_PIECE,
    ServerConnection,
    error_text,
    open_body,
    read_body,
    says_session_lost,
)

logger = peer_logger("trio_mcp.http")

BACKOFF: Final = Backoff(first=1.0)
"""How long to wait before a stream is resumed, when its server does not say."""

SHORTEST_PAUSE = 0.05
LONGEST_RETRY = 300.0
"""Seconds that a server may ask to wait: less is not worth it, more is not believed."""

MAX_ERROR: Final = 64 * 1024
"""Bytes of the body of a rejection."""

OnEvent: TypeAlias = Callable[[SseEvent], Awaitable[None]]


class NotResumable(Exception):
    """The server does not resume a stream.

    Attributes:
        status: the HTTP status it answered with; 0 when it did not answer at all.
    """

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class ResumableStream:
    """One stream of events.

    Args:
        session: the headers that name its session, for the GETs of its rest.
        on_event: called with each event that has data.

    Attributes:
        last_event_id: the event to resume from; empty if there is none.
        finished: nothing more is wanted.
        opened: GET connections on which the server sent events.
        tried: set when the server has answered the first GET, or did not.
    """

    def __init__(self, connection: ServerConnection, session: Mapping[str, str], on_event: OnEvent) -> None:
        self.last_event_id = ""
        self.finished = False
        self.opened = 0
        self.tried = trio.Event()
        self._connection = connection
        self._session = session
        self._on_event = on_event
        self._retry: float | None = None
        self._events = 0
        self._rest = trio.CancelScope()

    async def read(self, response: httpx2.Response) -> None:
        """Read one response to its end.

        Raises:
            httpx2.RequestError: it broke off.
            RemoteProtocolError: the response is not an event stream.
        """
        decoder = SseDecoder(self._connection.limits.message)
        # So that `finish` can set a limit to a read that is under way.
        with trio.CancelScope() as self._rest:
            async with open_body(response) as chunks:
                async for chunk in chunks:
                    await self._take(decoder, chunk)
                    if len(chunk) > LARGE_PIECE:
                        await trio.lowlevel.checkpoint()
        if not self.finished:
            # Raises the error that waits, if there is one.
            decoder.feed(b"")

    async def read_first(self, response: httpx2.Response, may_resume: bool) -> None:
        """Read the answer to a POST; that it breaks off matters only where nothing can be asked for again."""
        try:
            await self.read(response)
        except httpx2.RequestError:
            # With an id the rest can be asked for, so that the connection broke is not a failure yet.
            if not (may_resume and self.last_event_id):
                raise

    def finish(self, timeout: float) -> None:
        """Nothing more is wanted. The response may be read to its end for `timeout` seconds: then its connection can carry
        the next request."""
        self.finished = True
        self._rest.deadline = trio.current_time() + timeout

    async def resume(self, tries: float, *, at_once: bool = False) -> None:
        """Ask for the rest of the stream until it is finished.

        Args:
            tries: how often in a row that may bring nothing.
            at_once: do not wait before the first time.

        Raises:
            NotResumable: the server does not resume the stream, or `tries` attempts in a row brought no event.
            RemoteProtocolError: the response is not an event stream.
        """
        failed_attempts = 0
        while not self.finished:
            if not at_once:
                await trio.sleep(self._pause(failed_attempts))
            at_once = False
            events, since = self._events, trio.current_time()
            why = await self._reconnect()
            # A connection that held for a while was a good one, even if nothing happened to be sent on it.
            steady = self._events > events or trio.current_time() - since >= STABLE_AFTER
            failed_attempts = 0 if steady else failed_attempts + 1
            if failed_attempts >= tries:
                raise NotResumable(f"{why}, {failed_attempts} times in a row")

    async def _reconnect(self) -> str:
        """One GET, read to its end; how it ended."""
        place = {"last-event-id": self.last_event_id} if self.last_event_id else {}
        # httpx encodes header values as ASCII by default, and an event id may have any characters.
        headers = httpx2.Headers({**self._session, "accept": EVENT_STREAM, **place}, encoding="utf-8")
        try:
            async with self._connection.http.stream("GET", self._connection.url, headers=headers) as response:
                if response.is_client_error and says_session_lost(400, await read_body(response, MAX_ERROR)):
                    raise NotResumable("the server no longer knows the session", 404)
                if (flaw := transient_failure(response)) is not None:
                    return flaw
                self.opened += 1
                self.tried.set()
                await self.read(response)
        except httpx2.RequestError as error:
            return error_text(error)
        finally:
            self.tried.set()
        return "the stream ended"

    async def _take(self, decoder: SseDecoder, chunk: bytes) -> None:
        events = decoder.feed(chunk)
        self._note(decoder)
        for event in events:
            self._events += 1
            if event.data:
                await self._on_event(event)

    def _note(self, decoder: SseDecoder) -> None:
        self.last_event_id = decoder.last_event_id or self.last_event_id
        if decoder.retry is not None:
            # A server may not send its client to sleep for a day.
            self._retry = min(decoder.retry / 1000, LONGEST_RETRY)

    def _pause(self, failed_attempts: int) -> float:
        """What the server asked for, exactly; more only when asking again brought nothing."""
        wanted = BACKOFF.first if self._retry is None else self._retry
        if not failed_attempts:
            return max(wanted, SHORTEST_PAUSE)
        return max(wanted, BACKOFF.delay(failed_attempts))


def transient_failure(response: httpx2.Response) -> str | None:
    """What is wrong with the answer to a GET when that may pass; None when nothing is.

    Raises:
        NotResumable: it will not pass.
    """
    status = response.status_code
    if status >= 500 or status == 429:
        return f"the server answered HTTP {status}"
    if status != 200:
        raise NotResumable(f"the server answered HTTP {status} to a GET", status)
    if not response.headers.get("content-type", "").lower().startswith(EVENT_STREAM):
        raise NotResumable("the server answered a GET with something else than a stream of events", status)
    return None
