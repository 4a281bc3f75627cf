"""Serving over this process's own stdin and stdout.

Whatever else runs in the process must not touch the wire: a `print` in a tool, `os.system`, a C library that logs to
fd 1, a child that reads fd 0. So the two descriptors are moved away to private, close-on-exec ones; fd 0 becomes
/dev/null and fd 1 becomes stderr. How the process ends:

| what happens                               | what the server does                     | exit status |
|--------------------------------------------|------------------------------------------|-------------|
| end of stdin                               | the session ends; nothing more is read   | 0           |
| SIGTERM, SIGHUP (unless ignored)           | calls are cancelled and answered         | 0           |
| SIGINT (unless ignored)                    | calls are cancelled and answered         | 130         |
| the parent process is gone                 | everything is cancelled, within 5 s      | 0           |
| stdout is closed (EPIPE), or is not read   | `send` raises; the session ends          | 0           |
| clean-up takes longer than the grace       | stacks to stderr, the process is ended   | 1           |
| a second signal                            | the process is ended                     | 1           |

SIGPIPE is ignored by Python and shows as EPIPE; SIGKILL cannot be seen.
"""

from __future__ import annotations

import errno
import faulthandler
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from types import FrameType
from typing import Final, TextIO

import trio

from trio_mcp.session.transport import ChannelServer

from ..background import open_background
from ..signals import signal_handlers
from .channel import MAX_LINE, MAX_VALUES, WRITE_DEADLINE, LineChannel, Pipe

# A session takes 2 s at most to clean up.
SHUTDOWN_GRACE: Final = 3.0
PARENT_CHECK: Final = 2.0
STDIN, STDOUT, STDERR = 0, 1, 2


async def serve(
    server: ChannelServer,
    *,
    max_line: int = MAX_LINE,
    max_values: int = MAX_VALUES,
    write_deadline: float = WRITE_DEADLINE,
    shutdown_grace: float = SHUTDOWN_GRACE,
) -> None:
    """Serve one client over stdin and stdout; return after the end of stdin, a SIGTERM, a SIGHUP or the parent's death.

    Signals are handled only when this runs in the main thread.

    Args:
        server: what to serve.
        max_line: the longest line accepted, in bytes.
        max_values: how many values one message may have (`JsonLimits.max_values`).
        write_deadline: seconds that one write may take; then the channel is broken, because the client does not read.
        shutdown_grace: seconds for clean-up before the process ends; if it takes longer, the process exits with status 1.

    Raises:
        SystemExit: with code 130, after SIGINT.
    """
    ending = _Shutdown(shutdown_grace)
    # Before anything is answered: a parent that has its answer may be gone the moment after, and its successor would
    # look like the parent.
    parent = os.getppid()
    async with guarded_stdio(max_line=max_line, max_values=max_values, write_deadline=write_deadline) as channel:
        with signal_handlers(_wanted_signals(), ending.on_signal), closing(ending):
            async with open_background() as watchers:
                watchers.start_soon(_watch_parent, ending, parent)
                channel.on_end = ending.limit_clean_up
                ending.channel = channel
                with ending.scope:
                    await server.serve_channel(channel)
    # SystemExit and not `os._exit`: the program around it may have to clean up, too.
    if ending.status:
        raise SystemExit(ending.status)


@asynccontextmanager
async def guarded_stdio(
    *, max_line: int = MAX_LINE, max_values: int = MAX_VALUES, write_deadline: float = WRITE_DEADLINE
) -> AsyncGenerator[LineChannel]:
    """Use stdin and stdout as a channel; other code of this process and its child processes cannot reach them.

    Inside the block, fd 0 is empty and fd 1 goes to stderr, for Python's `print` and for child processes. Works for pipes,
    sockets, terminals and files. Leaving the block restores both.

    Raises:
        OSError: stdin or stdout is closed.
    """
    with (
        _take_over_stdio() as (wire_in, wire_out),
        closing(Pipe(wire_in)) as receive_stream,
        closing(Pipe(wire_out)) as send_stream,
    ):
        yield LineChannel(
            receive_stream, send_stream, max_line=max_line, max_values=max_values, write_deadline=write_deadline
        )


class _Shutdown:
    """Why the process is to end.

    The clean-up is bounded by faulthandler's own thread, so that neither a shielded tool nor one that blocks the event
    loop outlasts it; the stacks that it shows then tell which tool it was. For the same reason signals come here
    directly and not through a task.
    """

    def __init__(self, grace: float) -> None:
        self.scope = trio.CancelScope()
        self.channel: LineChannel | None = None
        """What is served, and may be stopped in order."""
        self.status = 0
        self._grace = grace
        self._begun = False
        self._token = trio.lowlevel.current_trio_token()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler. It may run between any two steps of the main thread, so the loop does the cancelling."""
        if self._begun:
            with suppress(OSError):
                os.write(STDERR, b"trio_mcp: a second signal came; the process ends at once\n")
            # No clean-up: the first signal began one, and the second says that it takes too long.
            os._exit(1)
        self.status = 130 if number == signal.SIGINT else 0
        self.limit_clean_up()
        # Handlers run between two bytecodes of whatever the main thread does; only `run_sync_soon` may touch Trio from
        # there.
        self._token.run_sync_soon(self._stop, signal.Signals(number).name)

    def limit_clean_up(self) -> None:
        """From now on what is left may take the grace, and no longer: a tool may ignore its cancellation."""
        if self._begun:
            return
        self._begun = True
        # A thread of C code: it works while Python code holds the event loop, or the GIL in a long call.
        faulthandler.dump_traceback_later(self._grace, exit=True, file=STDERR)

    def cut(self, reason: str) -> None:
        """Cancel everything, without replies: the client is gone."""
        self.limit_clean_up()
        self.scope.cancel(reason)

    def _stop(self, reason: str) -> None:
        """Let the server come to an end in order, if it can."""
        if self.channel is None or self.channel.on_stop is None:
            self.scope.cancel(reason)
        else:
            self.channel.on_stop()

    def close(self) -> None:
        """The clean-up is done."""
        if self._begun:
            faulthandler.cancel_dump_traceback_later()


def _wanted_signals() -> list[signal.Signals]:
    """Only the main thread may handle signals, and one that was set to be ignored from outside (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        return []
    candidates = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in candidates if signal.getsignal(number) is not signal.SIG_IGN]


async def _watch_parent(ending: _Shutdown, parent: int) -> None:
    """End of stdin usually tells first; not so when some other process has inherited the writing end of the pipe."""
    # No portable event tells it: prctl(PR_SET_PDEATHSIG) is for Linux alone, and it follows the parent's thread.
    while os.getppid() == parent:  # noqa: ASYNC110
        await trio.sleep(PARENT_CHECK)
    ending.cut("the parent process is gone")


@contextmanager
def _take_over_stdio() -> Generator[tuple[int, int]]:
    """Yield private descriptors for stdin and stdout, whose own numbers lead elsewhere meanwhile."""
    _check_open(sys.__stdin__, "stdin")
    _check_open(sys.__stdout__, "stdout")
    with open(os.devnull, "r+b", buffering=0) as null:
        # Without a stderr, number 2 is free or belongs to something else; if it was free, `null` has it now.
        prints_to = null.fileno() if sys.__stderr__ is None else STDERR
        wire_in, wire_out = _private_copy(STDIN, os.O_RDONLY), _private_copy(STDOUT, os.O_WRONLY)
        with _redirected(STDIN, null.fileno()), _redirected(STDOUT, prints_to), _prompt_prints():
            yield wire_in, wire_out


def _check_open(stream: TextIO | None, name: str) -> None:
    """What Python found closed when it started has no stream; by now the number may belong to another file."""
    if stream is None:
        raise OSError(errno.EBADF, f"{name} is closed, and the stdio transport speaks through it")


def _private_copy(fd: int, flags: int) -> int:
    """Return a close-on-exec descriptor of our own for what `fd` refers to.

    Trio makes it non-blocking, and that mode belongs to the open file, not to the descriptor. With a mere duplicate, a
    stderr that shares the terminal or the pipe (`2>&1`) would turn non-blocking too and lose log lines. So both are
    opened again where the system can; a regular file keeps its offset, and a socket cannot be opened.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with suppress(OSError):
            # O_NOCTTY: opening a terminal anew must not make it the controlling one.
            return os.open(f"/dev/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY)
    return os.dup(fd)


@contextmanager
def _redirected(fd: int, target: int) -> Generator[None]:
    # `os.dup` makes it close-on-exec, so no child inherits the wire.
    saved = os.dup(fd)
    os.dup2(target, fd)
    try:
        yield
    finally:
        os.dup2(saved, fd)
        os.close(saved)


@contextmanager
def _prompt_prints() -> Generator[None]:
    """Prints show at once, and none is left in the buffer for the wire, neither from before nor for after."""
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):
        yield
        return
    line_buffering = stdout.line_buffering
    # This flushes, too: what was printed before goes where it was meant to.
    stdout.reconfigure(line_buffering=True)
    try:
        yield
    finally:
        with suppress(OSError):
            stdout.flush()
        stdout.reconfigure(line_buffering=line_buffering)
