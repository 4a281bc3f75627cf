"""Actors that are to end, and when it is too late for that.

A cancel asks; a body may shield itself from it, or swallow it, for ever. So each actor that was cancelled, or has a deadline,
has a time at which it is *overdue*: the cancel, or the deadline, and a grace. One task, started with the first such time, waits
for the earliest of all. An actor without a deadline that nobody cancels is never in here.

Entries hold names, not actors, so that what has ended is not kept alive by a time that has not come yet. An entry that is no
longer its actor's is stale, also when its time is the same; stale ones are thrown out as soon as they are the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count, islice
from traceback import StackSummary
from typing import NamedTuple

import trio

from .actor import Actor

MAX_STACKS = 8
"""Tasks of a stuck actor whose stacks are shown."""


class Entry(NamedTuple):
    """A time, on Trio's clock (seconds); its serial number tells it from another at the same time."""

    when: float
    serial: int
    name: str


class Overdue:
    """The times of a supervisor's actors, and the task that waits for them.

    Args:
        actors: those that have not ended, by name.
        on_overdue: called with an actor whose time has come. The actor's own time is `inf` again by then.
    """

    def __init__(self, actors: Mapping[str, Actor], on_overdue: Callable[[Actor], None]) -> None:
        self._actors = actors
        self._on_overdue = on_overdue
        self._entries: list[Entry] = []
        self._current: dict[str, Entry] = {}
        self._serial = count()
        self._scope = trio.CancelScope(shield=True)
        self._stopped = False

    def expect(self, actor: Actor, when: float) -> None:
        """From now on the actor is overdue at `when`, on Trio's clock (seconds), and at no other time; `inf` for never."""
        if actor.overdue_at == when:
            return
        actor.overdue_at = when
        self._current.pop(actor.name, None)
        if when != math.inf:
            entry = self._current[actor.name] = Entry(when, next(self._serial), actor.name)
            heappush(self._entries, entry)
        if len(self) * 2 < len(self._entries):
            self._throw_out()
        self._scope.deadline = self._earliest

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Wait for the times and call `on_overdue`, until `stop`; a cancel from outside does not end it."""
        while not self._stopped:
            with self._scope:
                await trio.sleep_forever()
            if not self._stopped:
                self._renew()

    def stop(self) -> None:
        """No actor is left, and none will come."""
        self._stopped = True
        self._scope.cancel()

    def _renew(self) -> None:
        """The earliest time has come."""
        now = trio.current_time()
        self._scope = trio.CancelScope(shield=True)
        while self._earliest <= now:
            entry = heappop(self._entries)
            if self._is_current(entry):
                del self._current[entry.name]
                actor = self._actors[entry.name]
                actor.overdue_at = math.inf
                self._on_overdue(actor)
        self._scope.deadline = self._earliest

    @property
    def _earliest(self) -> float:
        return self._entries[0].when if self._entries else math.inf

    def _throw_out(self) -> None:
        self._entries = list(self._current.values())
        heapify(self._entries)

    def _is_current(self, entry: Entry) -> bool:
        return self._current.get(entry.name) is entry

    def __len__(self) -> int:
        return len(self._current)

    def __repr__(self) -> str:
        return f"<Overdue expected={len(self)} stale={len(self._entries) - len(self)}>"


def stacks(task: trio.lowlevel.Task) -> str:
    """Where a task and those in its nurseries wait, as tracebacks show it."""
    return "".join(f"task {each.name}:\n{stack(each)}" for each in islice(tasks_of(task), MAX_STACKS))


def stack(task: trio.lowlevel.Task) -> str:
    return "".join(StackSummary.extract(task.iter_await_frames()).format())


def tasks_of(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from tasks_of(child)
