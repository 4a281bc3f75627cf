"""Log messages from a server to its client."""

from typing import ClassVar

from .base import JsonValue, NullableModel
from .log_levels import LoggingLevel
from .messages import NotificationParams, RequestParams


class SetLevelRequestParams(RequestParams):
    """The params of `logging/setLevel`: the least level that the client wants (up to 2025-11-25)."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, NullableModel):
    """A log message; `data` is any JSON value."""

    nullable: ClassVar[tuple[tuple[str, str], ...]] = (("data", "data"),)

    level: LoggingLevel
    logger: str | None = None
    data: JsonValue
