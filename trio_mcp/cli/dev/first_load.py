"""Loading the server of `trio-mcp dev` for the first time: again at each change of its files, until it can be loaded."""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from ...server import Server
from ..command import CommandError
from ..targets.loading import WrongChoice
from .file_watch import Restarts, watch
from .project_modules import ProjectModules, Stamp, forget_lines
from .reloading import END_SIGNALS, BrokenOff, Tell, Watch, broken_off_by_signals, described, importable, may_help

HUNG_UP: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
STDIN_SECONDS: Final = 0.5
"""How often is looked whether the host has left."""


@dataclass(eq=False)
class FirstLoad:
    """Loads a server, and waits for changes of its files while it cannot be loaded.

    Args:
        name: of the file or module, for the user.
        source: the file or the module.
        modules: those of the project.
        restarts: knows the folders of installed packages, in which a change may help as well.
        load: imports the file, and returns its server.
        tell: shows lines to the user.
        debug: show whole tracebacks.
        watch: notices changes; see `file_watch.watch`.
    """

    name: str
    source: Path | str
    modules: ProjectModules
    restarts: Restarts
    load: Callable[[], Server]
    tell: Tell
    debug: bool = False
    watch: Watch = watch
    signal: int | None = field(default=None, init=False)
    """The signal that has ended `wait`."""
    _due: trio.Event = field(default_factory=trio.Event, init=False)
    _seen: dict[Path, Stamp | None] = field(default_factory=dict, init=False)

    def run(self, *, has_host: bool) -> Server | None:
        """Return the server as soon as it can be loaded; None if a signal or the end of stdin came before.

        Args:
            has_host: stdin leads to a host, which may leave.

        Raises:
            CommandError: there is no such file or module, or the file has other servers than the one that was named.
        """
        try:
            return self.load()
        except WrongChoice:
            # The command line has to change, and not the file.
            raise
        except CommandError as error:
            if is_missing(error, self.source) or (has_host and not may_hang_up(sys.stdin.fileno())):
                raise
            failure = error
        return trio.run(self.wait, failure, has_host)

    async def wait(self, failure: CommandError, has_host: bool) -> Server | None:
        """Load the server after each change, and return it when that succeeds; see `run`.

        Args:
            failure: what the first attempt has raised.
        """
        server: Server | None = None
        numbers = [each for each in END_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        with trio.open_signal_receiver(*numbers) as signals:
            # Not before: who reads it may send a signal.
            self._failed(failure)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_by_signal, signals, nursery.cancel_scope)
                nursery.start_soon(self.watch, self._folders, self._on_change)
                if has_host:
                    nursery.start_soon(end_with_host, sys.stdin.fileno(), nursery.cancel_scope)
                while server is None:
                    await self._due.wait()
                    self._due = trio.Event()
                    server = self._attempt()
                nursery.cancel_scope.cancel()
        return server

    def _attempt(self) -> Server | None:
        """Import the file again; None if that fails."""
        self.modules.take_out()
        try:
            with broken_off_by_signals():
                server = self.load()
        except CommandError as error:
            self._failed(error)
        except BrokenOff:
            pass  # `_end_by_signal` gets the signal, and cancels the wait.
        else:
            self.tell(f"loaded {self.name}", "green")
            return server
        return None

    def _failed(self, error: CommandError) -> None:
        forget_lines()
        self.modules.settle()
        self._seen = importable(self._folders())
        lines = described(error, self.modules, debug=self.debug)
        self.tell("\n".join([f"{self.name} cannot be loaded; waiting for a change", *lines]), "red")

    def _own_folders(self) -> set[Path]:
        folder = self.source.resolve().parent if isinstance(self.source, Path) else Path.cwd()
        return {folder, *self.modules.folders()}

    def _folders(self) -> Collection[Path]:
        return self._own_folders() | self.restarts.folders()

    def _on_change(self, touched: Collection[Path]) -> None:
        # Also what was not notified of: the watch begins after the first attempt.
        candidates = {*touched, *importable(self._own_folders())}
        helps = any(may_help(path, self.restarts, self._seen) for path in candidates)
        if helps or self.modules.changed(touched):
            self._due.set()

    async def _end_by_signal(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        self.signal = await anext(signals)
        scope.cancel()


def is_missing(error: CommandError, source: Path | str) -> bool:
    """Return whether the file or the module that was named, or a package that it is in, does not exist."""
    cause = error.__cause__
    if isinstance(source, Path):
        return not source.exists()
    return isinstance(cause, ModuleNotFoundError) and f"{source}.".startswith(f"{cause.name}.")


def may_hang_up(descriptor: int) -> bool:
    """Return whether the end of what leads here can be noticed without reading it."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def end_with_host(descriptor: int, scope: trio.CancelScope) -> None:
    """Cancel a scope when the other end has been closed. What it has sent stays to be read."""
    poll = select.poll()
    poll.register(descriptor, HUNG_UP)
    while not poll.poll(0):  # noqa: ASYNC110  to wait for it in Trio would return for what it has sent
        await trio.sleep(STDIN_SECONDS)
    scope.cancel()
