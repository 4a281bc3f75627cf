"""Reloading the code of a server that is served, when its files change."""

# One task, which reloads, and one that watches and wakes it:
#
#   noticed                                            what the reloading task does
#   a file of the project differs from what was read   imports, and starts the lifespan of the new server
#   ... while it imports                               nothing: it looks again when it is done
#   ... while the lifespan starts                      gives that up, and imports again
#   any Python file, after an attempt has failed       tries again: a module that was missing may be there now
#
# The import runs in this task, in the main thread, and nothing else runs meanwhile. Modules may do what only the main thread can,
# no call sees half of the new modules, and requests that come meanwhile are served by the code that is in place afterwards.

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, TypeAlias

import trio

from ...base.groups import first_leaf
from ...server import Server
from ...server.lifespan import LIFESPAN_NOTE
from ...server.replaceable import ReplaceableServer, Replacement
from ..command import CommandError
from .file_watch import Restarts, watch
from .project_modules import ProjectModules, Stamp, forget_lines, stamp_of

GONE_SECONDS: Final = 0.5
"""How long a file may be gone before that counts: editors replace a file in several steps."""
GONE_STEP: Final = 0.05
IMPORTABLE: Final = ("", ".py")
"""How the name of a folder or a file ends that may be a package or a module."""

END_SIGNALS: Final = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__
)

Tell: TypeAlias = Callable[[str, str], None]
"""Shows lines to the user, in a colour."""
Watch: TypeAlias = Callable[[Callable[[], Collection[Path]], Callable[[Collection[Path]], None]], Awaitable[None]]


@dataclass(eq=False)
class Reloader:
    """Keeps a server at the code of its files.

    Args:
        name: of the file or module, for the user.
        server: what is served.
        modules: those of the project.
        restarts: what only a restart applies.
        load: imports the file, and returns its server.
        tell: shows lines to the user.
        debug: show whole tracebacks.
        watch: notices changes; see `file_watch.watch`.
    """

    name: str
    server: ReplaceableServer
    modules: ProjectModules
    restarts: Restarts
    load: Callable[[], Server]
    tell: Tell
    debug: bool = False
    watch: Watch = watch
    _due: trio.Event = field(default_factory=trio.Event, init=False)
    _touched: set[Path] = field(default_factory=set, init=False)
    _starting: trio.CancelScope | None = field(default=None, init=False)
    """Cancels the start of the lifespan of a version that is out of date already."""
    _has_failed: bool = field(default=False, init=False)
    _seen: dict[Path, Stamp | None] = field(default_factory=dict, init=False)
    """What else could be imported when the last attempt failed."""
    _wants_restart: tuple[str, ...] = field(default=(), init=False)
    """What the settings of the newest version need a restart for."""
    _told_restart: tuple[str, ...] = field(default=(), init=False)

    async def run(self) -> None:
        """Watch the files, and reload when they change; until a cancel."""
        await self.server.wait_served()
        self.restarts.note_loaded()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.watch, self._folders, self._on_change)
            while True:
                await self._due.wait()
                self._due = trio.Event()
                await self._wait_there()
                touched, self._touched = self._touched, set()
                changed = self.modules.changed(touched)
                if changed or self._has_failed:
                    await self._reload(changed)

    def _folders(self) -> Collection[Path]:
        return self.modules.folders() | self.restarts.folders()

    def _on_change(self, touched: Collection[Path]) -> None:
        self._touched.update(touched)
        changed = self.modules.changed(touched)
        if changed or (self._has_failed and any(may_help(path, self.restarts, self._seen) for path in touched)):
            self._due.set()
        if changed and self._starting is not None:
            self._starting.cancel("the files have changed again")
        watched = self.restarts.folders()
        if any(path.parent in watched for path in touched):
            self._tell_restarts()

    async def _wait_there(self) -> None:
        """Wait for a moment until files are there again that are being replaced."""
        with trio.move_on_after(GONE_SECONDS):
            while any(not path.exists() for path in [*self.modules.files]):  # noqa: ASYNC110
                # The watch does not say when they are all there.
                await trio.sleep(GONE_STEP)

    async def _reload(self, changed: Sequence[Path]) -> None:
        started = time.monotonic()
        saved = self.modules.take_out()
        done = False
        try:
            replacement = await self._replace(shown(changed) or self.name)
            done = replacement is not None
            if replacement is not None:
                self._succeeded(replacement, changed, time.monotonic() - started)
        finally:
            if not done:
                self.modules.put_back(saved)
            self.modules.settle()
            self._seen = importable(self.modules.folders()) if self._has_failed else {}
            forget_lines()

    async def _replace(self, what: str) -> Replacement | None:
        """Import the file, and serve what it has now; None if the old code stays.

        Args:
            what: the files that have changed, for the user.
        """
        server = self._imported(what)
        if server is None:
            return None
        self._starting = trio.CancelScope()
        with self._starting:
            try:
                return await self.server.replace(server)
            except Exception as error:  # noqa: BLE001  it is shown
                is_over = self.server.service is None or self.server.service.supervisor.draining
                if not is_over:
                    its_own = LIFESPAN_NOTE in getattr(error, "__notes__", ())
                    why = "was not reloaded: its lifespan failed" if its_own else "was not reloaded"
                    self._failed(error, f"{what} {why}")
            finally:
                self._starting = None
        return None

    def _imported(self, what: str) -> Server | None:
        """Import the file, and return its server; None if that fails."""
        try:
            with broken_off_by_signals():
                server = self.load()
        # Whatever the code of the user does while it is imported: the old code must go on. Ctrl-C is not of that code.
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001, ASYNC103  no Cancelled comes from code that is not async
            self._failed(error, f"{what} was not reloaded")
            return None  # noqa: ASYNC104
        if not isinstance(server, Server):
            self._failed(CommandError(f"{self.name} has a {type(server).__name__} now"), f"{what} was not reloaded")
            return None
        return server

    def _succeeded(self, replacement: Replacement, changed: Sequence[Path], seconds: float) -> None:
        self._has_failed = False
        self.modules.forget_unread()
        self.restarts.note_loaded()
        lists = f"{' and '.join(replacement.lists)} changed" if replacement.lists else "no list changed"
        calls = replacement.old_calls
        still = f"; {calls} {'call goes' if calls == 1 else 'calls go'} on with the old code" if calls else ""
        self.tell(f"reloaded {shown(changed) or self.name} in {seconds * 1000:.0f} ms: {lists}{still}", "green")
        if replacement.for_reconnect:
            named = ", ".join(replacement.for_reconnect)
            self.tell(
                f"clients of the legacy era that are connected learn of this when they connect again: {named}", "yellow"
            )
        self._wants_restart = replacement.for_restart
        self._tell_restarts(again=True)

    def _tell_restarts(self, *, again: bool = False) -> None:
        """Name what only a restart applies, if that has changed.

        Args:
            again: also if it was reported before.
        """
        named = (*self._wants_restart, *self.restarts.changed())
        if named and (again or named != self._told_restart):
            self.tell(f"restart to apply: {', '.join(named)}", "yellow")
        self._told_restart = named

    def _failed(self, error: BaseException, what: str) -> None:
        self._has_failed = True
        forget_lines()
        self.tell("\n".join([f"{what}; the old code stays", *described(error, self.modules, debug=self.debug)]), "red")


class BrokenOff(BaseException):
    """A signal asked the process to end while a file was imported."""


@contextmanager
def broken_off_by_signals() -> Generator[None]:
    """Let a signal that asks the process to end break off what runs in the block, which may hang, and be handled as before.

    The event loop does not run meanwhile, so what the handler wakes could not end the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: handler for number in END_SIGNALS if callable(handler := signal.getsignal(number))}
    is_running = True

    def break_off(number: int, frame: FrameType | None) -> None:
        before[signal.Signals(number)](number, frame)
        if is_running:
            raise BrokenOff(f"{signal.Signals(number).name} came while it was imported")

    try:
        for each in before:
            signal.signal(each, break_off)
        yield
    finally:
        is_running = False
        for each, handler in before.items():
            signal.signal(each, handler)


def importable(folders: Collection[Path]) -> dict[Path, Stamp | None]:
    """Return what the system says of each package and module in some folders."""
    entries = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    return {entry: stamp_of(entry) for entry in entries if entry.suffix in IMPORTABLE}


def may_help(path: Path, restarts: Restarts, seen: Mapping[Path, Stamp | None]) -> bool:
    """Return whether a file is one that the last attempt, which has failed, may have looked for in vain.

    Args:
        seen: what could be imported after that attempt.
    """
    if path.parent in restarts.site_folders:
        return True
    # Not what the attempt itself has written: that would lead to the next attempt, and so on.
    return path.suffix in IMPORTABLE and stamp_of(path) not in (None, seen.get(path))


def described(error: BaseException, modules: ProjectModules, *, debug: bool) -> list[str]:
    """Return where in the project an error was raised and what it says, line by line."""
    # What the loading of files says of it is for one line.
    cause = first_leaf(error.__cause__ if isinstance(error, CommandError) and error.__cause__ else error)
    if debug:
        return "".join(traceback.format_exception(cause)).splitlines()
    if isinstance(cause, SyntaxError):
        return [f"  {line}" for line in lines_of(cause)]
    frame = modules.own_files.last_frame(cause)
    where = [] if frame is None else [f"  {frame.filename}, line {frame.lineno}: {frame.line}"]
    said = f"{cause}" if isinstance(cause, CommandError) else f"{type(cause).__name__}: {cause}"
    return [*where, *(f"  {line}" for line in said.splitlines())]


def lines_of(error: SyntaxError) -> list[str]:
    """Return where a syntax error is, the line, and what is wrong with it."""
    where = f"{error.filename}, line {error.lineno}" + (f": {error.text.strip()}" if error.text else "")
    return [where, f"{type(error).__name__}: {error.msg}"]


def shown(changed: Sequence[Path]) -> str:
    """Return the names of files for one line."""
    names = [path.name for path in changed[:3]]
    return ", ".join([*names, *([f"{len(changed) - 3} more"] if len(changed) > 3 else [])])
