"""The output of a command: results on stdout, everything else on stderr.

Most of it comes from the server, so control characters are replaced before they reach a terminal: they could move the cursor,
overwrite the screen, or reverse the direction of the text. Tables and colours are for terminals; into a file or a pipe goes plain
text, in columns that tabs part.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from ...base.values import one_line, printable

if TYPE_CHECKING:
    from .rich_output import RichScreen


def show_lines(lines: Sequence[str]) -> None:
    """Write lines to stdout."""
    for line in lines:
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Write rows to stdout: in aligned columns on a terminal, and elsewhere with tabs between them.

    Args:
        right: the columns that are aligned to the right.
    """
    cells = [[one_line(cell).replace("\t", " ") for cell in row] for row in rows]
    if sys.stdout.isatty():
        rich_screen().show_table(heads, cells, right)
    else:
        show_lines(["\t".join(row) for row in [heads, *cells]])


def show_json(value: object) -> None:
    """Write a value to stdout as JSON."""
    if sys.stdout.isatty():
        rich_screen().show_json(printable(json.dumps(value, ensure_ascii=False, indent=2)))
    else:
        # Of ASCII alone, so that it survives every pipe.
        sys.stdout.write(json.dumps(value, indent=2) + "\n")
        sys.stdout.flush()


def rich_screen() -> RichScreen:
    """Return what writes to terminals; no command loads it without one."""
    screen: RichScreen = import_module(".rich_output", __package__).RichScreen()
    return screen


def is_terminal() -> bool:
    """Return whether stderr is a terminal on which a line can be drawn again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def is_coloured() -> bool:
    """Return whether stderr shows colours, and its user wants them (https://no-color.org)."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def note(text: str, end: str = "\n", *, colour: str | None = None) -> None:
    """Write a line to stderr."""
    shown = printable(text)
    sys.stderr.write((click.style(shown, fg=colour) if colour and is_coloured() else shown) + end)
    sys.stderr.flush()


def log_to_stderr(level: int, formatter: logging.Formatter | None = None) -> None:
    """Show log records of this level and above on stderr."""
    handler = NoteHandler()
    handler.setFormatter(formatter or PrintableFormatter(logging.BASIC_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])


def set_up_logging(*, debug: bool, level: str | None, format: str | None) -> None:
    """Show log records as the options of a command say; without options those from WARNING up, or all with `--debug`."""
    if level is None and format is None:
        log_to_stderr(logging.DEBUG if debug else logging.WARNING)
        return
    shown = level or ("debug" if debug else "info")
    # Most servers are started without, and a host waits for them.
    import_module("...base.logs", __package__).configure_logging(shown, format or "text")


class NoteHandler(logging.Handler):
    """Writes log records as notes: above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            note(self.format(record))
        except Exception:  # noqa: BLE001  logging never raises; it has a way to report that
            self.handleError(record)


class PrintableFormatter(logging.Formatter):
    """Formats log records without control characters, also those of other libraries and in tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
