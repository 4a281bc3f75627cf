"""`configure_logging`: the log of a server on stderr, as lines of text or of JSON."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TextIO, TypeAlias, cast, get_args

from .checks import check_choice
from .values import MAX_CHARACTERS, one_line, printable

if TYPE_CHECKING:
    from .values import JsonValue

# Which request and which call a log record belongs to.


class LogContext(NamedTuple):
    """What the code that runs now serves.

    Attributes:
        request: the id of the HTTP request that began it; None elsewhere, and without an access log.
        principal: who sent it; None without authentication.
        method: of the call, such as "tools/call"; None outside of calls.
        name: what is called: the name of a tool or prompt, or the URI of a resource.
    """

    request: str | None = None
    principal: str | None = None
    method: str | None = None
    name: str | None = None


LOG_CONTEXT: Final[ContextVar[LogContext]] = ContextVar("LOG_CONTEXT", default=LogContext())  # noqa: B039  a tuple
"""Inherited by the tasks of a call; threads of plain functions have it too."""


# A record of ours may have `fields`, a JSON object that says in members what its message says in words. Records of other loggers
# are written as well: those of the author's tools have the request and the call that they belong to, from `LOG_CONTEXT`.


LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]

LOG_FORMATS: Final[tuple[str, ...]] = get_args(LogFormat)
LOG_LEVELS: Final[tuple[str, ...]] = get_args(LogLevel)
"""The values of `configure_logging`, for a command line."""

ACCESS_LOGGER: Final = "trio_mcp.access"
"""The logger of HTTP requests."""
CALL_LOGGER: Final = "trio_mcp.calls"
"""The logger of calls."""

MAX_TRACEBACK: Final = 32 * 1024
"""Characters of a traceback in a line of JSON; the innermost frames are kept."""


def configure_logging(level: LogLevel = "info", format: LogFormat = "text", *, stream: TextIO | None = None) -> None:
    """Write log records to stderr, one line for each; replaces the handlers that the root logger has.

    At the level "info" and below, each call of a tool, prompt or resource is one record of the logger `trio_mcp.calls`, and with
    `HttpOptions(access_log=True)` each HTTP request is one of `trio_mcp.access`. No record has headers, queries, arguments or
    results in it.

    Args:
        level: the lowest that is shown.
        format: "text", or "json" for one JSON object in each line.
        stream: where to, in place of stderr.

    Raises:
        ValueError: there is no such level or format.
    """
    check_choice("level", level, LOG_LEVELS)
    check_choice("format", format, LOG_FORMATS)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """Formats records as text without control characters: time, level, logger, message, and what they belong to."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s%(belongs)s")

    def format(self, record: logging.LogRecord) -> str:
        record.belongs = "" if fields_of(record) else belongs_text()
        return printable(super().format(record))


def belongs_text() -> str:
    """Return what the code that runs now serves, in brackets; empty if it is nothing."""
    context = LOG_CONTEXT.get()
    call = context.method and f"{context.method} {context.name or ''}".rstrip()
    parts = [one_line(part) for part in (call, context.principal, context.request) if part]
    return f" [{' '.join(parts)}]" if parts else ""


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object in one line of ASCII."""

    is_json: Final = True
    """What other output asks that goes to the same stream; see `logs.logs_json`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        Its members are `time` (UTC, ISO 8601), `level`, `logger` and `message`; and where they are known `request` (an id),
        `principal`, `call` (`method` and `name`), `exception` (a traceback), and those that the record itself has.
        """
        line: dict[str, JsonValue] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        context = LOG_CONTEXT.get()
        if context.request is not None:
            line["request"] = context.request
        if context.principal is not None:
            line["principal"] = printable(context.principal)
        if context.method is not None:
            line["call"] = {"method": context.method, "name": shortened(context.name)}
        line |= fields_of(record)
        if text := exception_text(record):
            line["exception"] = printable(text[-MAX_TRACEBACK:])
        return json.dumps(line, separators=(",", ":"), default=str)


def fields_of(record: logging.LogRecord) -> Mapping[str, JsonValue]:
    """Return the members that a record of ours has."""
    return cast("Mapping[str, JsonValue]", getattr(record, "fields", {}))


def shortened(text: str | None) -> str | None:
    """Return text of a peer, printable and at most 1,000 characters long."""
    return None if text is None else printable(text[:MAX_CHARACTERS])


def exception_text(record: logging.LogRecord) -> str:
    """Return the traceback of a record; empty if it has none."""
    if record.exc_text:
        return record.exc_text
    if record.exc_info and record.exc_info[0] is not None:
        return "".join(traceback.format_exception(*record.exc_info))
    return ""
