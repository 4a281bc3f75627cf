"""Serving over this process's own stdin and stdout.

Whatever else runs in the process must not touch the wire: a `print` in a tool, `os.system`, a C library that logs to
fd 1, a child that reads fd 0. So the two descriptors are moved away to private, close-on-exec ones; fd 0 becomes
/dev/null and fd 1 becomes stderr. How the process ends:

| what happens                               | what the server does                     | exit status |
|--------------------------------------------|------------------------------------------|-------------|
| end of stdin                               | calls that end within `drain` seconds    | 0           |
|                                            | are answered, and the session ends       |             |
| SIGTERM, SIGHUP (unless ignored)           | calls are cancelled and answered         | 0           |
| SIGINT (unless ignored)                    | calls are cancelled and answered         | 130         |
| the parent process is gone                 | everything is cancelled, within 5 s      | 0           |
| stdout is closed (EPIPE), or is not read   | `send` raises; the session ends          | 0           |
| the end takes longer than the grace        | stacks to stderr, the process is ended   | 1           |
| a second signal that repeats the first     | nothing more (`is_repeat`)               |             |
| any other second signal                    | the process is ended                     | 1           |

SIGPIPE is ignored by Python and shows as EPIPE; SIGKILL cannot be seen. The end of stdin and the death of the parent are also
noticed while a tool blocks the event loop (`server.py`). `hard_end.py` says what the grace covers.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final, TextIO

import trio

from trio_mcp.base.checks import check_seconds
from trio_mcp.base.logs import OwnText, peer_logger
from trio_mcp.base.systems import needs_posix
from trio_mcp.base.values import one_line
from trio_mcp.errors import ConfigurationError
from trio_mcp.session.calls.services import ONE_CLIENT
from trio_mcp.session.transport import ChannelServer, facts_of

from ..hard_end import LONGEST, HardEnd, private_copy
from ..signals import is_repeat, noticed_in_thread, signal_handlers, unignored_signals
from .channel import MAX_LINE, MAX_VALUES, WRITE_DEADLINE, LineChannel, Pipe

# A thread that notices when the client of a stdio server is gone, although a tool may block the event loop.

# The event loop learns of the end of stdin by reading it, and that is the usual way. While it is blocked, it reads nothing. So a
# thread waits for the hang-up of stdin, without reading, and then asks the loop whether it is alive:
#
#   stdin           the loop    what the thread does
#   is open         -           looks at the parent every `CHECK_SECONDS`
#   was hung up     answers     the same, and asks again: the loop may read the rest of stdin only when its client reads
#   was hung up     is silent   ends the process after the grace
#
# A hang-up does not begin the grace while the loop answers: what is still in the pipe was sent before it, and is served.
#
# End of stdin usually tells that the client is gone; not so when some other process has inherited the writing end of the pipe.
# Then the death of the parent does. No portable event tells that: prctl(PR_SET_PDEATHSIG) is for Linux alone, and it follows the
# parent's thread.


CHECK_SECONDS: Final = 2.0

# With this, Linux reports a socket whose other end has stopped sending but still reads.
HANG_UP: Final[int] = getattr(select, "POLLRDHUP", 0)


@contextmanager
def watched_client(
    stdin: int, *, parent: int, grace: float, hard_end: HardEnd, on_orphaned: Callable[[], object]
) -> Generator[None]:
    """Watch the client in the block.

    Args:
        stdin: may be closed in the block.
        parent: the id of the process that was the parent at the start.
        grace: seconds that the event loop may be silent after the end of stdin, and that the end may take without a parent.
        on_orphaned: called in the event loop when the parent is gone.
    """
    watch = ClientWatch(stdin, parent, min(grace, LONGEST), hard_end, on_orphaned)
    thread = threading.Thread(target=watch.run, name="trio_mcp client watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        # It waits for nothing now.
        thread.join()
        watch.close()


class ClientWatch:
    """The watching thread and its descriptors."""

    def __init__(
        self, stdin: int, parent: int, grace: float, hard_end: HardEnd, on_orphaned: Callable[[], object]
    ) -> None:
        # A copy: the channel closes its own, whose number may then belong to another file.
        self._stdin = os.dup(stdin)
        self._stop_reader, self._stop_writer = os.pipe()
        self._parent = parent
        self._grace = grace
        self._hard_end = hard_end
        self._on_orphaned = on_orphaned
        self._token = trio.lowlevel.current_trio_token()
        self._answers: SimpleQueue[None] = SimpleQueue()

    def stop(self) -> None:
        """Let `run` return at once."""
        os.close(self._stop_writer)
        self._answers.put(None)

    def close(self) -> None:
        """Close the descriptors, after `run` has returned."""
        os.close(self._stop_reader)
        os.close(self._stdin)

    def run(self) -> None:
        """Watch until the process must end, or `stop` is called. Runs in its own thread."""
        if sys.platform == "win32":
            raise NotImplementedError
        hung_up = False
        hang_ups = select.poll()
        hang_ups.register(self._stdin, HANG_UP)
        hang_ups.register(self._stop_reader, 0)
        while self._stop_reader not in (found := dict(hang_ups.poll(CHECK_SECONDS * 1000))):
            if self._stdin in found:
                hung_up = True
                hang_ups.unregister(self._stdin)
            if hung_up and self._loop_is_silent():
                self._hard_end.arm(0)
                return
            if os.getppid() != self._parent:
                self._hard_end.arm(self._grace)
                self._token.run_sync_soon(self._on_orphaned)
                return

    def _loop_is_silent(self) -> bool:
        self._token.run_sync_soon(self._answers.put, None)
        try:
            self._answers.get(timeout=self._grace)
        except Empty:
            return True
        return False


logger = peer_logger("trio_mcp.stdio")

# A session takes 2 s at most to clean up.
SHUTDOWN_GRACE: Final = 3.0
DRAIN: Final = 1.0
HARD_END_STATUS: Final = 1
STDIN, STDOUT, STDERR = 0, 1, 2


async def serve(
    server: ChannelServer,
    *,
    max_line: int = MAX_LINE,
    max_values: int = MAX_VALUES,
    write_deadline: float = WRITE_DEADLINE,
    shutdown_grace: float = SHUTDOWN_GRACE,
    drain: float = DRAIN,
) -> None:
    """Serve one client over stdin and stdout; return after the end of stdin, a SIGTERM, a SIGHUP or the parent's death.

    Signals are handled only when this runs in the main thread.

    Args:
        server: what to serve.
        max_line: the longest line accepted, in bytes.
        max_values: how many values one message may have (`JsonLimits.max_values`).
        write_deadline: seconds that one write may take; then the channel is broken, because the client does not read.
        shutdown_grace: seconds for clean-up before the process ends; if it takes longer, the process exits with status 1. The
            end of the server's lifespan has its own time more.
        drain: seconds that requests have after the end of stdin to end, and be answered; then they are cancelled. There are none
            if stdout is closed or the parent is gone.

    Raises:
        SystemExit: with code 130, after SIGINT.
        ConfigurationError: this system is Windows.
    """
    if sys.platform == "win32":
        raise ConfigurationError(needs_posix("a server on stdin and stdout"))
    check_seconds("drain", drain)
    # Before anything is answered: a parent that has its answer may be gone the moment after, and its successor would
    # look like the parent.
    parent = os.getppid()
    tell_person(server)
    shutdown_grace += facts_of(server).lifespan_seconds
    log_ignored_options(server)
    # Outermost: putting stdin and stdout back flushes them, which may block, too.
    with HardEnd(HARD_END_STATUS) as hard_end, _take_over_stdio() as (wire_in, wire_out):
        ending = _Shutdown(shutdown_grace, hard_end)
        orphaned = partial(ending.scope.cancel, "the parent process is gone")
        numbers = unignored_signals()
        with (
            _line_channel(wire_in, wire_out, max_line, max_values, write_deadline) as channel,
            signal_handlers(numbers, ending.on_signal),
            noticed_in_thread(numbers, ending.limit_clean_up),
            watched_client(wire_in, parent=parent, grace=shutdown_grace, hard_end=hard_end, on_orphaned=orphaned),
        ):
            channel.drain = drain
            channel.on_end = partial(ending.on_end, channel, wire_out, parent)
            ending.channel = channel
            with ending.scope:
                await server.serve_channel(channel)
    # SystemExit and not `os._exit`: the program around it may have to clean up, too.
    if ending.status:
        raise SystemExit(ending.status)


def log_ignored_options(server: ChannelServer) -> None:
    """Log that what the server says of HTTP has no effect here. A server without authentication loses nothing by it."""
    http: object = getattr(server, "http", None)
    # A command that starts the file for itself, such as `trio-mcp call`, has not asked for stdio.
    if http is not None and not os.environ.get(ONE_CLIENT):
        asks = getattr(http, "authenticate", None) is not None
        level, more = (logging.WARNING, "; callers are not authenticated") if asks else (logging.INFO, "")
        logger.log(level, "stdio ignores the HTTP options of the server%s", OwnText(more))


def tell_person(server: ChannelServer) -> None:
    """Write a line to stderr if stdin is a terminal: a person who started the program would see nothing happen."""
    # Each is None where a program has no such stream.
    if sys.stdin is not None and sys.stderr is not None and sys.stdin.isatty():
        name = one_line(str(getattr(getattr(server, "identity", None), "name", "this program")))
        sys.stderr.write(f"{name} serves MCP on stdin, for the host that starts it; to try it: trio-mcp list FILE\n")


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
        _line_channel(wire_in, wire_out, max_line, max_values, write_deadline) as channel,
    ):
        yield channel


@contextmanager
def _line_channel(
    wire_in: int, wire_out: int, max_line: int, max_values: int, write_deadline: float
) -> Generator[LineChannel]:
    """Use two descriptors as a channel; they are closed at the end."""
    with closing(Pipe(wire_in)) as receive_stream, closing(Pipe(wire_out)) as send_stream:
        channel = LineChannel(
            receive_stream, send_stream, max_line=max_line, max_values=max_values, write_deadline=write_deadline
        )
        channel.one_client = True
        yield channel


class _Shutdown:
    """Why the process is to end.

    The clean-up is bounded by the hard end, so that neither a shielded tool nor one that blocks the event loop outlasts
    it; the stacks that it shows then tell which tool it was. For the same reason signals come here directly and not
    through a task.
    """

    def __init__(self, grace: float, hard_end: HardEnd) -> None:
        self.scope = trio.CancelScope()
        self.channel: LineChannel | None = None
        """What is served, and may be stopped in order."""
        self.status = 0
        self._grace = grace
        self._hard_end = hard_end
        self._signalled_at: float | None = None
        self._token = trio.lowlevel.current_trio_token()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler. It may run between any two steps of the main thread, so the loop does the cancelling."""
        now = time.monotonic()
        if self._signalled_at is not None:
            if is_repeat(number, now - self._signalled_at):
                return
            with suppress(OSError):
                os.write(STDERR, b"trio_mcp: a second signal came; the process ends at once\n")
            # No clean-up: the first signal began one, and the second says that it takes too long.
            os._exit(HARD_END_STATUS)
        self._signalled_at = now
        self.status = 130 if number == signal.SIGINT else 0
        self.limit_clean_up()
        # Handlers run between two bytecodes of whatever the main thread does; only `run_sync_soon` may touch Trio from
        # there.
        self._token.run_sync_soon(self._stop, signal.Signals(number).name)

    def limit_clean_up(self) -> None:
        """Limit the remaining work to the grace period from now on: a tool may ignore its cancellation."""
        self._hard_end.arm(self._grace)

    def on_end(self, channel: LineChannel, stdout: int, parent: int) -> None:
        """stdin has ended, or stdout is not read any more; perhaps both."""
        if os.getppid() != parent or is_unread(stdout):
            channel.drain = 0.0
        self._hard_end.arm(self._grace + channel.drain)

    def _stop(self, reason: str) -> None:
        """Let the server come to an end in order, if it can."""
        if self.channel is None or self.channel.on_stop is None:
            self.scope.cancel(reason)
        else:
            self.channel.on_stop()


def is_unread(fd: int) -> bool:
    """Return whether nothing can read what is written to a pipe or a socket any more."""
    if sys.platform == "win32":
        return False
    ends = select.poll()
    ends.register(fd, 0)
    return bool(ends.poll(0))


@contextmanager
def _take_over_stdio() -> Generator[tuple[int, int]]:
    """Yield private descriptors for stdin and stdout, whose own numbers lead elsewhere meanwhile."""
    _check_open(sys.__stdin__, "stdin")
    _check_open(sys.__stdout__, "stdout")
    with open(os.devnull, "r+b", buffering=0) as null:
        # Without a stderr, number 2 is free or belongs to something else; if it was free, `null` has it now.
        prints_to = null.fileno() if sys.__stderr__ is None else STDERR
        wire_in, wire_out = private_copy(STDIN, os.O_RDONLY), private_copy(STDOUT, os.O_WRONLY)
        with _redirected(STDIN, null.fileno()), _redirected(STDOUT, prints_to), _prompt_prints():
            yield wire_in, wire_out


def _check_open(stream: TextIO | None, name: str) -> None:
    """What Python found closed when it started has no stream; by now the number may belong to another file."""
    if stream is None:
        raise OSError(errno.EBADF, f"{name} is closed, and the stdio transport speaks through it")


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
