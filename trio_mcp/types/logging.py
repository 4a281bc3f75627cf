"""Log messages from a server to its client."""

from typing import ClassVar, Literal, TypeAlias, get_args

from .base import JsonValue, NullableModel
from .messages import NotificationParams, RequestParams

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOGGING_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""The levels in order, the most severe last (RFC 5424)."""


class SetLevelRequestParams(RequestParams):
    """The params of `logging/setLevel`: the least level that the client wants (up to 2025-11-25)."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, NullableModel):
    """A log message; `data` is any JSON value."""

    nullable: ClassVar[tuple[tuple[str, str], ...]] = (("data", "data"),)

    level: LoggingLevel
    logger: str | None = None
    data: JsonValue
