"""The parent of `trio-mcp dev`: it keeps the sockets, and has the newest code that can be served be served by a child.

    event                                  the parent
    a file of the project differs from     has a child load the files as they are now
    what the newest child has read
    ... while a child loads                gives that one up, and begins with another one
    the child serves                       has the one before end when its calls have ended, and notify of changed lists
    the child cannot serve                 shows why; the one before goes on. After that it also begins with another one when a
                                           module appears that may have been missing
    the child that serves has ended        starts another one, after a delay that grows with each failure
    a signal                               passes it on, and ends when all have ended
    it is killed                           the children notice the end of their connection, and end as after SIGTERM

One child more waits, with the modules of this package loaded, so that the next change takes as long as the file itself. Children
get the terminal: `print` and `breakpoint()` work in them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import trio

from ...base.backoff import STABLE_AFTER, Backoff
from ...session.options import Workplace
from ..command import CommandError, Status
from ..worker import VARIABLE, WorkerFacts
from ..workers import SURPLUS_SECONDS, inherited_variables, passed_on
from .child import HAND_OVER_SECONDS
from .child_process import ENDING_SECONDS, Child, first_of, terminal_or_nothing
from .control import Begin, Failed, Read, Replaced, Serving, changed_lists, new_declarations
from .file_watch import site_folders, watch
from .sources import IMPORTABLE, SourceFiles, Stamp, importable, stamp_of

logger = logging.getLogger("trio_mcp.cli")

GONE_SECONDS: Final = 0.5
"""How long a file may be gone before that counts: editors replace a file in several steps."""
GONE_STEP: Final = 0.05
GIVE_UP_SECONDS: Final = 5.0
"""How long a child that is given up may take to close what it has opened."""
END_SECONDS: Final = 10.0
"""How much longer than --drain a child may take to end with the command."""
MOST_ENDING: Final = 8
"""Children whose calls go on; the oldest is cut for one more."""
BACKOFF: Final = Backoff(first=0.1, longest=10.0, jitter=0.2)

PROGRAM: Final = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "from trio_mcp.cli.dev.child import run\nraise SystemExit(run())"
)
"""What a child runs. Until it is needed, Ctrl-C at the terminal ends it without a word."""

Tell: TypeAlias = Callable[[str, str], None]
"""Shows lines to the user, in a colour."""
Watch: TypeAlias = Callable[[Callable[[], Collection[Path]], Callable[[Collection[Path]], None]], Awaitable[None]]


class DevParent:
    """The children of one command.

    Args:
        words: the command line, without the name of the program.
        name: of the file or module, for the user.
        source: the file or the module.
        sockets: they listen.
        folder: a private one.
        drain: see the option.
        tell: shows lines to the user.
        path: where the server is that this command passes on to a host on stdio; None if clients reach the sockets.
        waits: whether to wait for a change if the file cannot be loaded at the start.
        on_serving: called when the first child serves.
        watch: notices changes; see `file_watch.watch`.

    Attributes:
        number: the signal that ends the command; None before.
    """

    def __init__(
        self,
        words: Sequence[str],
        name: str,
        source: Path | str,
        sockets: Sequence[socket.socket],
        folder: Path,
        drain: float,
        tell: Tell,
        *,
        path: str | None = None,
        waits: bool = True,
        on_serving: Callable[[Serving], None] = lambda _serving: None,
        watch: Watch = watch,
    ) -> None:
        self._argv = [sys.executable, "-P", "-c", PROGRAM, *words]
        self._name = name
        self._source = source
        self._folder = folder
        self._drain = drain
        self._tell = tell
        self._path = path
        self._waits = waits
        self._on_serving = on_serving
        self._watch = watch
        self._variables = inherited_variables()
        self._stdin = None if path is None else terminal_or_nothing()
        self._passed = [passed_on(each.fileno()) for each in sockets]
        self.sources = SourceFiles()
        self._site_folders = site_folders()
        self._running: dict[Child, None] = {}
        """All that have not ended."""
        self._ending: dict[Child, None] = {}
        """Those that were replaced."""
        self._spare: Child | None = None
        self._newest: Child | None = None
        """The one that loads the files, or has loaded them last."""
        self._serving: Child | None = None
        self._has_served = False
        self._must_authenticate = False
        self._due = trio.Event()
        self._touched: set[Path] = set()
        self._is_waiting_for_help = False
        self._seen: dict[Path, Stamp | None] = {}
        """What else could be imported when the last attempt failed."""
        self.number: int | None = None
        self._work = trio.CancelScope()
        self._failure: Failed | None = None

    async def run(self, signals: AsyncIterator[int]) -> int:
        """Serve until a signal comes, and return the exit status.

        Raises:
            CommandError: there is no such file or server, or its first lifespan failed.
        """
        async with trio.open_nursery() as self._nursery:
            with self._work:
                self._nursery.start_soon(self._follow_signals, signals)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, self._folders, self._on_change)
                    await self._keep()
                    nursery.cancel_scope.cancel()
            await self._end()
            self._nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise CommandError(self._failure.text, Status.UNREACHABLE)
        return Status.OK

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End all children, and then `run`."""
        self.number = self.number or number
        self._work.cancel("the command is to end")

    async def _follow_signals(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            self.stop(number)
            for child in self._running:
                # Not SIGINT: at a terminal they have that already, and `pdb` takes it for a wish to stop once more.
                child.end(signal.SIGTERM)

    async def _end(self) -> None:
        """Let all children end, and kill those that do not."""
        Workplace(self._folder, announces=False).note_ending()
        for child in self._running:
            child.end(signal.SIGTERM)
        with trio.move_on_after(self._drain + END_SECONDS):
            for child in [*self._running]:
                await child.ended.wait()

    # children

    async def _start(self) -> Child:
        """Start a child, which waits until it is needed."""
        if sys.platform == "win32":
            raise NotImplementedError
        ours, theirs = socket.socketpair()
        given = passed_on(theirs.fileno())
        theirs.close()
        facts = WorkerFacts(str(self._folder), self._passed, given, announces=False)
        try:
            process = await trio.lowlevel.open_process(
                self._argv,
                stdin=self._stdin,
                # The host of a server on stdio reads only what is of the protocol.
                stdout=None if self._path is None else sys.stderr.fileno(),
                pass_fds=[*self._passed, given],
                env={**self._variables, VARIABLE: json.dumps(facts)},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(given)
        child = Child(process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)), self._on_read)
        self._running[child] = None
        self._nursery.start_soon(self._follow, child)
        return child

    async def _follow(self, child: Child) -> None:
        try:
            await child.follow()
        finally:
            self._running.pop(child, None)
            self._ending.pop(child, None)

    async def _prepare(self) -> None:
        """Start the child that waits for the next change, if there is none."""
        if self._spare is None or self._spare.ended.is_set():
            self._spare = await self._start()

    async def _next(self) -> Child:
        await self._prepare()
        child, self._spare = self._spare, None
        assert child is not None
        return child

    def _on_read(self, child: Child, read: Read) -> None:
        # One that was replaced may still import late, and has read nothing that is in use.
        if child is self._newest:
            self.sources.note(Path(read.path), read.source)

    # the loop

    async def _keep(self) -> None:
        """Have the newest code be served; returns if the first attempt shows that there is nothing to serve."""
        failures, changed = 0, list[Path]()
        while True:
            child = await self._attempt(changed)
            if child is not None and child.ready.is_set():
                await first_of(child.ended, self._due)
                failures = await self._recover(child, failures)
            elif child is not None and self._failure is None:
                await self._wait_for_help()
            if self._failure is not None:
                return
            self._due = trio.Event()
            await self._wait_there()
            touched, self._touched = self._touched, set()
            changed = self.sources.changed(touched)

    async def _wait_for_help(self) -> None:
        """Wait for a change after which it may be possible to serve the files."""
        self._is_waiting_for_help = True
        old = self._serving
        if old is not None:
            await first_of(self._due, old.ended)
            if old.ended.is_set():
                self._serving = None
                self._tell(f"the old code ended with status {old.status}; waiting for a change", "red")
        await self._due.wait()
        self._is_waiting_for_help = False

    async def _recover(self, child: Child, failures: int) -> int:
        """If the child that served has ended, wait before another one is started; return how often in a row that was so."""
        if not child.ended.is_set() or self._due.is_set():
            return 0
        is_stable = trio.current_time() - child.began >= STABLE_AFTER
        failures = 1 if is_stable else failures + 1
        delay = BACKOFF.delay(failures - 1)
        self._serving = None
        self._tell(f"the server ended with status {child.status}: it is started again in {delay:.1f} s", "red")
        with trio.move_on_after(delay):
            await self._due.wait()
        return failures

    async def _attempt(self, changed: Sequence[Path]) -> Child | None:
        """Have a child load the files, and serve if it can; return it, or None if the files have changed again before."""
        started = time.monotonic()
        child = self._newest = await self._next()
        self.sources.begin()
        child.began = trio.current_time()
        begin = Begin(announces=not self._has_served, must_authenticate=self._must_authenticate, path=self._path)
        await child.send(begin)
        await first_of(child.ready, child.ended, self._due)
        is_given_up = not child.ready.is_set() and not child.ended.is_set()
        self.sources.settle()
        if is_given_up:
            self._nursery.start_soon(self._give_up, child)
            return None
        what = shown(changed) or self._name
        if child.ready.is_set():
            await self._succeeded(child, what, time.monotonic() - started)
        else:
            self._failed(child, what)
        self._nursery.start_soon(self._prepare)
        return child

    async def _give_up(self, child: Child) -> None:
        child.end(signal.SIGTERM)
        with trio.move_on_after(GIVE_UP_SECONDS):
            await child.ended.wait()
        child.process.kill()

    async def _succeeded(self, child: Child, what: str, seconds: float) -> None:
        before, self._serving = self._serving, child
        has_served, self._has_served = self._has_served, True
        self.sources.forget_unread()
        assert child.loaded is not None
        assert child.serving is not None
        self._must_authenticate |= child.loaded.authenticates
        if not has_served:
            if self._seen:
                self._tell(f"loaded {self._name}", "green")
            self._on_serving(child.serving)
        if before is None or before.loaded is None:
            return
        lists = changed_lists(before.loaded, child.loaded)
        await self._replace(before, lists)
        calls = before.calls
        still = f"; {calls} {'call goes' if calls == 1 else 'calls go'} on with the old code" if calls else ""
        named = f"{' and '.join(lists)} changed" if lists else "no list changed"
        self._tell(f"reloaded {what} in {seconds * 1000:.0f} ms: {named}{still}", "green")
        declared = new_declarations(before.loaded.declared, child.loaded.declared)
        if declared:
            self._tell(
                "clients of the legacy era that are connected learn of this when they connect again: "
                + ", ".join(declared),
                "yellow",
            )

    async def _replace(self, child: Child, lists: list[str]) -> None:
        """Have a child end when its calls have ended; it says how many there are."""
        if child.ended.is_set():
            return
        self._ending[child] = None
        if len(self._ending) > MOST_ENDING:
            next(iter(self._ending)).end(signal.SIGINT)
        await child.send(Replaced(lists))
        with trio.move_on_after(ENDING_SECONDS):
            await first_of(child.is_ending, child.ended)
        self._nursery.start_soon(self._end_in_time, child)

    async def _end_in_time(self, child: Child) -> None:
        if not child.is_ending.is_set():
            # Its event loop does not turn.
            child.end(signal.SIGTERM)
        with trio.move_on_after(HAND_OVER_SECONDS + self._drain + SURPLUS_SECONDS):
            await child.ended.wait()
        child.process.kill()

    def _failed(self, child: Child, what: str) -> None:
        failure = child.failure or Failed(
            f"{self._name}: the process that loaded it ended with status {child.status}",
            [f"  the process that loaded it ended with status {child.status}"],
            is_final=False,
        )
        if (failure.is_final or not self._waits) and not self._has_served:
            self._failure = failure
            return
        self._seen = importable(self._folders())
        if self._serving is None:
            first = f"{self._name} cannot be loaded; waiting for a change"
        else:
            first = f"{what} was not reloaded; the old code stays"
        self._tell("\n".join([first, *failure.lines]), "red")

    # the files

    def _own_folders(self) -> set[Path]:
        folder = self._source.resolve().parent if isinstance(self._source, Path) else Path.cwd()
        return {folder, *self.sources.folders()}

    def _folders(self) -> Collection[Path]:
        return self._own_folders() | self._site_folders

    def _on_change(self, touched: Collection[Path]) -> None:
        self._touched.update(touched)
        if self._spare is not None and any(path.parent in self._site_folders for path in touched):
            # It may have loaded what was installed before.
            self._spare.process.kill()
            self._spare = None
        candidates = {*touched, *importable(self._own_folders())} if self._is_waiting_for_help else set[Path]()
        if self.sources.changed(touched) or any(map(self._may_help, candidates)):
            self._due.set()

    def _may_help(self, path: Path) -> bool:
        """Return whether a file is one that the last attempt, which has failed, may have looked for in vain."""
        if path.parent in self._site_folders:
            return True
        # Not what the attempt itself has written: that would lead to the next attempt, and so on.
        return path.suffix in IMPORTABLE and stamp_of(path) not in (None, self._seen.get(path))

    async def _wait_there(self) -> None:
        """Wait for a moment until files are there again that are being replaced."""
        with trio.move_on_after(GONE_SECONDS):
            while any(not path.exists() for path in [*self.sources.files]):  # noqa: ASYNC110
                # The watch does not say when they are all there.
                await trio.sleep(GONE_STEP)


def shown(changed: Sequence[Path]) -> str:
    """Return the names of files for one line."""
    names = [path.name for path in changed[:3]]
    return ", ".join([*names, *([f"{len(changed) - 3} more"] if len(changed) > 3 else [])])
