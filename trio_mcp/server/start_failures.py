"""Failures of the start that are the environment's: one line tells what to mend, and a traceback would bury it."""

from __future__ import annotations

import sys
from types import TracebackType

from ..base.values import one_line
from ..errors import ConfigurationError
from ..session.transport import CannotListen


def show_in_one_line(error: CannotListen | ConfigurationError, name: str) -> None:
    """Have Python show this exception as one line, if nothing catches it: a port in use, or a setting that is wrong.

    The exit status is 1, as for each exception that nothing catches.

    Args:
        name: of the server, for the line.
    """
    before = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is not error:
            before(kind, value, traceback)
            return
        text = error.strerror if isinstance(error, CannotListen) else str(error)
        sys.stderr.write(f"{name}: {one_line(text or str(error))}\n")

    sys.excepthook = show
