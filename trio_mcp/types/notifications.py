"""Notifications about running requests."""

from .base import Number
from .messages import NotificationParams, ProgressToken, RequestId


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
