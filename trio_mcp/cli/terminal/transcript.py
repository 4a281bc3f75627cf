"""What a demonstration shows: headings, code and messages, in colours on terminals and as plain text elsewhere."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ...printable import printable
from .output import rich_screen, show_lines

MAX_COLUMNS: Final = 100
INDENT: Final = " " * 2
BELOW: Final = " " * 6
"""Before the further lines of a message that does not fit in one."""

STYLES: Final[Mapping[str, str]] = {"client": "cyan", "server": "green", "user": "yellow", "model": "magenta"}
"""The colours of those who say something, as rich names them."""


class Transcript:
    """Writes to stdout. On a terminal lines are wrapped at its width, or at `MAX_COLUMNS`."""

    def __init__(self) -> None:
        self._screen = rich_screen() if sys.stdout.isatty() else None
        self._columns = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
        self._after_line = True

    def heading(self, text: str) -> None:
        """Show a headline."""
        self.line()
        self._show([text, "=" * len(text)], "bold")
        self.line()

    def paragraph(self, text: str) -> None:
        """Show a text, wrapped at words, and an empty line."""
        self._show(textwrap.wrap(text, min(self._columns, 80)))
        self.line()

    def code(self, text: str) -> None:
        """Show Python code, and an empty line."""
        if self._screen is None:
            self._show([textwrap.indent(text.rstrip(), INDENT)])
        else:
            self._screen.show_code(text.rstrip())
            self._after_line = False
        self.line()

    def said(self, who: str, text: str) -> None:
        """Show what one of `STYLES` says; below the messages what users and models say."""
        indent = INDENT if who in ("client", "server") else BELOW
        line = f"{indent}{who} -> {text}" if indent == INDENT else f"{indent}the {who} {text}"
        lines: Sequence[str] = [line]
        if self._screen is not None:
            lines = textwrap.wrap(line, self._columns, subsequent_indent=BELOW, break_long_words=False)
        self._show(lines, STYLES[who])

    def block(self, text: str) -> None:
        """Show text as it is, indented."""
        self._show([f"{INDENT}{line}" for line in text.splitlines()])

    def line(self) -> None:
        """Show an empty line, unless the one before it is empty, or this is the first."""
        if not self._after_line:
            self._show([""])
            self._after_line = True

    def _show(self, lines: Iterable[str], style: str = "") -> None:
        self._after_line = False
        if self._screen is None:
            show_lines(list(lines))
        else:
            self._screen.show_styled(map(printable, lines), style)
