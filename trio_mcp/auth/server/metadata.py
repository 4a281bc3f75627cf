"""Requests of a verifier to its issuer: documents, and one request at a time for all who wait for its answer."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from ...base.logs import peer_logger
from ...errors import AuthorizationError, AuthorizationErrorKind
from ...http.authenticator import CannotVerify
from ..addresses import Reach
from ..client.discovery import issuer_document
from ..client.driver import Driver
from ..client.steps import text_member

logger = peer_logger("trio_mcp.auth")

REFRESH_SECONDS: Final = 5.0
"""How long one refresh may take, with all its requests; `authenticate` has 10 seconds."""
MAX_BACK_OFF: Final = 60.0
"""Seconds between two attempts at an issuer that fails, at most."""


async def issuer_endpoint(issuer: str, name: str) -> str:
    """Return a URL in the metadata of an issuer. Raises `AuthorizationError`."""
    metadata = await Driver(reach=Reach.CONFIGURED, clock=time.time).run(issuer_document(issuer))
    url = text_member(metadata, name)
    if url is None:
        raise AuthorizationError(f"the metadata of {issuer!r} has no {name}", kind=AuthorizationErrorKind.METADATA)
    return url


class SharedRefresh:
    """A refresh that all requests that need it wait for, with a back-off after failures.

    It runs in the block of `background`, so that each of them can be cancelled at once. Where no server has opened that, the
    first request runs it itself, shielded: it cannot be cancelled until the refresh has ended, after at most `REFRESH_SECONDS`.

    Args:
        load: does it; raises `CannotVerify` or `AuthorizationError`.
    """

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        self._load = load
        self._running: trio.Event | None = None
        self._owner: trio.Nursery | None = None
        self._failures = 0
        self._next = -math.inf
        self.failure = ""

    @property
    def is_running(self) -> bool:
        """Whether somebody is at it."""
        return self._running is not None

    @property
    def retry_after(self) -> int:
        """Seconds until the next attempt may be made."""
        return max(1, math.ceil(self._next - trio.current_time()))

    async def run(self) -> None:
        """Refresh, or wait until the one that runs has ended; do nothing while a failure is recent.

        A failure is in `failure` afterwards, and is not raised: what was loaded before may still do.
        """
        if self._running is None:
            if trio.current_time() < self._next:
                return
            self._running = trio.Event()
            if self._owner is None:
                with trio.CancelScope(shield=True):
                    await self._refresh(self._running)
                return
            self._owner.start_soon(self._refresh, self._running)
        await self._running.wait()

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Run each refresh in this block; the end of the block cancels one that runs. A second block leaves it to the first."""
        if self._owner is not None:
            yield
            return
        # An earlier failure may be one of another Trio run, whose clock began somewhere else.
        self._failures, self._next = 0, -math.inf
        async with trio.open_nursery() as nursery:
            self._owner = nursery
            try:
                yield
            finally:
                self._owner = None
                nursery.cancel_scope.cancel()

    async def _refresh(self, ended: trio.Event) -> None:
        self.failure = f"there was no answer within {REFRESH_SECONDS:g} seconds"
        try:
            with trio.move_on_after(REFRESH_SECONDS):
                try:
                    await self._load()
                    self.failure = ""
                except (CannotVerify, AuthorizationError) as error:
                    self.failure = str(error)
                except Exception as error:
                    # A bug must not end the server.
                    self.failure = type(error).__name__
                    logger.exception("a document of an issuer could not be read")
        finally:
            self._failures = self._failures + 1 if self.failure else 0
            delay = min(MAX_BACK_OFF, 2.0 ** (self._failures - 1)) if self._failures else 0.0
            self._next = trio.current_time() + delay
            self._running = None
            ended.set()
