"""Sending the notifications of a server on: to the open request that they belong to, or else to the client."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from ..logs import RepeatedRecords, peer_logger
from ..protocol.jsonrpc import RequestId
from ..protocol.meta import SUBSCRIPTION_ID
from ..types import Model, NotificationParams, ProgressNotificationParams
from .idle_timeout import OnProgress

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
        meta = params.meta if isinstance(params, NotificationParams) else None
        stream = None if meta is None else meta.get(SUBSCRIPTION_ID)
        return self._on_notification if stream is None else self.streams.get(str(stream), ignore_notification)


def ignore_notification(method: str, _params: Model) -> None:
    """Log a notification of a subscription that this client has ended."""
    logger.debug("%s came for a subscription that has ended", method)
