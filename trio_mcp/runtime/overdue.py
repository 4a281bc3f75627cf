"""Actors that are to end, and when it is too late for that.

A cancel asks; a body may shield itself from it, or swallow it, for ever. So each actor that was cancelled, or has a deadline,
has a time at which it is *overdue*: the cancel, or the deadline, and a grace. One task, started with the first such time, waits
for the earliest of all. An actor without a deadline that nobody cancels is never in here.

Entries hold names, not actors, so that what has ended is not kept alive by a time that has not come yet. An entry whose time
is no longer its actor's is stale; stale ones are thrown out as soon as they are the most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import islice
from traceback import StackSummary

import trio

from .actor import Actor

__all__ = ["MAX_STACKS", "Overdue", "stacks"]

MAX_STACKS = 8
"""Tasks of a stuck actor whose stacks are shown."""


class Overdue:
    """The times of a supervisor's actors, and the task that waits for them.

    Args:
        actors: those that have not ended, by name.
        on_overdue: called with an actor whose time has come. The actor's own time is `inf` again by then.
    """

    def __init__(self, actors: Mapping[str, Actor], on_overdue: Callable[[Actor], None]) -> None:
        self._actors = actors
        self._on_overdue = on_overdue
        self._entries: list[tuple[float, str]] = []
        self._stale = 0
        self._scope = trio.CancelScope(shield=True)
        self._stopped = False

    def expect(self, actor: Actor, when: float) -> None:
        """From now on the actor is overdue at `when`, on Trio's clock (seconds), and at no other time; `inf` for never."""
        if actor.overdue_at == when:
            return
        if actor.overdue_at != math.inf:
            self._stale += 1
        actor.overdue_at = when
        if when != math.inf:
            heappush(self._entries, (when, actor.name))
        if self._stale * 2 > len(self._entries):
            self._throw_out()
        self._scope.deadline = self._entries[0][0] if self._entries else math.inf

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
        while self._entries and self._entries[0][0] <= now:
            when, name = heappop(self._entries)
            actor = self._actors.get(name)
            if actor is None or actor.overdue_at != when:
                self._stale -= 1
                continue
            actor.overdue_at = math.inf
            self._on_overdue(actor)
        self._scope.deadline = self._entries[0][0] if self._entries else math.inf

    def _throw_out(self) -> None:
        self._entries = [entry for entry in self._entries if self._is_current(*entry)]
        heapify(self._entries)
        self._stale = 0

    def _is_current(self, when: float, name: str) -> bool:
        actor = self._actors.get(name)
        return actor is not None and actor.overdue_at == when

    def __len__(self) -> int:
        return len(self._entries) - self._stale

    def __repr__(self) -> str:
        return f"<Overdue expected={len(self)} stale={self._stale}>"


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
