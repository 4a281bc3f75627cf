"""Failures of the start that are the environment's: one line tells what to mend, and a traceback would bury it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

from ..errors import ConfigurationError
from ..printable import one_line


@contextmanager
def one_line_failures(name: str) -> Generator[None]:
    """Have Python show what leaves the block as one line, if nothing catches it: a port in use, or a setting that is wrong.

    The exit status is 1, as for each exception that nothing catches.

    Args:
        name: of the server, for the line.
    """
    try:
        yield
    except (OSError, ConfigurationError) as error:
        # Only those that are about an address or a file that could not be used. A lifespan may raise an OSError of any kind.
        if isinstance(error, ConfigurationError) or is_about_address(error):
            show_in_one_line(error, name)
        raise


def is_about_address(error: OSError) -> bool:
    return (error.strerror or "").startswith("cannot listen on ")


def show_in_one_line(error: Exception, name: str) -> None:
    """Replace the hook that shows uncaught exceptions, for this one."""
    before = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is not error:
            before(kind, value, traceback)
            return
        text = error.strerror if isinstance(error, OSError) else str(error)
        sys.stderr.write(f"{name}: {one_line(text or str(error))}\n")

    sys.excepthook = show
