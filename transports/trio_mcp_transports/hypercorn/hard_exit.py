"""The hard end: a thread that ends the process when a shutdown takes longer than it may.

Trio cannot end a task that shields itself, nor one that blocks the event loop. A thread can, and needs neither.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self

# EX_SOFTWARE of sysexits.h, so that a supervisor can tell it from the crash of an app.
HARD_EXIT_CODE: Final = 70


class HardExit:
    """A context in which `arm(seconds)` gives the process that long to leave the context.

    When it does not, a daemon thread ends the process with `HARD_EXIT_CODE`, through `os._exit`: no clean-up runs.
    `arm` may be called from a signal handler, and only its first call counts. Leaving the context disarms it.
    """

    def __init__(self) -> None:
        # SimpleQueue.put is the one primitive documented as safe in a signal handler that interrupts itself.
        self._armed: SimpleQueue[float] = SimpleQueue()
        self._left: SimpleQueue[None] = SimpleQueue()

    def __enter__(self) -> Self:
        # Started with the context and not by `arm`: a signal handler must not start threads.
        threading.Thread(target=self._run, name="trio_mcp hard end", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._left.put(None)
        # For the thread, if it was never armed.
        self._armed.put(0)

    def arm(self, seconds: float) -> None:
        """The process ends in `seconds` from now unless the context is left before."""
        self._armed.put(seconds)

    def _run(self) -> None:
        try:
            self._left.get(timeout=self._armed.get())
        except Empty:
            self._end_process()

    def _end_process(self) -> None:
        with suppress(OSError, AttributeError):
            # Stderr may be a full pipe without a reader, and this thread must not block on it.
            os.set_blocking(2, False)
            os.write(2, b"trio_mcp: the shutdown did not end in time; the process is ended by force\n")
        os._exit(HARD_EXIT_CODE)
