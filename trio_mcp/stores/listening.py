"""A thread that listens for the notices of other processes over a connection that blocks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, Protocol, Self

import trio

from ..base.logs import RepeatedRecords, peer_logger
from ..storage import MISSED, Missed, Notice, StoreError, notice_of

WAIT_SECONDS: Final = 0.3
"""How long the thread waits at once, and how late it learns that it has to end."""
RETRY_SECONDS: Final = 0.4
PROBE_SECONDS: Final = 5.0
"""How often the server is asked whether it is still there: a connection that a network has dropped stays silent."""
MOST_UNREAD: Final = 1000
"""Notices that wait to be read; then the oldest are lost."""

logger = peer_logger("trio_mcp.stores")


class Subscription(Protocol):
    """A connection over which notices come."""

    def receive(self, seconds: float) -> Sequence[bytes]: ...

    def probe(self) -> None: ...

    def close(self) -> None: ...


class Listening:
    """The notices that a thread receives, for one reader.

    Args:
        subscribe: called in the thread; returns a new connection. Raises `StoreError`.
    """

    def __init__(self, subscribe: Callable[[], Subscription]) -> None:
        self._subscribe = subscribe
        self._unread: deque[Notice | Missed] = deque()
        self._arrived = trio.lowlevel.ParkingLot()
        self._stopped = threading.Event()
        self._records = RepeatedRecords(logger)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Listen until `stop`. Raises `StoreError` if the first connection cannot be made."""
        token = trio.lowlevel.current_trio_token()
        first = await trio.to_thread.run_sync(self._subscribe)
        with closing(first):
            task_status.started()
            await trio.to_thread.run_sync(self._run, first, token, limiter=trio.CapacityLimiter(1))

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice | Missed:
        """Return the next notice."""
        while not self._unread:
            await self._arrived.park()
        return self._unread.popleft()

    def _add(self, notice: Notice | Missed) -> None:
        if len(self._unread) >= MOST_UNREAD:
            self._unread.clear()
            notice = MISSED
        self._unread.append(notice)
        self._arrived.unpark()

    def _run(self, first: Subscription, token: trio.lowlevel.TrioToken) -> None:
        subscription: Subscription | None = first
        while not self._stopped.is_set():
            try:
                if subscription is None:
                    subscription = self._subscribe()
                    token.run_sync_soon(self._add, MISSED)
                with closing(subscription):
                    self._receive(subscription, token)
            except StoreError as error:
                self._records.log("notices of other processes are missed: %s", error)
                self._stopped.wait(RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001  whatever a driver raises: it is no reason to end the server
                self._records.log("notices of other processes are missed", exc_info=error)
                self._stopped.wait(RETRY_SECONDS)
            subscription = None
        self._records.close()

    def _receive(self, subscription: Subscription, token: trio.lowlevel.TrioToken) -> None:
        probe_at = time.monotonic() + PROBE_SECONDS
        while not self._stopped.is_set():
            for data in subscription.receive(WAIT_SECONDS):
                token.run_sync_soon(self._add, notice_of(data))
            if time.monotonic() >= probe_at:
                subscription.probe()
                probe_at = time.monotonic() + PROBE_SECONDS
