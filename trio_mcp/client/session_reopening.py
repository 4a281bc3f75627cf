"""Opening a session again that the server has lost.

A legacy session may end at the server while the connection stays open (L-HTTP-18s). The server did nothing for the request that
finds out: another session is opened, once for all that wait, and the request is sent again under a new id (L-HTTP-19c).
"""

# Its tasks run in the link:
#
#   _reopen_until_stable    while the session is lost and a subscriber waits for it
#   _attempt_to_reopen      at most one

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Protocol, Unpack

import trio

from ..errors import Disconnected, RequestTimeout, SessionLost
from ..session import ClientSession
from ..session.client import RequestOptions
from ..types import Model, RequestParams
from .dialects import Dialect
from .link_state import LinkEvent, LinkState
from .notifications import NotificationRouter
from .requester import Requester, would_fail_again


class OpenLink(Requester, Protocol):
    """The part of the link that has the dialect, which knows how to open a session."""

    @property
    def dialect(self) -> Dialect: ...


class ReopenAttempt:
    """One attempt to reopen the session, shared by all that need it.

    Attributes:
        done: set when it has ended.
        failure: why it failed; None if it did not.
    """

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: Exception | None = Disconnected("the client was closed")


class SessionReopening:
    """Opens the session of one link again, and sends the requests again that have found out that it was lost."""

    def __init__(self, link: OpenLink, state: LinkState, router: NotificationRouter) -> None:
        self._link = link
        self._state = state
        self._router = router
        self._attempt: ReopenAttempt | None = None

    async def request(self, method: str, params: RequestParams, /, **options: Unpack[RequestOptions]) -> Model:
        """Send a request as `ClientSession.request` does, and again if the session was lost; all within `timeout`."""
        # One scope round both attempts and the reopening, so that `timeout` is what the caller waits at most.
        timeout = options.pop("timeout", math.inf)
        session = self._link.session
        send = partial(session.request, method, params, **options)
        with trio.move_on_after(timeout):
            # A request that is sent while the session is being reopened would only be lost as well.
            if self._attempt is not None:
                await self._attempt.done.wait()
            # Read before the request is sent: another task may have reopened the session by the time that this one fails.
            generation = self._state.generation
            try:
                return await send()
            except SessionLost as lost:
                session.records.log("%s: reopening it", lost, level=logging.INFO)
                # This request is the first to find out.
                if generation == self._state.generation and not self._state.is_session_lost:
                    self._link.lost(str(lost))
            await self._reopen(generation)
            return await send()
        raise RequestTimeout(f"the server did not answer {method} within {timeout:g} seconds")

    def session_lost(self) -> None:
        """Reopen the session immediately if a subscriber waits for it; else the next request reopens it."""
        # Without a subscriber, a client that is idle opens no session that it may never use.
        self._state.move(LinkEvent.SESSION_LOST)
        if self._router.needs_session and self._state.is_open and not self._state.is_watched:
            self._state.is_watched = True
            self._link.start(partial(self._reopen_until_stable, self._link.session))

    async def _reopen_until_stable(self, session: ClientSession) -> None:
        """Reopen the session, and again with a growing delay if that fails or the session is lost again soon."""
        try:
            while self._state.is_session_lost and self._router.needs_session and session.closed_because is None:
                generation = self._state.generation
                await trio.sleep(self._state.delay(trio.current_time()))
                try:
                    await self._reopen(generation)
                except Exception as error:  # noqa: BLE001  the next attempt may work, or the subscribers get the error
                    session.records.log("the session was lost, and could not be reopened: %s", error)
                    if would_fail_again(error):
                        self._router.end_subscriptions(f"the session was lost, and could not be reopened: {error}")
                        return
        finally:
            self._state.is_watched = False

    async def _reopen(self, generation: int) -> None:
        """Reopen the session unless that happened since `generation`. All callers share one attempt and its failure."""
        # The attempt runs in a task of the link and not in the first caller's: a cancel of that caller would leave the others
        # without a session, and the server with half of a handshake.
        if self._attempt is None:
            if generation != self._state.generation:
                return
            attempt = ReopenAttempt()
            self._link.start(partial(self._attempt_to_reopen, attempt))
            self._state.move(LinkEvent.REOPEN)
            self._attempt = attempt
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.failure is not None:
            raise attempt.failure

    async def _attempt_to_reopen(self, attempt: ReopenAttempt) -> None:
        try:
            dialect = self._link.dialect
            await dialect.reopen()
            self._state.move(LinkEvent.INITIALIZED)
            await dialect.apply_log_level()
            await dialect.listeners.restore(self._link.session)
            attempt.failure = None
        except Exception as error:  # noqa: BLE001  raised where the session is waited for
            attempt.failure = error
        finally:
            self._attempt = None
            self._state.end_attempt(trio.current_time())
            attempt.done.set()
