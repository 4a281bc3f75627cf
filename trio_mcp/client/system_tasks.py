"""What is left of an exception in a system task, which must not leave it: Trio's loop would end."""

from __future__ import annotations

import signal

import trio

from ..groups import split_group


def split_contained(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return the cancel in an exception, which may leave the task, and the rest, which its owner raises; each may be None.

    A Ctrl-C that hit the task is passed on to the main task.
    """
    cancelled, rest = split_group(error, trio.Cancelled)
    interrupted, rest = split_group(rest, KeyboardInterrupt)
    if interrupted is not None:
        # The task is protected from it, so Trio delivers it to the main task.
        signal.raise_signal(signal.SIGINT)
    return cancelled, rest
