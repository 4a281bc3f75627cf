"""The processes of a chaos run, and the run itself: operations and faults for a while, then the check of the ledger."""

from __future__ import annotations

import base64
import itertools
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import httpx2
import trio
from serving import IMPORTS

from chaos.faults import harm
from chaos.ledger import Ledger
from chaos.operations import KINDS, End, Operation
from chaos.stores import ChaosStore
from chaos.story import Story, merged

SERVER: Final = Path(__file__).parent / "server.py"
TESTS: Final = Path(__file__).parents[1]
CLIENTS: Final = 5
"""Operations at a time."""

START: Final = 90.0
"""Seconds that a process may take to listen; the machine may be busy."""
DRAIN: Final = 20.0
"""Seconds that a process may take to end after SIGTERM; the writes that wait for the store are among them."""
QUIET: Final = 120.0
"""Seconds in which every operation ends when nothing goes wrong any more."""
WAIT: Final = 20.0
"""Seconds that a client waits for anything."""


class ServerProcess:
    """One of the server processes; the next one that is started in its place has the same port.

    Attributes:
        slow_ends: how often it had to be killed, as it did not end after SIGTERM.
        crashes: the statuses with which it has ended by itself after it had listened.
    """

    def __init__(self, home: Path, port: int, key: str, store: str) -> None:
        self.port = port
        self._home = home
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([IMPORTS["PYTHONPATH"], str(TESTS)]),
            "TRIO_MCP_KEYS": key,
            "TRIO_MCP_STORE": store,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._has_listened = False
        self._lock = trio.Lock()
        self.slow_ends = 0
        self.crashes: list[int] = []
        clock = home / f"clock-{port}"
        clock.write_bytes(struct.pack("d", 0.0))
        with clock.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), 8)

    async def start(self) -> None:
        """Start it if it does not run, and return when it listens."""
        async with self._lock:
            with trio.fail_after(START):
                while self._process is None or not await listens(self.port):
                    # One that cannot open its store, as it is locked or away, ends, and is started again.
                    if self._process is None or self._process.poll() is not None:
                        self._process, self._has_listened = self._started(), False
                    await trio.sleep(0.05)
                self._has_listened = True

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(SERVER), str(self.port), str(self._home)]
        with (self._home / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment, cwd=self._home
            )

    async def stop(self, number: signal.Signals) -> None:
        """Send it a signal, and return when it has ended. A cancel does not interrupt that."""
        with trio.CancelScope(shield=True):
            async with self._lock:
                process, self._process = self._process, None
                if process is None:
                    return
                if process.poll() is not None and self._has_listened:
                    self.crashes.append(process.returncode)
                process.send_signal(number)
                # It may be stopped.
                process.send_signal(signal.SIGCONT)
                with trio.move_on_after(DRAIN):
                    while process.poll() is None:  # noqa: ASYNC110  no event of ours
                        await trio.sleep(0.02)
                if process.poll() is None:
                    self.slow_ends += 1
                    process.kill()
                    process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process for the length of the block."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)

    @contextmanager
    def limited(self, size: int) -> Iterator[None]:
        """Let no file of the process grow beyond this size."""
        process = self._process
        self._limit(process, size)
        try:
            yield
        finally:
            self._limit(process, resource.RLIM_INFINITY)

    def _limit(self, process: subprocess.Popen[bytes] | None, size: int) -> None:
        if process is not None and process.poll() is None:
            try:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            except ProcessLookupError:
                return

    def set_clock(self, seconds: float) -> None:
        """Shift its clock by `seconds`."""
        self._clock[:8] = struct.pack("d", seconds)

    def __str__(self) -> str:
        return f"{self.port}"


async def listens(port: int) -> bool:
    """Return whether somebody listens there."""
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


class BrokenPromises(AssertionError):
    """What a run has found, with the story of each operation whose promise was broken."""


class World:
    """One run.

    Args:
        home: an empty folder.
        seed: what is drawn comes from it.
        store: where the processes keep what outlives them.

    Attributes:
        story: the faults.
        ends: how the operations ended.
        burials: how often a process found that others had taken it for dead.
    """

    def __init__(self, home: Path, seed: int, store: ChaosStore) -> None:
        self.seed, self._home = seed, home
        self.random = Random(seed)
        self.store = store
        self.store_lock, self.burial_lock = trio.Lock(), trio.Lock()
        self.ledger_path = home / "ledger"
        self.ledger = Ledger(self.ledger_path)
        key = base64.urlsafe_b64encode(self.random.randbytes(32)).decode()
        self.processes = [ServerProcess(home, port, key, store.url) for port in free_ports(store.processes)]
        self.operations: list[Operation] = []
        self.story = Story("fault")
        self.begin = time.monotonic()
        self._is_over = False

    async def run(self, seconds: float) -> None:
        """Run operations and faults for so long, then wait until all have ended, and check the ledger.

        Raises:
            BrokenPromises: a promise was broken.
        """
        try:
            async with httpx2.AsyncClient(timeout=httpx2.Timeout(WAIT, connect=2)) as client:
                for process in self.processes:
                    await process.start()
                async with trio.open_nursery() as nursery:
                    patience = trio.CancelScope()
                    nursery.start_soon(self._serve_clients, client, patience)
                    with trio.move_on_after(seconds):
                        await harm(self, Random(self.random.random()))
                    await self._heal()
                    self._is_over = True
                    patience.deadline = trio.current_time() + QUIET
        finally:
            for process in self.processes:
                process.kill()
        self.check()

    async def _serve_clients(self, client: httpx2.AsyncClient, patience: trio.CancelScope) -> None:
        """Let clients do their operations."""
        with patience:
            async with trio.open_nursery() as nursery:
                for number in range(CLIENTS):
                    nursery.start_soon(self._operate, client, number, Random(self.random.random()))

    async def _operate(self, client: httpx2.AsyncClient, number: int, random: Random) -> None:
        """Do one operation after the other, until the faults are over."""
        ports = [process.port for process in self.processes]
        for count in itertools.count(1):
            if self._is_over:
                return
            operation = random.choice(KINDS)(f"{number}.{count}", client, ports, Random(random.random()))
            self.operations.append(operation)
            await operation.run()

    async def _heal(self) -> None:
        """End the faults of the processes. One that runs may stay: it takes over the work of those that have ended."""
        self.story.tell("all is well again")
        for process in self.processes:
            process.set_clock(0.0)
            if self.random.random() < 0.3:
                self.story.tell(f"SIGTERM {process}")
                await process.stop(signal.SIGTERM)
            await process.start()

    def check(self) -> None:
        """Raise `BrokenPromises` unless the ledger has what the clients were promised, and each process has ended in time."""
        broken = [(each, why) for each in self.operations if (why := each.broken_promise(self.ledger.of(each.name)))]
        crashes = [status for process in self.processes for status in process.crashes]
        slow_ends = sum(process.slow_ends for process in self.processes)
        if crashes or slow_ends:
            what = (
                f"processes have ended by themselves: {crashes}, or not within {DRAIN:g} s after SIGTERM: {slow_ends}"
            )
            raise BrokenPromises(f"{what}\n{merged([self.story], self.begin)}")
        if broken:
            raise BrokenPromises("\n\n".join(self._told(operation, why) for operation, why in broken))

    def _told(self, operation: Operation, why: str) -> str:
        """Return the story of an operation, with the faults and its effects."""
        effects = Story("LEDGER")
        for effect in self.ledger.of(operation.name):
            effects.lines.append((effect.at, f"{effect.name} in process {effect.process}"))
        return f"{operation.name}: {why}\n{merged([operation.story, self.story, effects], self.begin)}"

    @property
    def burials(self) -> int:
        return (self._home / "log").read_text(errors="replace").count("this process was taken for dead")

    @property
    def results(self) -> set[type[Operation]]:
        """The kinds of operations of which one at least has had its result."""
        return {type(each) for each in self.operations if each.outcome.end is End.RESULT}

    @property
    def ends(self) -> Counter[str]:
        """How the operations ended, with the reasons of errors."""
        return Counter(f"{each.kind} {each.outcome.end.value} {each.outcome.why}"[:160] for each in self.operations)


def free_ports(number: int) -> list[int]:
    """Return ports without a listener."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
