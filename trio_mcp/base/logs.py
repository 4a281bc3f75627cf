"""Log records about peers, who choose parts of their text.

What a peer wrote is shown without control characters, in one line and shortened: an escape sequence must not reach the terminal
of an operator, and a line break must not look like the start of another record. And a peer must not fill the log: what it can
repeat is counted.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeAlias, cast, get_args

from .checks import check_choice
from .named_tuples import NamedTuple
from .values import MAX_CHARACTERS, one_line, printable

if TYPE_CHECKING:
    from .values import JsonValue


SHARED_LINES: Final = 10
"""Records of one kind that all connections of a server show in a minute."""
MAX_TRACEBACKS: Final = 10
"""Failures of one kind that are logged with their traceback in a minute."""
MAX_KINDS: Final = 1_000
"""Kinds of failures that are counted separately; above that, the oldest is forgotten."""
SUMMARY_SECONDS: Final = 60.0
"""How often a warning that repeats is summarized."""


class OwnText(str):
    """Text in a record that no peer wrote: it keeps its lines and its length."""

    __slots__ = ()


def logs_json() -> bool:
    """Return whether the log is one JSON object in each line, as `configure_logging` sets it up."""
    return any(getattr(handler.formatter, "is_json", False) for handler in logging.getLogger().handlers)


class PeerLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose arguments may hold what a peer wrote."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a record with arguments in one line each."""
        if self.isEnabledFor(level):
            # One frame more than the logging module knows of is between the caller and the record.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            super().log(level, msg, *map(_shown, args), **kwargs)


class PrintableTracebacks(logging.Filter):
    """Formats the tracebacks of records: the text of an exception may be a peer's too."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            # Every formatter uses this text if it is there.
            record.exc_text = indented("".join(traceback.format_exception(*record.exc_info)))
        return True


_PRINTABLE_TRACEBACKS: Final = PrintableTracebacks()


def indented(text: str) -> str:
    """Return printable text whose lines are indented, so that none of them looks like the start of a record."""
    return "\n".join(f"  {line[:MAX_CHARACTERS]}".rstrip() for line in printable(text).splitlines())


def peer_logger(name: str) -> PeerLogger:
    """Return the logger of that name, for records about peers."""
    logger = logging.getLogger(name)
    logger.addFilter(_PRINTABLE_TRACEBACKS)
    return PeerLogger(logger, {})


RecordKind: TypeAlias = tuple[str, type[BaseException | None], int]
_PLACE = r"%[a-z]"


class _Minute:
    """One kind of record: how many were shown since `began`, and how many only counted."""

    __slots__ = ("began", "counted", "shown")

    def __init__(self, began: float) -> None:
        self.began = began
        self.shown = 0
        self.counted = 0


class RepeatedRecords:
    """The records that a peer can cause again and again: of each kind the first one, and then a summary a minute.

    One instance serves one connection. Its `shared` one serves every connection of a server, and limits them together: a peer
    may open as many connections as it likes. What is only counted is shown with the next record of its kind once the minute is
    over, or by `close`.

    Args:
        shared: shows these records, or counts them too.
        lines: the records of a kind that are shown in a minute.
        clock: seconds on any scale that does not go back.
    """

    __slots__ = ("_clock", "_lines", "_logger", "_minutes", "_shared")

    def __init__(
        self,
        logger: PeerLogger,
        shared: RepeatedRecords | None = None,
        *,
        lines: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._shared = shared
        self._lines = lines
        self._clock = clock
        self._minutes: dict[RecordKind, _Minute] = {}

    def log(
        self, kind: str, *args: object, level: int = logging.WARNING, exc_info: BaseException | None = None
    ) -> None:
        """Log a record, or count it.

        Args:
            kind: the message, with a place for each of the arguments. As many are kept as the code has.
            exc_info: the traceback to show with the record or with a summary. Errors of two types are of two kinds.
        """
        self._log((kind, type(exc_info), level), args, 1, exc_info)

    def close(self) -> None:
        """Log how many were only counted."""
        for key, minute in self._minutes.items():
            counted, minute.counted = minute.counted, 0
            if counted:
                self._show(key, None, counted, None)

    def _log(self, key: RecordKind, args: tuple[object, ...] | None, count: int, error: BaseException | None) -> None:
        now, minute = self._clock(), self._minutes.get(key)
        if minute is None or now - minute.began >= SUMMARY_SECONDS:
            count += 0 if minute is None else minute.counted
            minute = self._minutes[key] = _Minute(now)
        if minute.shown < self._lines:
            minute.shown += 1
            self._show(key, args, count, error)
        else:
            minute.counted += count

    def _show(self, key: RecordKind, args: tuple[object, ...] | None, count: int, error: BaseException | None) -> None:
        kind, _, level = key
        if self._shared is not None:
            self._shared._log(key, args, count, error)  # noqa: SLF001  an instance of this class
        elif count == 1 and args is not None:
            self._logger.log(level, kind, *args, exc_info=error)
        else:
            text = re.sub(_PLACE, "...", kind) if args is None else kind % args
            self._logger.log(level, "%d more of these: %s", count, text, exc_info=error)


CALLERS: Final = (__name__.partition(".")[0], "trio_mcp_transports", "trio", "outcome")
"""The packages that call an author's functions."""


class FailureLog:
    """The failures of an author's functions, which any caller can cause again and again.

    Each is one record, since its caller has received a reference to it. In a minute, the first `MAX_TRACEBACKS` of a kind have
    their traceback; the others have the type and text of the exception in one line.

    Args:
        clock: seconds on any scale that does not go back.
    """

    __slots__ = ("_clock", "_minutes")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: dict[tuple[str, str, str], _Minute] = {}

    def log(
        self,
        logger: PeerLogger,
        kind: str,
        problem: str,
        error: BaseException,
        *,
        reference: str | None = None,
        hint: str = "",
    ) -> None:
        """Log a failure.

        Args:
            kind: what failed, as no peer wrote it; exceptions of two types are of two kinds.
            problem: the text of the record.
            reference: the reference number that the caller has received.
            hint: advice to the author.
        """
        marked = problem if reference is None else f"{problem} [{reference}]"
        if self._counts(kind, type(error)):
            shown = (type(error), error, from_author(error.__traceback__))
            logger.error("%s%s", marked, OwnText(hint), exc_info=shown)
        else:
            text = "".join(traceback.format_exception_only(error)).strip()
            logger.error("%s (as others in this minute, so without traceback): %s", marked, text)

    def _counts(self, kind: str, error: type[BaseException]) -> bool:
        """Count a failure; return whether it is one of the first in this minute."""
        key, now = (kind, error.__module__, error.__qualname__), self._clock()
        minute = self._minutes.get(key)
        if minute is None or now - minute.began >= SUMMARY_SECONDS:
            self._minutes.pop(key, None)
            minute = self._minutes[key] = _Minute(now)
            if len(self._minutes) > MAX_KINDS:
                del self._minutes[next(iter(self._minutes))]
        minute.shown += 1
        return minute.shown <= MAX_TRACEBACKS

    def __len__(self) -> int:
        return len(self._minutes)


def from_author(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the author's code on, without what has called it; all of it if there is nothing of the author."""
    first = trace
    while first is not None and str(first.tb_frame.f_globals.get("__name__")).partition(".")[0] in CALLERS:
        first = first.tb_next
    return first or trace


def _shown(value: object) -> object:
    return value if isinstance(value, int | float | OwnText | None) else one_line(str(value))


# `configure_logging`: the log of a server on stderr, as lines of text or of JSON.

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


TRACE: Final[list[Callable[[], Mapping[str, str]]]] = []
"""Returns the ids of the current trace and span, where the program uses OpenTelemetry (`telemetry/`); empty elsewhere."""


def trace_fields() -> Mapping[str, str]:
    """Return the members `trace_id`, `span_id` and `trace_flags` of a record; empty where there is no span."""
    return TRACE[0]() if TRACE else {}


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
        level: the lowest level to write.
        format: "text", or "json" for one JSON object in each line.
        stream: the stream to write to; stderr by default.

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
    trace = trace_fields().get("trace_id")
    parts = [one_line(part) for part in (call, context.principal, context.request, trace) if part]
    return f" [{' '.join(parts)}]" if parts else ""


class JsonFormatter(logging.Formatter):
    """Formats each record as one JSON object in one line of ASCII."""

    is_json: Final = True
    """What other output asks that goes to the same stream; see `logs.logs_json`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        Its members are `time` (UTC, ISO 8601), `level`, `logger` and `message`; and where they are known `request` (an id),
        `principal`, `call` (`method` and `name`), `exception` (a traceback), those that the record itself has, and with
        OpenTelemetry `trace_id`, `span_id` and `trace_flags`.
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
        line |= trace_fields()
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
