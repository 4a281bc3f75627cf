"""The hard end: the process is ended by force when it takes longer to end than it may.

Trio cannot end a task that shields itself, nor one that blocks the event loop. A thread can, and needs neither.
"""

from __future__ import annotations

import faulthandler
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from traceback import walk_stack
from types import FrameType, TracebackType
from typing import Final, NoReturn, Self

from trio_mcp.session.transport import OWNS_PROCESS

# File descriptors of this process's own standard streams.


def private_copy(fd: int, flags: int) -> int:
    """Return a new close-on-exec descriptor for what `fd` refers to, which does not block if the system allows that.

    That mode belongs to the open file, not to the descriptor. With a mere duplicate, a stderr that shares the terminal or
    the pipe (`2>&1`) would turn non-blocking too and lose log lines. So pipes and terminals are opened again where the
    system can; a regular file keeps its offset, and a socket cannot be opened.
    """
    mode = os.fstat(fd).st_mode
    if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        with suppress(OSError):
            # O_NOCTTY: reopening a terminal must not make it the controlling one.
            return os.open(f"/dev/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY)
    return os.dup(fd)


# Three things can keep the process, one after the other. `arm` sets the deadline for all of them.
#
#   what keeps it                                       until                  what ends it at the deadline
#   a task that shields itself or blocks the loop       `HardEnd` is left      the thread of `_run`
#   a thread that a tool left: Python waits for each    the interpreter ends   the same thread, but only in `Server.run`
#   thread that is not a daemon when the main thread ends
#   C code that does not release the GIL, so that no    the interpreter ends   the thread of faulthandler, which is written in C
#   thread runs Python code
#
# Example, over HTTP with a drain of 10 s; a tool has left a thread that never stops sleeping:
#
#    0    SIGTERM; its handler calls `arm(15)`
#    2    every call is answered, and the `HardEnd` is left; in `Server.run` its thread stays
#    2    `Server.run` returns; what its caller does now takes the time it takes
#    3    the main thread ends: Python calls `_on_main_thread_end`, and waits for the threads
#   15    the thread writes the stacks to stderr and ends the process


AFTER_MAIN_THREAD: Final = 1.0
"""Seconds that the process has at least once its main thread has ended."""

GIL_GRACE: Final = 5.0
"""Seconds after the deadline in which the thread could not run, after which faulthandler ends the process."""

LONGEST: Final = 365 * 86400.0
"""Seconds that every timer accepts."""

MAX_FRAMES: Final = 50
"""Frames shown of each thread, the innermost."""

STDERR: Final = 2
NOTICE: Final = "trio_mcp: the process did not end in time and is ended by force. Its threads, innermost call last:\n"


class HardEnd:
    """A context in which `arm(seconds)` gives the process that long to leave the context.

    If it does not, a daemon thread writes the stacks of all threads to stderr and ends the process through `os._exit`: no
    clean-up runs. Leaving the context disarms it; but within `Server.run`, where the process exists for the server alone, the
    deadline also holds for the end of the interpreter, which waits for threads.

    Args:
        status: the exit status of a process that was ended. It is 1 if code in C kept every thread from running.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._first = threading.Lock()
        """Taken by the first `arm`, and kept."""
        self._deadline = 0.0
        # SimpleQueue.put is the one primitive documented as safe in a signal handler that interrupts itself.
        self._armed: SimpleQueue[float | None] = SimpleQueue()
        """The deadline; None if the context was left before."""
        self._left: SimpleQueue[bool] = SimpleQueue()
        """Whether the thread stays for the end of the interpreter."""
        self._interpreter_ends: SimpleQueue[float] = SimpleQueue()
        """The seconds that it has for it."""
        self._thread = threading.Thread(target=self._run, name="trio_mcp hard end", daemon=True)

    def __enter__(self) -> Self:
        self._stderr = open_stderr()
        # Started with the context and not by `arm`: a signal handler must not start threads.
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        armed = self._first.locked()
        if armed:
            faulthandler.cancel_dump_traceback_later()
        stays = armed and OWNS_PROCESS.get()
        if stays:
            # `main_thread().join()` would return too late: `concurrent.futures` registers a wait for its workers here, which
            # comes before that. What is registered last is called first.
            threading._register_atexit(self._on_main_thread_end)  # type: ignore[attr-defined]  # noqa: SLF001
        self._left.put(stays)
        self._armed.put(None)
        if not stays:
            self._thread.join()
            os.close(self._stderr)

    def arm(self, seconds: float) -> None:
        """Give the process this long. Only the first call counts. May be called from a signal handler, and from any thread."""
        # Taking a lock without waiting is one step, which no signal handler can interrupt.
        if not self._first.acquire(blocking=False):
            return
        seconds = min(seconds, LONGEST)
        self._deadline = time.monotonic() + seconds
        self._limit_c_code(seconds)
        self._armed.put(self._deadline)

    def _on_main_thread_end(self) -> None:
        """Called in the main thread, after its last line."""
        seconds = max(self._deadline - time.monotonic(), AFTER_MAIN_THREAD)
        self._limit_c_code(seconds)
        self._interpreter_ends.put(seconds)

    def _limit_c_code(self, seconds: float) -> None:
        # faulthandler reads the frames of the other threads without the GIL. When they ran meanwhile, it has crashed. Here it
        # starts only if our thread waited for the GIL in vain for `GIL_GRACE`: a thread that runs Python code lets go of it after
        # 5 ms, and even a hundred of them would not take turns for so long. So code in C holds it, and no frame changes.
        faulthandler.dump_traceback_later(seconds + GIL_GRACE, exit=True, file=self._stderr)

    def _run(self) -> None:
        deadline = self._armed.get()
        if deadline is None:
            return
        try:
            stays = self._left.get(timeout=max(deadline - time.monotonic(), 0))
        except Empty:
            self._end_process()
        if stays:
            time.sleep(self._interpreter_ends.get())
            self._end_process()

    def _end_process(self) -> NoReturn:
        try:
            # It has not begun if this runs, and must not begin while this waits for its turn among many busy threads.
            self._limit_c_code(0)
            # For what could not be opened again, such as a socket.
            if sys.platform != "win32":
                os.set_blocking(self._stderr, False)
            os.write(self._stderr, (NOTICE + stacks()).encode(errors="backslashreplace"))
        finally:
            os._exit(self._status)


def open_stderr() -> int:
    """Return a separate descriptor for stderr, which does not block: it may be a full pipe without a reader."""
    # Without a stderr at the start of the program, the number may belong to another file by now.
    if sys.__stderr__ is not None:
        with suppress(OSError):
            return private_copy(STDERR, os.O_WRONLY)
    return os.open(os.devnull, os.O_WRONLY)


def stacks() -> str:
    """Return the stack of every thread but this one, those that keep the process first.

    It holds references to the frames, so they may change but not go away while it reads them. Lines of source are not read: that
    may block.
    """
    frames = sys._current_frames()  # noqa: SLF001  documented, and the only way
    del frames[threading.get_ident()]
    threads = {thread.ident: thread for thread in threading.enumerate()}

    def is_daemon(ident: int) -> bool:
        return ident not in threads or threads[ident].daemon

    return "".join(
        f"Thread {threads[ident].name if ident in threads else ident}{' (daemon)' if is_daemon(ident) else ''}:\n"
        + "".join(reversed([*lines_of(frames[ident])]))
        for ident in sorted(frames, key=is_daemon)
    )


def lines_of(innermost: FrameType) -> Iterator[str]:
    for frame, line in islice(walk_stack(innermost), MAX_FRAMES):
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {line}, in {code.co_qualname}\n'
