"""The parent of the workers of `trio-mcp serve --workers`.

It opens the sockets, starts the workers, and serves nothing itself. A worker is today's command in a separate process: it listens
on the sockets as on those of systemd, and says as to systemd when it is ready and that its event loop turns.

    event                                       the parent
    a worker ends                               starts another one, after a delay that grows with each failure
    the first one ends before it is ready,      ends with its exit status; the worker has said why
    `ATTEMPTS` times
    a worker is not heard of for TURN_SECONDS   kills it
    SIGHUP                                      replaces one after the other: the new one is ready before the old one is to end
    SIGHUP meanwhile                            does so once more, and ends a new one that is not ready
    SIGTERM, SIGINT                             passes the signal on, and ends when all have ended
    it is killed                                the workers notice the end of a pipe, and end as after SIGTERM; the last
                                                one removes the folder
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Final, cast

import trio

from ..base.backoff import STABLE_AFTER, Backoff
from ..base.service_notices import notify
from ..base.systems import needs_posix
from ..session.options import Workplace
from ..session.transport import ListeningTransport, find_transport
from .command import CommandError, Status
from .worker import VARIABLE, WorkerFacts
from .worker_folder import worker_folder

logger = logging.getLogger("trio_mcp.workers")

MOST_WORKERS: Final = 64
ATTEMPTS: Final = 4
"""How often the first worker may end before it is ready."""
TURN_SECONDS: Final = 10.0
"""Seconds without a turn of its event loop after which a worker is killed."""
SURPLUS_SECONDS: Final = 60.0
"""How much longer than --drain a worker may take to end."""
GIVE_UP_SECONDS: Final = 5.0
"""How long a worker that does not serve yet may take to end."""
BACKOFF: Final = Backoff(first=0.1, longest=10.0, jitter=0.2)
FREE_FD: Final = 64
"""No descriptor that a program gets when it starts is as high."""
READY: Final = b"READY=1"
STOPPING: Final = b"STOPPING=1"


if sys.platform == "win32":
    END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
else:
    END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OWN: Final = ("WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
"""Variables for the parent alone."""


@dataclass(slots=True, eq=False)
class Worker:
    """One process.

    Attributes:
        notices: from the worker.
        ready: set when it serves.
        ended: set when the process has ended.
        is_stopping: it is to end, or has said that it does.
    """

    process: trio.Process
    notices: trio.socket.SocketType
    began: float = field(default_factory=trio.current_time)
    ready: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    is_stopping: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def status(self) -> int:
        """The exit status, or 128 and the number of the signal that has ended it."""
        code = self.process.returncode or 0
        return code if code >= 0 else 128 - code

    async def watch(self) -> None:
        """Follow the process to its end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            await self.process.wait()
            nursery.cancel_scope.cancel()
        self.notices.close()
        self.ended.set()

    async def _follow(self) -> None:
        # Until it is ready it may take its time: it loads the file.
        limit = trio.CancelScope()
        with limit:
            while not self.is_stopping:
                notice = await self.notices.recv(4096)
                if notice == READY:
                    self.ready.set()
                if notice == STOPPING:
                    self.is_stopping = True
                if self.ready.is_set():
                    limit.deadline = trio.current_time() + TURN_SECONDS
            return
        logger.error("worker %d is killed: its event loop has not turned for %g s", self.pid, TURN_SECONDS)
        self.process.kill()

    def end(self, number: int) -> None:
        """Ask it to end."""
        self.is_stopping = True
        # `send_signal` of an ended process does nothing, also before this program has noticed its end.
        self.process.send_signal(signal.Signals(number))

    async def ready_or_ended(self) -> bool:
        """Wait until it serves, or has ended; return whether it serves."""
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, self.ready)
            nursery.start_soon(wait, self.ended)
        return not self.ended.is_set()


class Workers:
    """The workers of one command.

    Args:
        words: the command line, without the name of the program.
        many: how many there are.
        sockets: they listen.
        folder: a private one.
        drain: see the option.
    """

    def __init__(
        self,
        words: Sequence[str],
        many: int,
        sockets: Sequence[socket],
        folder: Path,
        drain: float,
    ) -> None:
        self._argv = [sys.executable, "-P", "-m", "trio_mcp.cli.worker", *words]
        self._folder = folder
        self._longest_end = drain + SURPLUS_SECONDS
        self._places: list[Worker] = []
        self._locks = [trio.Lock() for _ in range(many)]
        """Of a place: held while another worker is put there."""
        self._running: set[Worker] = set()
        """Also those that are to end."""
        self._started = 0
        self._is_replacing = False
        self._replaces_again = False
        """The file may have changed since workers began to be replaced."""
        self._successor: Worker | None = None
        """A worker that is to replace another one, and does not serve yet."""
        self._end = trio.Event()
        self._status = 0
        # Theirs alone: the other end is closed when this process ends, whatever ends it.
        alive, self._alive = os.pipe()
        self._passed = [passed_on(each) for each in (*(s.fileno() for s in sockets), alive)]
        os.close(alive)
        self._variables = {**inherited_variables(), "WATCHDOG_USEC": str(int(TURN_SECONDS * 1e6))}

    async def run(self, signals: AsyncIterator[int]) -> int:
        """Serve until a signal comes, and return the exit status: 0, or that of a worker that did not start or not end well."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_signals, signals, nursery)
            if await self._start_first(nursery):
                await self._start_others(nursery)
            elif not self._end.is_set():
                # Else the task of the signals waits until all have ended.
                nursery.cancel_scope.cancel()
        return self._status

    async def _start_others(self, nursery: trio.Nursery) -> None:
        """Start the workers beside the first, and keep all of them; return when they serve."""
        for _ in self._locks[1:]:
            self._places.append(await self._start(nursery))
        for place in range(len(self._locks)):
            nursery.start_soon(self._keep, place, nursery)
        for worker in self._places:
            await worker.ready_or_ended()
        notify("READY=1")
        logger.info("%d workers serve", len(self._places))

    async def _start_first(self, nursery: trio.Nursery) -> bool:
        """Start the first worker alone, as the others would fail as it does; return whether it serves."""
        for attempt in range(ATTEMPTS):
            worker = await self._start(nursery)
            if await worker.ready_or_ended():
                self._places.append(worker)
                return True
            self._status = worker.status
            # A command line that is wrong stays so.
            if self._end.is_set() or worker.status == Status.USAGE:
                return False
            if attempt < ATTEMPTS - 1:
                await trio.sleep(BACKOFF.delay(attempt))
        return False

    async def _start(self, nursery: trio.Nursery) -> Worker:
        """Start a worker, which need not serve yet."""
        if sys.platform == "win32":
            raise NotImplementedError
        self._started += 1
        facts = WorkerFacts(str(self._folder), self._passed[:-1], self._passed[-1], announces=not self._places)
        # A name of its number alone: the path of a socket may be 107 bytes long.
        address = str(self._folder / f"n{self._started}")
        notices = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM)
        try:
            await notices.bind(address)
            process = await trio.lowlevel.open_process(
                self._argv,
                stdin=subprocess.DEVNULL,
                pass_fds=self._passed,
                # Ctrl-C and the end of a terminal are for the parent, which tells the workers.
                process_group=0,
                env={**self._variables, "NOTIFY_SOCKET": address, VARIABLE: json.dumps(facts)},
            )
        except BaseException:
            notices.close()
            raise
        worker = Worker(process, notices)
        self._running.add(worker)
        nursery.start_soon(self._watch, worker)
        if self._end.is_set():
            worker.end(signal.SIGTERM)
        return worker

    async def _watch(self, worker: Worker) -> None:
        await worker.watch()
        self._running.discard(worker)
        if self._end.is_set():
            self._status = max(self._status, worker.status)

    async def _keep(self, place: int, nursery: trio.Nursery) -> None:
        """Put another worker in a place whenever that there has ended."""
        failures = 0
        while not self._end.is_set():
            worker = self._places[place]
            await worker.ended.wait()
            if self._end.is_set() or worker is not self._places[place]:
                continue
            is_stable = worker.ready.is_set() and trio.current_time() - worker.began >= STABLE_AFTER
            failures = 0 if is_stable else failures + 1
            delay = BACKOFF.delay(max(0, failures - 1))
            logger.error(
                "worker %d ended with status %d: another one starts in %.1f s", worker.pid, worker.status, delay
            )
            await trio.sleep(delay)
            async with self._locks[place]:
                if not self._end.is_set() and worker is self._places[place]:
                    self._places[place] = await self._start(nursery)

    async def _follow_signals(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        had_terminal = os.isatty(sys.stderr.fileno())
        async for number in signals:
            # The end of the terminal is an end, as without workers.
            if number not in (signal.SIGTERM, signal.SIGINT) and not (
                had_terminal and not os.isatty(sys.stderr.fileno())
            ):
                nursery.start_soon(self._replace_all, nursery)
                continue
            if not self._end.is_set():
                self._end.set()
                Workplace(self._folder, announces=False).note_ending()
                notify("STOPPING=1")
                nursery.start_soon(self._stop, nursery)
            for worker in self._running:
                worker.end(number)

    async def _stop(self, nursery: trio.Nursery) -> None:
        """Wait until all have ended."""
        with trio.move_on_after(self._longest_end):
            # Also for those that were just being started.
            while self._running:
                await next(iter(self._running)).ended.wait()
        for worker in self._running:
            logger.error("worker %d is killed: it has not ended", worker.pid)
            self._status = Status.BUG
            worker.process.kill()
        nursery.cancel_scope.cancel()

    async def _replace_all(self, nursery: trio.Nursery) -> None:
        """Replace one worker after the other, which is asked to end when its successor serves.

        If they are being replaced already, it is done once more: some may have loaded what the file was before.
        """
        if len(self._places) < len(self._locks):
            logger.warning("SIGHUP: workers are being started already")
            return
        self._replaces_again = True
        if self._is_replacing:
            if self._successor is not None:
                await self._give_up(self._successor)
            return
        self._is_replacing = True
        try:
            while self._replaces_again and not self._end.is_set():
                self._replaces_again = False
                logger.info("SIGHUP: replacing %d workers", len(self._places))
                await self._replace_each(nursery)
        finally:
            self._is_replacing = False

    async def _replace_each(self, nursery: trio.Nursery) -> None:
        for place in range(len(self._places)):
            async with self._locks[place]:
                if self._end.is_set() or self._replaces_again or not await self._replace(place, nursery):
                    return

    async def _replace(self, place: int, nursery: trio.Nursery) -> bool:
        worker = self._successor = await self._start(nursery)
        is_ready = await worker.ready_or_ended()
        self._successor = None
        if not is_ready:
            if not self._replaces_again:
                logger.error("the new worker ended with status %d: the others stay", worker.status)
            return False
        old, self._places[place] = self._places[place], worker
        if not old.ended.is_set():
            old.end(signal.SIGTERM)
        # One at a time: the calls of this one must not start again together with those of the next.
        with trio.move_on_after(self._longest_end):
            await old.ended.wait()
        return True

    async def _give_up(self, worker: Worker) -> None:
        """End a worker that does not serve yet: it may never do."""
        worker.end(signal.SIGTERM)
        with trio.move_on_after(GIVE_UP_SECONDS):
            await worker.ended.wait()
        if not worker.ended.is_set():
            worker.process.kill()


def inherited_variables() -> dict[str, str]:
    """Return the variables that workers get from their parent."""
    return {name: value for name, value in os.environ.items() if name not in OWN}


def check_many(many: int) -> None:
    """Log a warning for more workers than processors. Raises `CommandError` where there are none."""
    if sys.platform == "win32":
        raise CommandError(needs_posix("--workers"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if many > cores:
        logger.warning("%d workers on %d processors: more workers than processors serve no more requests", many, cores)


def serve_with_workers(words: Sequence[str], many: int, host: str, port: int, drain: float) -> int:
    """Serve as the command line says, in several processes; return the exit status.

    Raises:
        CannotListen: see `ListeningTransport`.
        CommandError: there are no workers on this system, or no place for their folder.
    """
    check_many(many)
    with worker_folder() as folder:
        return trio.run(serve_in, folder, words, many, host, port, drain)


def passed_on(descriptor: int) -> int:
    """Return a copy of a descriptor, for a program that is started, with a number that it does not use itself."""
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl  # noqa: PLC0415  POSIX only

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FREE_FD)


async def serve_in(folder: Path, words: Sequence[str], many: int, host: str, port: int, drain: float) -> int:
    numbers = [each for each in END_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*numbers) as signals:
        sockets = await cast("ListeningTransport", find_transport("http")).listen(host, port)
        workers = Workers(words, many, sockets, folder, drain)
        for sock in sockets:
            sock.close()
        return await workers.run(signals)
