"""Branches: child lanes of an actor, each in a scope of its own, joined before their parent goes on.

    async with Branches(lane) as branches:
        first = branches.start(search, "flights")
        second = branches.start(search, "hotels")
    return first.value, second.value

A branch cannot outlive the `async with` block. The first branch that fails cancels its siblings (their `cancel_reason` is the
actor's if the whole actor is cancelled, otherwise they are simply siblings of a failure), and the errors come out as an
exception group, as from any nursery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

import trio
from outcome import Outcome, Value

from ..errors import LimitExceeded
from .actor import Lane

T = TypeVar("T")

__all__ = ["MAX_BRANCHES", "MAX_DEPTH", "Branch", "Branches", "run_branch"]

MAX_BRANCHES = 100_000
"""Branches of one actor that may be running at once."""

MAX_DEPTH = 32
"""How deep branches may nest."""


class Branch(Generic[T]):
    """A handle on one branch: `await branch.result()` inside the block, `branch.value` after it."""

    __slots__ = ("_group", "_joiners", "_outcome", "lane")

    def __init__(self, group: Branches, lane: Lane) -> None:
        self._group = group
        self.lane = lane
        self._outcome: Outcome[T] | None = None
        self._joiners: list[tuple[Lane, trio.Event]] = []

    async def result(self) -> T:
        """Wait for the branch to end and return its value. A cancel while waiting leaves the branch running."""
        if self._outcome is None:
            joiner = self._group.lane
            joiner.begin_join()
            entry = (joiner, trio.Event())
            self._joiners.append(entry)
            try:
                await entry[1].wait()
            finally:
                if entry in self._joiners:
                    self._joiners.remove(entry)
                    joiner.end_join()
        else:
            await trio.lowlevel.checkpoint()
        return self.value

    @property
    def value(self) -> T:
        """What the branch returned.

        Raises:
            RuntimeError: it has not ended, or ended with an error.
        """
        if not isinstance(self._outcome, Value):
            raise RuntimeError(f"{self!r} has no value")
        return cast("T", self._outcome.value)

    def end(self, outcome: Outcome[T] | None) -> None:
        """Called once when the branch is over; passes its busyness to whoever joined it alone."""
        self._outcome = outcome
        for joiner, event in self._joiners:
            joiner.end_join()
            event.set()
        self._joiners.clear()

    def __repr__(self) -> str:
        state = "running" if self._outcome is None else "ended"
        return f"<Branch {self.lane.path} {state}>"


class Branches:
    """A group of branches of one lane; an async context manager that ends when all of them have."""

    __slots__ = ("_nursery", "_opened", "_running", "_waiting", "lane")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._opened = trio.open_nursery()
        self._nursery: trio.Nursery | None = None
        self._running = 0
        self._waiting = False

    async def __aenter__(self) -> Self:
        self._nursery = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._running:
            self._waiting = True
            self.lane.begin_join()
        try:
            return await self._opened.__aexit__(kind, error, traceback)  # noqa: ASYNC102  a nursery's exit, not clean-up
        finally:
            self._nursery = None

    def start(self, fn: Callable[[Lane], Awaitable[T]]) -> Branch[T]:
        """Start `fn(child_lane)` as a branch at once.

        Raises:
            LimitExceeded: the actor has too many branches, or they nest too deep.
            RuntimeError: outside the `async with` block.
        """
        if self._nursery is None:
            raise RuntimeError("start branches inside `async with`")
        branch: Branch[T] = Branch(self, new_lane(self.lane))
        self._running += 1
        self.lane.actor.branches += 1
        self.lane.actor.lane_busy()  # before its task first runs
        self._nursery.start_soon(self._run, branch, fn)
        return branch

    def cancel(self) -> None:
        """Cancel every branch of the group."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _run(self, branch: Branch[T], fn: Callable[[Lane], Awaitable[T]]) -> None:
        outcome: Outcome[T] | None = None
        try:
            outcome = Value(await fn(branch.lane))
        finally:
            self._running -= 1
            branch.end(outcome)
            if self._waiting and not self._running:
                self._waiting = False
                self.lane.end_join()
            self.lane.actor.branches -= 1
            self.lane.actor.lane_idle()

    def __repr__(self) -> str:
        return f"<Branches of {self.lane!r} running={self._running}>"


async def run_branch(lane: Lane, fn: Callable[[Lane], Awaitable[T]]) -> T:
    """Run one branch and return its value; its exception comes out bare. It runs in the caller's task."""
    child = new_lane(lane)
    actor = lane.actor
    actor.branches += 1
    actor.lane_busy()
    lane.begin_join()
    try:
        return await fn(child)
    finally:
        lane.end_join()
        actor.branches -= 1
        actor.lane_idle()


def new_lane(parent: Lane) -> Lane:
    """A lane for the parent's next branch, within the limits."""
    if parent.actor.branches >= MAX_BRANCHES:
        raise LimitExceeded(f"this call already runs {MAX_BRANCHES} branches, which is the limit")
    path = parent.next_path()
    if path.count("/") > MAX_DEPTH:
        raise LimitExceeded(f"branches may nest {MAX_DEPTH} deep; this one would be deeper")
    return Lane(parent.actor, path)
