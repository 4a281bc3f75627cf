"""Notifications about running requests."""

from .base import Number
from .messages import NotificationParams, ProgressToken, RequestId


class CancelledNotificationParams(NotificationParams):
    """The sender no longer wants the answer to one of its requests."""

    request_id: RequestId
    reason: str | None = None


class ProgressNotificationParams(NotificationParams):
    """How far the request with this token is; `progress` only grows, in units of `total` where that is known."""

    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: str | None = None
