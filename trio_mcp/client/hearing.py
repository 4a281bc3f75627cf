"""What a client does with the notifications that belong to no request of its own."""

from __future__ import annotations

import logging

from ..types import LoggingMessageNotificationParams, Model
from .cache import CacheView
from .changes import Change, OnChange, change_of
from .handlers import OnLog
from .link import Link
from .listening import Listening

logger = logging.getLogger("trio_mcp.client")


class Hearing:
    """Sends each notification on: log messages to their handler, changes to the cache and to whoever listens."""

    def __init__(self, on_log: OnLog | None, on_change: OnChange | None, cache: CacheView) -> None:
        self._on_log = on_log
        self._on_change = on_change
        self._cache = cache
        self._listening: Listening | None = None

    def attach(self, link: Link) -> Listening:
        """Who listens through this link, and hears of what comes on it."""
        self._listening = link.standing = listening = Listening(link, self.changed)
        return listening

    def notified(self, method: str, params: Model) -> None:
        """A notification came that belongs to no request."""
        if isinstance(params, LoggingMessageNotificationParams):
            if self._on_log is not None:
                self._on_log(params)
            return
        change = change_of(method, params)
        if change is not None and self._listening is not None:
            self._listening.heard(change)

    def changed(self, change: Change) -> None:
        """Something at the server is another: what was kept of it is dropped before anybody can ask for it again."""
        match change:
            case Change("updated", str(uri)):
                self._cache.drop_resource(uri)
            case Change("resources"):
                self._cache.drop("resources/list", "resources/templates/list")
            case Change(kind):
                self._cache.drop(f"{kind}/list")
        if self._on_change is None:
            return
        try:
            self._on_change(change)
        except Exception:  # it may be told where nobody expects its errors, such as when a session is opened again
            logger.exception("a handler of changes failed")
