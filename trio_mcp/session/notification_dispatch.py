"""Sending the notifications of a server on: to the open request that they belong to, or else to the client."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import trio

from ..base.logs import RepeatedRecords, peer_logger
from ..errors import RequestTimeout
from ..protocol.codec.unknown import UnknownParams
from ..protocol.jsonrpc import RequestId
from ..protocol.revisions import SUBSCRIPTION_ID
from ..runtime import Slot
from ..types import Model, NotificationParams, ProgressNotificationParams

# Timing out a request when the server reports no progress for too long; each report restarts the clock.

T = TypeVar("T")


OnProgress: TypeAlias = Callable[[ProgressNotificationParams], None]


@dataclass(slots=True, eq=False)
class IdleTimeout:
    """Waits for the answer to one request as long as progress is reported.

    Pass it as the request's `on_progress`, and the `set` of `settled` as the `on_settled` of its slot.

    Args:
        seconds: how long the server may go without a report.
        on_progress: called with each report as well.
        is_answering: returns whether this client is answering a question of the server. The server may be waiting for that
            answer, so the timeout is extended.

    Attributes:
        settled: set when the slot of the request is settled.
    """

    _seconds: float
    _on_progress: OnProgress | None
    _is_answering: Callable[[], bool]
    settled: trio.Event = field(default_factory=trio.Event)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __call__(self, report: ProgressNotificationParams) -> None:
        self._scope.deadline = trio.current_time() + self._seconds
        if self._on_progress is not None:
            self._on_progress(report)

    async def take(self, slot: Slot[T], method: str) -> T:
        """Wait for the answer and return it.

        Raises:
            RequestTimeout: the server sent neither the answer nor a report within the time.
        """
        # Waits for an event and not in `slot.take`, which gives the slot up when it is cancelled. Here the time may expire many
        # times while the client's own user thinks about a question.
        while not self.settled.is_set():
            self._scope = trio.CancelScope(deadline=trio.current_time() + self._seconds)
            with self._scope:
                await self.settled.wait()
            if self._scope.cancelled_caught and not self._is_answering():
                raise RequestTimeout(f"the server reported no progress of {method} for {self._seconds:g} seconds")
        return await slot.take()


logger = peer_logger("trio_mcp.client")

OnNotification: TypeAlias = Callable[[str, Model], None]


class NotificationDispatch:
    """Knows who gets each notification of one connection.

    Args:
        on_notification: called with each notification that belongs to no request of this client.

    Attributes:
        progress: the handlers of progress reports, by their token.
        streams: the handlers of the notifications that belong to an open subscription, by the id of its request.
    """

    def __init__(self, on_notification: OnNotification, records: RepeatedRecords) -> None:
        self._on_notification = on_notification
        self._records = records
        self.progress: dict[RequestId, OnProgress] = {}
        self.streams: dict[str, OnNotification] = {}
        self.new_token = itertools.count(1).__next__
        """Returns a token for reports of progress."""

    @contextmanager
    def progress_reports(self, on_progress: OnProgress) -> Generator[int]:
        """Yield a token for reports that may come after the request was answered, as those about a task do (L-TSK-7).

        Args:
            on_progress: called with each report, in the reader's task, until the block ends.
        """
        token = self.new_token()
        self.progress[token] = on_progress
        try:
            yield token
        finally:
            del self.progress[token]

    def dispatch(self, method: str, params: Model) -> None:
        """Call the handler of a notification, in the reader's task; an error of it is logged."""
        try:
            if not isinstance(params, ProgressNotificationParams):
                self._handler(params)(method, params)
            # A report may come after the answer; its token is then unknown, and the report is dropped.
            elif (on_progress := self.progress.get(params.progress_token)) is not None:
                on_progress(params)
        # A callback that fails must not end the connection, which other calls use.
        except Exception as error:  # noqa: BLE001  it is logged
            self._records.log("a handler of %s failed", method, level=logging.ERROR, exc_info=error)

    def _handler(self, params: Model) -> OnNotification:
        meta = params.meta if isinstance(params, NotificationParams | UnknownParams) else None
        stream = None if meta is None else meta.get(SUBSCRIPTION_ID)
        return self._on_notification if stream is None else self.streams.get(str(stream), ignore_notification)


def ignore_notification(method: str, _params: Model) -> None:
    """Log a notification of a subscription that this client has ended."""
    logger.debug("%s came for a subscription that has ended", method)
