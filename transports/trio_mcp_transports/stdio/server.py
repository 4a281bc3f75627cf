"""Serving over this process's own stdin and stdout.

Whatever else runs in the process must not touch the wire: a `print` in a tool, `os.system`, a C library that logs to
fd 1, a child that reads fd 0. So the two descriptors are moved away to private, close-on-exec ones; fd 0 becomes
/dev/null and fd 1 becomes stderr. How the process ends:

| what happens                               | what the server does                     | exit status |
|--------------------------------------------|------------------------------------------|-------------|
| end of stdin                               | the session ends; nothing more is read   | 0           |
| SIGTERM, SIGHUP (unless ignored)           | everything is cancelled                  | 0           |
| SIGINT (unless ignored)                    | everything is cancelled                  | 130         |
| the parent process is gone                 | everything is cancelled, within 5 s      | 0           |
| stdout is closed (EPIPE), or nobody reads  | `send` raises; the session ends          | 0           |
| clean-up takes longer than the grace, or a second signal comes | the process is ended  | 1           |

SIGPIPE is ignored by Python and shows as EPIPE; SIGKILL cannot be seen.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from typing import Final, NoReturn

import trio

from trio_mcp.session.transport import ChannelServer

from .._background import open_background
from .channel import MAX_LINE, WRITE_DEADLINE, LineChannel

SHUTDOWN_GRACE: Final = 2.0
PARENT_CHECK: Final = 2.0
STDIN, STDOUT, STDERR = 0, 1, 2


async def serve(
    server: ChannelServer,
    *,
    max_line: int = MAX_LINE,
    write_deadline: float = WRITE_DEADLINE,
    shutdown_grace: float = SHUTDOWN_GRACE,
) -> None:
    """Serve one client over stdin and stdout; return when it has closed stdin, or on SIGTERM, SIGHUP or a dead parent.

    Signals are handled only when this runs in the main thread.

    Args:
        server: what to serve.
        max_line: the longest line accepted, in bytes.
        write_deadline: the seconds one write may take before the client counts as not reading.
        shutdown_grace: the seconds that clean-up may take once told to end; then the process is ended with status 1.

    Raises:
        SystemExit: with code 130, after SIGINT.
    """
    ending = _Ending(shutdown_grace)
    async with guarded_stdio(max_line=max_line, write_deadline=write_deadline) as channel:
        async with open_background() as watchers:
            await watchers.start(_watch_signals, ending)
            watchers.start_soon(_watch_parent, ending)
            with ending.scope:
                await server.serve_channel(channel)
    ending.finish()


@asynccontextmanager
async def guarded_stdio(
    *, max_line: int = MAX_LINE, write_deadline: float = WRITE_DEADLINE
) -> AsyncIterator[LineChannel]:
    """Take stdin and stdout over as a channel, so that nothing else in the process, or started by it, touches them.

    Inside, fd 0 reads as empty and fd 1 goes to stderr, for Python's `print` and for children alike. Works for pipes,
    sockets, terminals and files. Both are put back on the way out.

    Raises:
        OSError: stdin or stdout is closed.
    """
    with (
        _wire() as (wire_in, wire_out),
        closing(trio.lowlevel.FdStream(wire_in)) as receive_stream,
        closing(trio.lowlevel.FdStream(wire_out)) as send_stream,
    ):
        yield LineChannel(receive_stream, send_stream, max_line=max_line, write_deadline=write_deadline)


class _Ending:
    """How the process was told to end. A thread bounds the clean-up: no shielded or blocking tool outlasts it."""

    def __init__(self, grace: float) -> None:
        self.scope = trio.CancelScope()
        self.begun = False
        self._status = 0
        self._hard_end = threading.Timer(grace, _end_now, [f"clean-up took longer than {grace:g} s"])
        self._hard_end.daemon = True

    def begin(self, reason: str, status: int = 0) -> None:
        if self.begun:
            return
        self.begun = True
        self._status = status
        self._hard_end.start()
        self.scope.cancel(reason)

    def finish(self) -> None:
        self._hard_end.cancel()
        if self._status:
            raise SystemExit(self._status)


def _end_now(reason: str) -> NoReturn:
    with suppress(OSError):
        os.write(STDERR, f"trio_mcp: the server was ended at once: {reason}\n".encode())
    os._exit(1)


async def _watch_signals(ending: _Ending, *, task_status: trio.TaskStatus[None]) -> None:
    wanted = _wanted_signals()
    if not wanted:
        task_status.started()
        return
    with trio.open_signal_receiver(*wanted) as signals:
        task_status.started()
        async for number in signals:
            if ending.begun:
                _end_now("a second signal came")
            ending.begin(signal.Signals(number).name, status=130 if number == signal.SIGINT else 0)


def _wanted_signals() -> list[signal.Signals]:
    """Only the main thread may handle signals, and one that was set to be ignored from outside (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        return []
    candidates = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in candidates if signal.getsignal(number) is not signal.SIG_IGN]


async def _watch_parent(ending: _Ending) -> None:
    """End of stdin usually tells first; not so when some other process has inherited the writing end of the pipe."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110  (the system has no event for it that is portable)
        await trio.sleep(PARENT_CHECK)
    ending.begin("the parent process is gone")


@contextmanager
def _wire() -> Iterator[tuple[int, int]]:
    """Yield private descriptors for stdin and stdout, whose own numbers lead elsewhere meanwhile."""
    _check_standard_descriptors()
    wire_in, wire_out = _private(STDIN, os.O_RDONLY), _private(STDOUT, os.O_WRONLY)
    with (
        open(os.devnull, "rb") as null,
        _redirected(STDIN, null.fileno()),
        _redirected(STDOUT, STDERR),
        _prompt_prints(),
    ):
        yield wire_in, wire_out


def _check_standard_descriptors() -> None:
    """Stdin and stdout must be open; a closed stderr becomes /dev/null, lest the next file opened be taken for it."""
    for number, name in ((STDIN, "stdin"), (STDOUT, "stdout")):
        if not _is_open(number):
            raise OSError(errno.EBADF, f"{name} is closed, and the stdio transport speaks through it")
    if not _is_open(STDERR):
        os.open(os.devnull, os.O_WRONLY)  # the lowest free number, which is 2
        os.set_inheritable(STDERR, True)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _private(fd: int, flags: int) -> int:
    """Return a close-on-exec descriptor of our own for what `fd` refers to.

    Trio makes it non-blocking, and that mode belongs to the open file, not to the descriptor. With a mere duplicate, a
    stderr that shares the terminal or the pipe (`2>&1`) would turn non-blocking too and lose log lines. So both are
    opened anew where the system can; a regular file keeps its offset, and a socket cannot be opened.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with suppress(OSError):
            return os.open(f"/dev/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY)
    return os.dup(fd)


@contextmanager
def _redirected(fd: int, target: int) -> Iterator[None]:
    saved = os.dup(fd)
    os.dup2(target, fd)
    try:
        yield
    finally:
        os.dup2(saved, fd)
        os.close(saved)


@contextmanager
def _prompt_prints() -> Iterator[None]:
    """Prints show at once, and none is left in the buffer for the wire, neither from before nor for after."""
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):
        yield
        return
    line_buffering = stdout.line_buffering
    stdout.reconfigure(line_buffering=True)  # which also flushes
    try:
        yield
    finally:
        with suppress(OSError):
            stdout.flush()
        stdout.reconfigure(line_buffering=line_buffering)
