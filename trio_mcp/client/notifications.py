"""Dispatching the notifications that belong to no request of the client."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ..base.logs import RepeatedRecords, peer_logger
from ..errors import Disconnected
from ..session.subscriptions import Change, change_of
from ..types import LoggingMessageNotificationParams, Model, TaskStatusNotificationParams
from .changes import Listeners
from .known_task import TaskNews
from .options import ClientOptions

logger = peer_logger("trio_mcp.client")


@dataclass(slots=True, eq=False)
class NotificationRouter:
    """Sends each notification on: log messages to `on_log`; changes to the cache, to `on_change` and to the subscribers.

    Attributes:
        listeners: the subscribers, once the session is open.
        tasks: those who follow a task.
    """

    _options: ClientOptions
    listeners: Listeners | None = None
    tasks: TaskNews = field(default_factory=TaskNews)
    _records: RepeatedRecords = field(default_factory=lambda: RepeatedRecords(logger))

    def dispatch(self, method: str, params: Model) -> None:
        """Dispatch a notification that came on the session."""
        if isinstance(params, LoggingMessageNotificationParams):
            if self._options.on_log is not None:
                self._options.on_log(params)
            return
        if isinstance(params, TaskStatusNotificationParams):
            self.tasks.dispatch(params)
            return
        change = change_of(method, params)
        if change is not None:
            # The cache first: a subscriber that reads the resource again must not find the old content.
            self.dispatch_change(change)
            if self.listeners is not None:
                self.listeners.dispatch_change(change)

    @property
    def needs_session(self) -> bool:
        """Whether a subscriber waits for changes that are announced in a session."""
        return self.listeners is not None and self.listeners.needs_session

    def end_subscriptions(self, why: str) -> None:
        """End every subscription: nothing will be announced in this session any more."""
        if self.listeners is not None:
            self.listeners.end(Disconnected(why))

    def dispatch_change(self, change: Change) -> None:
        """Remove the cached results that a change makes stale, and call `on_change`."""
        cache, on_change = self._options.cache, self._options.on_change
        match change:
            case Change("updated", str(uri)):
                cache.invalidate_resource(uri)
            case Change("resources"):
                cache.invalidate("resources/list", "resources/templates/list")
            case Change(kind):
                cache.invalidate(f"{kind}/list")
        if on_change is None:
            return
        try:
            on_change(change)
        # The session catches errors of callbacks too. This is also called while a session is reopened, where an error would fail
        # the attempt.
        except Exception as error:  # noqa: BLE001  whatever an author's function raises
            self._records.log("a handler of changes failed", level=logging.ERROR, exc_info=error)
