"""What all requests of one channel share: where they go, the session they belong to, and where messages arrive."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import httpx2
import trio

from trio_mcp.protocol.jsonrpc import ErrorResponse, Malformed, Message, Response, Unanswered, dump, parse
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session import Envelope, Received, Sent

from ...httpx.answers import SESSION_LOST_MESSAGE
from ...httpx.limits import INBOX, ClientLimits
from .open_requests import OpenRequests
from .session import SessionHeaders

END_TIMEOUT: Final = 1.0
"""Seconds that a response may stay open once its request is answered, which ends it (M-HTTP-8s), or cancelled."""


class HttpConnection:
    """The endpoint of one server, as one channel uses it."""

    def __init__(self, url: str, http: httpx2.AsyncClient, limits: ClientLimits) -> None:
        self.url = url
        self.http = http
        self.limits = limits
        self.session = SessionHeaders()
        self.requests = OpenRequests()
        self.arrived, self.inbox = trio.open_memory_channel[Envelope[Received]](INBOX)
        self._json_limits = JsonLimits(max_bytes=limits.message)

    def post(self, message: Sent, headers: Mapping[str, str]) -> AbstractAsyncContextManager[httpx2.Response]:
        """Post a message; the block reads the response."""
        return self.http.stream("POST", self.url, content=dump(message), headers=headers)

    def get(
        self, session: Mapping[str, str], headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """Ask for a stream of a session; the block reads it."""
        sent = httpx2.Headers({**session, **headers}, encoding="utf-8")  # an event id may have any characters
        return self.http.stream("GET", self.url, headers=sent)

    def parse(self, data: bytes) -> Message | Malformed:
        """Parse a message of the server within the limits."""
        return parse(data, self._json_limits)

    async def deliver(self, message: Received) -> None:
        """Pass a message to the receiver; the requests that it answers end soon, on any stream."""
        try:
            await self.arrived.send(Envelope(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it came after the channel was closed, or left for HTTP+SSE
        for part in () if isinstance(message, Unanswered) else self.session.parts(message):
            if isinstance(part, Response | ErrorResponse):
                answered = self.requests.get(part.id)
                if answered is not None:
                    answered.end_soon(END_TIMEOUT)

    async def report_session_lost(self, session: Mapping[str, str]) -> None:
        """Report that the server does not know the session that these headers name, if it is the one that is open now."""
        if self.session.names(session):
            await self.deliver(Unanswered(None, SESSION_LOST_MESSAGE, session_lost=True))
