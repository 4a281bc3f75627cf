"""Notifications about running requests."""

from .base import Number
from .messages import HEARTBEAT, NotificationParams, ProgressToken, RequestId


class CancelledNotificationParams(NotificationParams):
    """The sender cancels one of its requests."""

    request_id: RequestId
    reason: str | None = None


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
