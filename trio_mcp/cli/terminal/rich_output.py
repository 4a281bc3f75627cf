"""What goes to a terminal: tables, JSON in colours, changes of a file, and the progress of a call.

Nothing loads this module unless a terminal is there: `rich` takes longer to load than most commands take.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class RichScreen:
    """Stdout, if that is a terminal. Markup and highlighting are off: the text is a peer's."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)

    def show_table(self, heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int]) -> None:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number, head in enumerate(heads):
            table.add_column(head, justify="right" if number in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def show_json(self, text: str) -> None:
        shown = Text(text)
        JSONHighlighter().highlight(shown)
        self._console.print(shown, soft_wrap=True)

    def show_heading(self, text: str) -> None:
        self._console.print(Text(text, style="bold underline"))

    def show_item(self, head: str, body: str) -> None:
        """Show a line in bold, and a text below it that is indented and wrapped at words."""
        self._console.print(Text(head, style="bold"))
        if body:
            self._console.print(Padding(Text(body), (0, 0, 0, 4)))

    def show_code(self, text: str) -> None:
        """Show Python code."""
        self._console.print(
            Padding(Syntax(text, "python", theme="ansi_dark", background_color="default"), (0, 0, 0, 2))
        )

    def show_styled(self, lines: Iterable[str], style: str) -> None:
        for line in lines:
            self._console.print(Text(line, style=style), soft_wrap=True)

    def show_diff(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(line, style=DIFF_STYLES.get(line[:1], "")), soft_wrap=True)

    def bar(self) -> Bar:
        """Return a progress bar on stderr; it is not shown before it is started."""
        return Bar()


class Bar:
    """A progress bar on stderr. What is written to stderr meanwhile appears above it."""

    def __init__(self) -> None:
        # Drawn when something is reported, and by no thread.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            console=Console(file=sys.stderr, markup=False, highlight=False, emoji=False),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._row = self._progress.add_task("", total=None, visible=False)

    def start(self) -> None:
        self._progress.start()

    def stop(self) -> None:
        self._progress.stop()

    def update(self, done: float, total: float | None, text: str) -> None:
        self._progress.update(
            self._row, completed=done, total=total, description=text or "working", visible=True, refresh=True
        )
