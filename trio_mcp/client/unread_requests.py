"""Requests of another client that pass unread to a server that may lose its session: they wait for one, and are sent again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from ..errors import Disconnected, SessionLost, Unreachable
from ..session.forwarded import ForwardedRequest
from ..types import JsonObject
from .session_reconnecting import ReopenAttempt, SessionReopening

MAX_WAITING: Final = 256
"""Requests that wait for a session."""


class UnreadRequest:
    """A request that waits while there is no session.

    It is sent again, once, if the server has ignored it because it had lost the session, or if the response is lost and it may
    be processed twice; never a third time, since the request itself may be what ends the server. What waits is sent in the order
    in which it came.

    Await `result` once.

    Args:
        send: sends it.
        is_repeatable: processing it twice does no more than doing so once.

    Raises:
        Disconnected: it can neither be sent nor wait.
    """

    def __init__(
        self, reopening: SessionReopening, send: Callable[[], ForwardedRequest], *, is_repeatable: bool
    ) -> None:
        self._reopening = reopening
        self._forward = send
        self._is_repeatable = is_repeatable
        self._number = next(reopening.numbers)
        self._generation = 0
        self._sent: ForwardedRequest | None = None
        self._attempt: ReopenAttempt | None = None
        self._send_or_wait()

    async def result(self) -> JsonObject:
        """Return the result as it came. A cancel withdraws the request at the server.

        Raises:
            PeerError, RemoteProtocolError, Disconnected: as `ForwardedRequest.result`.
            Unreachable: no session could be opened.
        """
        try:
            return await self._answer()
        except Disconnected as lost:
            was_ignored = isinstance(lost, SessionLost)
            if not was_ignored and (isinstance(lost, Unreachable) or not self._is_repeatable):
                raise
        self._sent = self._attempt = None
        self._send_or_wait()
        return await self._answer()

    async def _answer(self) -> JsonObject:
        if self._attempt is not None:
            await self._wait_for(self._attempt)
        if self._sent is None:
            self._send()
        assert self._sent is not None
        try:
            return await self._sent.result()
        except SessionLost as lost:
            self._reopening.note_lost(self._generation, str(lost))
            raise

    def _send(self) -> None:
        self._generation = self._reopening.generation
        self._sent = self._forward()

    def _send_or_wait(self) -> None:
        """Send it now, or when there is a session. Raises `Disconnected` if it can do neither."""
        if self._reopening.has_session:
            self._send()
            return
        attempt = self._reopening.attempt()
        if len(attempt.waiting) >= MAX_WAITING:
            raise Unreachable(f"{MAX_WAITING} requests wait for a session already")
        self._attempt = attempt
        attempt.waiting[self._number] = self._send_now

    def _send_now(self) -> None:
        # The connection may have ended together with the attempt. The task that waits then sends it again, and gets that error.
        with suppress(Disconnected):
            self._send()

    async def _wait_for(self, attempt: ReopenAttempt) -> None:
        """Wait for the session, in which it is sent. Raises `Unreachable` if it could not be opened."""
        try:
            await attempt.wait()
        except trio.Cancelled:
            if self._sent is not None:
                self._sent.give_up()
            raise
        except Exception as error:  # noqa: BLE001  whatever the attempt failed with
            raise Unreachable(str(error)) from None
        finally:
            attempt.waiting.pop(self._number, None)
