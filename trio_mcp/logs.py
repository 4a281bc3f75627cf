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

MAX_CHARACTERS: Final = 1_000
"""Characters of one argument in a record."""
SUMMARY_SECONDS: Final = 60.0
"""How often a warning that repeats is summarized."""

# C0 and C1 controls except tab and newline, and the Unicode characters that embed, override or isolate a direction.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile(r"[\n\u2028\u2029]")


def printable(text: str) -> str:
    """Return text that is safe to show on a terminal: without control characters, and without a change of direction."""
    return _UNSAFE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return printable text in one line of at most `MAX_CHARACTERS` characters."""
    shown = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "..."
    return _BREAKS.sub("\\\\n", printable(shown))


class OwnText(str):
    """Text in a record that no peer wrote: it keeps its lines and its length."""

    __slots__ = ()


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


class RepeatedRecords:
    """The records that one peer can cause again and again: of each kind the first one, and then a summary a minute.

    Args:
        clock: seconds on any scale that does not go back.
    """

    __slots__ = ("_clock", "_logger", "_shown_at", "_unshown")

    def __init__(self, logger: PeerLogger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._unshown: dict[RecordKind, int] = {}
        self._shown_at: dict[RecordKind, float] = {}

    def log(
        self, kind: str, *args: object, level: int = logging.WARNING, exc_info: BaseException | None = None
    ) -> None:
        """Log a record, or count it.

        Args:
            kind: the message, with a place for each of the arguments. As many are kept as the code has.
            exc_info: the traceback to show with the first record and with each summary. Errors of two types are of two kinds.
        """
        now, key = self._clock(), (kind, type(exc_info), level)
        if key not in self._shown_at:
            self._shown_at[key] = now
            self._logger.log(level, kind, *args, exc_info=exc_info)
            return
        self._unshown[key] = self._unshown.get(key, 0) + 1
        if now - self._shown_at[key] >= SUMMARY_SECONDS:
            self._shown_at[key] = now
            self._logger.log(level, "%d more of these: %s", self._unshown.pop(key), kind % args, exc_info=exc_info)

    def close(self) -> None:
        """Log how many were only counted."""
        unshown, self._unshown = self._unshown, {}
        for (kind, _, level), count in unshown.items():
            self._logger.log(level, "%d more of these: %s", count, _PLACE.sub("...", kind))


def _shown(value: object) -> object:
    return value if isinstance(value, int | float | OwnText | None) else one_line(str(value))
