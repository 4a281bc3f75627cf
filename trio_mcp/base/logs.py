"""Log records about peers, who choose parts of their text.

What a peer wrote is shown without control characters, in one line and shortened: an escape sequence must not reach the terminal
of an operator, and a line break must not look like the start of another record. And a peer must not fill the log: what it can
repeat is counted.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .values import MAX_CHARACTERS, one_line, printable

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
_PLACE = re.compile(r"%[a-z]")


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
            text = _PLACE.sub("...", kind) if args is None else kind % args
            self._logger.log(level, "%d more of these: %s", count, text, exc_info=error)


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
            logger.error("%s%s", marked, OwnText(hint), exc_info=error)
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


def _shown(value: object) -> object:
    return value if isinstance(value, int | float | OwnText | None) else one_line(str(value))
