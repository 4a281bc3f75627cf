"""One process after the other of the machine of tasks: a store that dies with it, and the clocks that it goes by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import trio
from crashing_store import Change, Disk, opened
from late_store import NEVER, TIMEOUT, LateStore
from talk import Talk

from trio_mcp.protocol.sealing.request_state import Sealer
from trio_mcp.session import KeyRing, MemoryBudget, Service
from trio_mcp.session.calls import services
from trio_mcp.session.recovery import key_store
from trio_mcp.session.recovery.key_store import KeyStore
from trio_mcp.session.tasks.record import TaskRecord
from trio_mcp.stores import Record, adapters
from trio_mcp.stores.adapters import StoredJournals

WALL = 1_800_000_000.0
KEYS = KeyRing.random()


def opened_task(record: Record) -> TaskRecord:
    """Return the record of a task as a disk has it."""
    return TaskRecord.decode(opened(record, KEYS))


class WallClock:
    """The clock of the machine, in Unix seconds: it goes with Trio's, and can be set."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        return WALL + trio.current_time() + self.offset

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let everything that asks for the time ask this clock."""
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(time, "time", self.now))
            # Those have taken `time.time` when they were defined.
            stack.enter_context(mock.patch.object(key_store, "KeyStore", partial(KeyStore, _clock=self.now)))
            stack.enter_context(mock.patch.object(services, "Sealer", partial(Sealer, clock=self.now)))
            stack.enter_context(mock.patch.object(adapters, "StoredJournals", partial(StoredJournals, clock=self.now)))
            yield


class MortalStore(LateStore):
    """Ends its process at one of its next writes, or delays some of them, on request.

    It ends it right before, or right after the write is committed. What the process has given up may be made after its end.

    Args:
        on_crash: called at that moment.
        others: all stores on the disk, also of processes that have ended: their late writes may come now.
        lateness: how late each of the next writes is, the next one last; the process that comes after this one goes on with it.
    """

    def __init__(
        self, disk: Disk, on_crash: Callable[[], None], others: Sequence[MortalStore], lateness: list[float]
    ) -> None:
        super().__init__(disk, self._next_lateness, any_order_of=("record",))
        self._on_crash = on_crash
        self._others = others
        self._left = 0
        self._after = False
        self._next = lateness
        self._busy_until = -NEVER
        self.on_write = self._count

    def be_late(self, writes: int, by: float) -> None:
        """Let that number of the next writes time out, to be made after that time; 0 for none."""
        self._next[:] = [by] * writes

    @property
    def is_waiting(self) -> bool:
        """Whether a write is on its way that will time out."""
        return trio.current_time() <= self._busy_until

    def next_time(self) -> float:
        """Return when a write that waits times out, or a late one is made next."""
        times = [write.due for write in self.late]
        if self.is_waiting:
            times.append(self._busy_until)
        return min(times, default=NEVER)

    def make_due(self) -> None:
        for store in self._others:
            LateStore.make_due(store)
        super().make_due()

    def _next_lateness(self, _changes: Sequence[Change]) -> float | None:
        if not self._next:
            return None
        self._busy_until = trio.current_time() + TIMEOUT
        return self._next.pop()

    def arm(self, writes: int, *, after: bool) -> None:
        """End the process at the write with this number from now on; 0 for none."""
        self._left, self._after = writes, after

    def crash(self) -> None:
        if not self.has_crashed:
            super().crash()
            self._on_crash()

    async def write(self, changes: Sequence[Change]) -> None:
        await super().write(changes)
        if self._left < 0:
            self.crash()
            await trio.sleep_forever()

    def _count(self, _changes: Sequence[Change]) -> None:
        if self._left == 1:
            if self._after:
                self._left = -1
            else:
                self.crash()
        elif self._left > 1:
            self._left -= 1


@dataclass(eq=False)
class Process:
    """One life of the server.

    Attributes:
        talks: its connections, by era and caller.
    """

    service: Service
    store: MortalStore
    budget: MemoryBudget
    stop: trio.Event = field(default_factory=trio.Event)
    stopped: trio.Event = field(default_factory=trio.Event)
    talks: dict[tuple[str, int], Talk] = field(default_factory=dict)
