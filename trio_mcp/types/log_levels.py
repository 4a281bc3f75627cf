"""The levels of log messages."""

from typing import Literal, TypeAlias, get_args

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

LOGGING_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""The levels in order, the most severe last (RFC 5424)."""
