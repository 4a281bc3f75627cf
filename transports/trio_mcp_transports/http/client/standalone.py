"""The standalone stream of a session: it brings what belongs to no request (L-HTTP-10c)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.sse import SseEvent

from .connection import HttpConnection
from .streams import NotResumable, ResumableStream

logger = logging.getLogger("trio_mcp.http")

STANDALONE_TIMEOUT: Final = 1.0
"""Seconds that a session's first request waits for this stream: some servers lose what they ask before it is there."""


class StandaloneStream:
    """The standalone stream of the session that is open now, if the server has one."""

    def __init__(self, connection: HttpConnection, nursery: trio.Nursery) -> None:
        self._connection = connection
        self._nursery = nursery
        self._scope = trio.CancelScope()

    async def open(self) -> None:
        """Ask for the stream, in place of that of an earlier session; wait a moment until the server has answered."""
        self.close()
        self._scope = trio.CancelScope()
        session = self._connection.session.current
        get = partial(self._connection.get, session)
        stream = ResumableStream(get, self._on_event, self._connection.limits.message)
        self._nursery.start_soon(self._keep_open, stream, session, self._scope)
        with trio.move_on_after(STANDALONE_TIMEOUT):
            await stream.tried.wait()

    def close(self) -> None:
        """End it."""
        self._scope.cancel()

    async def _keep_open(self, stream: ResumableStream, session: Mapping[str, str], scope: trio.CancelScope) -> None:
        """Open the stream again whenever it ends, as long as the server has one."""
        with scope:
            try:
                await stream.resume(math.inf, at_once=True)
            except NotResumable as end:
                logger.debug("there is no stream for what belongs to no request: %s", end)
                if end.status == 404 and stream.opened:  # at first it may mean that there is no such stream
                    await self._connection.report_session_lost(session)
            except RemoteProtocolError as error:
                logger.warning("what belongs to no request is not heard any more: %s", error)

    async def _on_event(self, event: SseEvent) -> None:
        await self._connection.deliver(self._connection.parse(event.data.encode()))
