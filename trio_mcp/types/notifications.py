"""Notifications about running requests."""

from typing import Final, Literal, TypeAlias, get_args

from .base import Number
from .messages import NotificationParams, ProgressToken, RequestId


class CancelledNotificationParams(NotificationParams):
    """The sender cancels one of its requests."""

    request_id: RequestId
    reason: str | None = None


HEARTBEAT: Final = "io.trio-mcp/heartbeat"
"""In the `_meta` of progress: true in a heartbeat, which a server sends while its tool reports nothing."""


class ProgressNotificationParams(NotificationParams):
    """The progress of the request that has this token. `progress` always increases; `total` is its final value, if known."""

    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: str | None = None

    @property
    def is_heartbeat(self) -> bool:
        """Whether a server of trio_mcp sent it while its tool reported nothing. Its value only had to rise, and says nothing."""
        return bool(self.meta and self.meta.get(HEARTBEAT))


# The levels of log messages.

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOGGING_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""The levels in order, the most severe last (RFC 5424)."""
