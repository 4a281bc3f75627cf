"""Starting a server as a child process and speaking with it over its stdin and stdout.

The child leads a new process group, so that what it starts can be ended with it. The end of a connection is
always the same, also when the body raised or was cancelled, and takes at most three times the grace: close stdin, wait;
SIGTERM to the group, wait; SIGKILL to the group. Only a process that has left the group (its own `setsid`) outlives it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from array import array
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Final

import trio

from trio_mcp.base.systems import needs_posix
from trio_mcp.base.values import one_line
from trio_mcp.errors import ConfigurationError, RemoteProtocolError
from trio_mcp.protocol.json_limits import CLIENT_LIMITS
from trio_mcp.protocol.jsonrpc import PARSE_ERROR, Malformed
from trio_mcp.session import Envelope, Received

from ..background import open_background
from .channel import WRITE_DEADLINE, LineChannel, Pipe

SHUTDOWN_GRACE: Final = 2.0
MAX_LINE: Final = CLIENT_LIMITS.max_bytes
MAX_VALUES: Final = CLIENT_LIMITS.max_values
INHERITED: Final = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"})
MAX_QUOTED: Final = 100
"""Bytes of a line that an error shows."""
_LINGER: Final = 0.5
_GROUP_CHECK: Final = 0.02


@asynccontextmanager
async def connect(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stderr: int | IO[bytes] | None = None,
    shutdown_grace: float = SHUTDOWN_GRACE,
    max_line: int = MAX_LINE,
    max_values: int = MAX_VALUES,
    write_deadline: float = WRITE_DEADLINE,
) -> AsyncGenerator[ProcessChannel]:
    """Start a server and yield the channel to it; leaving the block ends the server and every process that it started.

    Args:
        argv: the executable and its arguments. No shell is involved.
        env: additional variables; from this process the child inherits only `INHERITED` and `LC_*`.
        cwd: the child's working directory; a relative path of the executable is resolved against it.
        stderr: where the child's stderr goes, as for `subprocess.Popen`; by default to that of this process,
            unchanged: a server can write escape sequences to its terminal.
        shutdown_grace: the seconds the server gets to leave after stdin was closed, and again after SIGTERM.
        max_line: the longest line accepted, in bytes. A call whose answer is longer fails.
        max_values: the values that one message may have (`JsonLimits`).
        write_deadline: the seconds one write may take before the server counts as not reading.

    Raises:
        FileNotFoundError: there is no such executable; the text names it.
        OSError: it could not be started.
        ConfigurationError: this system is Windows.
    """
    if sys.platform == "win32":
        raise ConfigurationError(needs_posix("a server that is a child process"))
    environment = _environment(env)
    command = _resolved(argv, environment, cwd)
    # `trio.run_process` would own the streams. Here the channel does, and the group has to outlive both.
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )
    # Nothing may be awaited between the start and the `try`: a cancel there would leave the process without an owner.
    group = _Group(process)
    try:
        channel = ProcessChannel(process, max_line=max_line, max_values=max_values, write_deadline=write_deadline)
        async with open_background() as nursery:
            nursery.start_soon(_watch, channel, group, shutdown_grace)
            yield channel
    finally:
        # Each step inside has a separate time limit, so the shield is bounded: three times the grace.
        with trio.CancelScope(shield=True):
            await _end(process, group, shutdown_grace)


class ProcessChannel(LineChannel):
    """The channel to a child process.

    When the child dies, `receive` returns what it had written and then ends, and `send` raises, even if a grandchild still holds
    the other ends of the pipes.

    Attributes:
        process: the child; its `args`, `pid` and `returncode` (None while it runs, -N after signal N).
    """

    def __init__(self, process: trio.Process, *, max_line: int, max_values: int, write_deadline: float) -> None:
        self.process = process
        self._has_exited = False
        self._stdout = _pipe(process.stdout)
        super().__init__(
            self._stdout,
            _pipe(process.stdin),
            max_line=max_line,
            max_values=max_values,
            write_deadline=write_deadline,
        )

    @property
    def outcome(self) -> str | None:
        """How the process ended, for messages: `exited with status 3`, `was ended by SIGKILL`.

        None if it is running, or ended so recently that its status is not known yet.
        """
        status = self.process.returncode
        if status is None:
            return None
        return f"exited with status {status}" if status >= 0 else f"was ended by {_signal_name(-status)}"

    @property
    def close_reason(self) -> str | None:
        """How the process ended, as text; None while `outcome` is None."""
        return None if self.outcome is None else f"its process {self.outcome}"

    @property
    def ended_by_itself(self) -> bool:
        """Whether the process has exited, and was not ended by a signal."""
        return self.process.returncode is not None and self.process.returncode >= 0

    @property
    def ended_unread(self) -> bool:
        """Whether the process has ended, and did not read all that was sent. False where the system does not say."""
        stdin = self.process.stdin
        if sys.platform == "win32" or self.process.returncode is None or not isinstance(stdin, trio.lowlevel.FdStream):
            return False
        import fcntl  # noqa: PLC0415  POSIX only
        import termios  # noqa: PLC0415

        unread = array("i", [0])
        # Of the end of a pipe that is written to, Linux alone says it. A pipe that is closed has no descriptor.
        with suppress(OSError, trio.ClosedResourceError):
            fcntl.ioctl(stdin.fileno(), termios.FIONREAD, unread)
        return unread[0] > 0

    def process_ended(self) -> None:
        """Make `send` raise, and `receive` end after the lines that have arrived. `connect` calls it when the child has died."""
        self.break_sending(f"the server process {self.outcome}")
        # What the child wrote before it died may still be in the pipe; it is read until there is nothing for a moment.
        self._has_exited = True
        self._stdout.wake_reader()

    async def _read(self) -> bytes:
        with suppress(trio.EndOfChannel):
            try:
                if not self._has_exited:
                    return await super()._read()
            except trio.ClosedResourceError:
                if not self._has_exited:
                    raise
                # Woken by `process_ended`, unless it was closed since.
                self._check_open()
            with trio.move_on_after(_LINGER):
                return await super()._read()
            self._ended = True
        # A process that ends closes its pipe a moment before its status is known, which says why.
        with trio.move_on_after(_LINGER):
            await self.process.wait()
        raise trio.EndOfChannel

    def _parse(self, line: bytes | Malformed) -> Envelope[Received]:
        envelope = super()._parse(line)
        match envelope.message:
            # Mostly a `print` of the program: its text shows which one.
            case Malformed(error, None) if isinstance(line, bytes) and error.code == PARSE_ERROR:
                text = one_line(line[:MAX_QUOTED].decode("utf-8", "replace").strip())
                why = f"{error} It is {text!r}: stdout is for messages, so the program has to print to stderr"
                return Envelope(Malformed(RemoteProtocolError(why, code=PARSE_ERROR)))
        return envelope

    def _state(self) -> str:
        return f"{super()._state()}, process {self.process.pid} {self.outcome or 'is running'}"


def _pipe(stream: trio.abc.AsyncResource | None) -> Pipe:
    if sys.platform == "win32":
        raise NotImplementedError
    assert isinstance(stream, trio.lowlevel.FdStream)
    return Pipe(stream)


def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    return inherited | dict(extra or {})


def _resolved(argv: Sequence[str], environment: Mapping[str, str], cwd: str | os.PathLike[str] | None) -> list[str]:
    """The command with its executable found in the child's PATH, or in `cwd` if it is a relative path."""
    if isinstance(argv, str) or not argv:
        raise TypeError("argv must be a sequence of the executable and its arguments: no shell will split a string")
    name, *arguments = argv
    candidate = str(Path(cwd or "").absolute() / name) if os.path.dirname(name) else name
    executable = shutil.which(candidate, path=environment.get("PATH", os.defpath))
    if executable is None:
        raise FileNotFoundError(f"no executable {name!r} was found to start the server with")
    return [os.path.abspath(executable), *arguments]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Group:
    """The processes of the child's group. Once empty, its number may become another's, so it is not signalled again."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._gone = False

    async def end(self, grace: float) -> None:
        """SIGTERM, wait, SIGKILL, wait: at most `grace` seconds each."""
        if sys.platform == "win32":
            raise NotImplementedError
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._signal(number):
                with trio.move_on_after(grace):
                    await self._wait()

    async def _wait(self) -> None:
        """Wait until no process of the group is left. Nothing reports that, so it is asked for again and again."""
        await self._process.wait()
        while self._signal(0):  # noqa: ASYNC110
            await trio.sleep(_GROUP_CHECK)

    def _signal(self, number: int) -> bool:
        """Signal every process of the group; False when there is none."""
        if sys.platform == "win32":
            raise NotImplementedError
        if not self._gone:
            try:
                os.killpg(self._process.pid, number)
            # macOS answers EPERM for a group of zombies. Once gone it stays gone: its number may belong to another
            # group later, which must not be signalled.
            except (ProcessLookupError, PermissionError):
                self._gone = True
        return not self._gone


async def _watch(channel: ProcessChannel, group: _Group, grace: float) -> None:
    """When the child dies, tell the channel, and end what it has left behind while the group is known to be ours."""
    # The pipe may stay open after the child died, in the hands of a grandchild. So the end of the process is watched
    # and not only the end of the pipe.
    await channel.process.wait()
    channel.process_ended()
    await group.end(grace)


async def _end(process: trio.Process, group: _Group, grace: float) -> None:
    """End the child and its group. Bounded; the caller shields it."""
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdin.aclose()
    async with trio.open_nursery() as nursery:
        # A server that writes its last messages into a full pipe would block there and never see the end of its stdin.
        nursery.start_soon(_drain, process.stdout)
        with trio.move_on_after(grace):
            await process.wait()
        await group.end(grace)
        nursery.cancel_scope.cancel("the process has ended")
    await process.stdout.aclose()


async def _drain(stdout: trio.abc.ReceiveStream) -> None:
    """Read what the child still writes, so that it does not block and can see the end of its stdin."""
    with suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
        async for _ in stdout:
            pass
