"""The progress of a call on stderr: a bar on a terminal, and a line for each report elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...printable import one_line
from ...types import ProgressNotificationParams
from .messages import show_progress, shown_progress
from .output import is_terminal, rich_screen

if TYPE_CHECKING:
    from .rich_output import Bar

OnProgress = Callable[[ProgressNotificationParams], None]


class ProgressDisplay:
    """Shows the progress of one call. A bar is there from the first report to the end, but not during a question."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._is_hidden = False

    @contextmanager
    def reports(self) -> Generator[OnProgress]:
        """Yield what takes the reports of a call; the bar is gone after the block."""
        if not is_terminal():
            yield show_progress
            return
        try:
            yield self._draw
        finally:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    @contextmanager
    def hidden(self) -> Generator[None]:
        """Take the bar away for a block: a question needs the last line of the terminal."""
        self._is_hidden = True
        if self._bar is not None:
            self._bar.stop()
        try:
            yield
        finally:
            self._is_hidden = False
            if self._bar is not None:
                self._bar.start()

    def _draw(self, report: ProgressNotificationParams) -> None:
        if self._is_hidden:
            return
        if self._bar is None:
            self._bar = rich_screen().bar()
            self._bar.start()
        # A heartbeat shows that the server is alive: the bar moves, with the message of the last report.
        self._bar.update(shown_progress(report.progress), report.total, one_line(report.message or ""))
