"""Branches: child lanes of an actor, each in its own cancel scope, joined before their parent continues.

    async with Branches(lane) as branches:
        first = branches.start(flights)
        second = branches.start(hotels, timeout=5)
    return first.value, second.value

A branch cannot outlive the `async with` block. The first branch that fails cancels its siblings, and the errors are raised as an
exception group, as from any nursery. A branch may have a timeout: when it expires, the branch is cancelled, and after it has
unwound it fails with `BranchLimit`. Any other cancel passes through unchanged.
"""

# Every wait of a lane for branches must be counted exactly once, and end in the step in which the last of them ends (see the
# rules in `actor`). The ways to wait, and who counts them:
#
#   wait                        begin_join               end_join
#   `await branch.result()`     Branch._join             Branch.end, or _join's `finally` if the wait is cancelled
#   the end of the block        Branches.__aexit__       Branches._run of the last branch
#   run_branch, race            as above                 as above; a lone branch runs in the caller's task
#
# Example: a body with two branches a and b, of which a fails while b waits for an answer.
#
#   a raises                    b's wait is cancelled, but its task has not run: for the count it still waits
#   a's `_let_waiters_wake`     two turns of the scheduler: b withdraws its question, and is busy again
#   a ends, b ends              now a is counted off, then b
#
# Without these two turns the count would be 0 after a's end, and b's question would be sent although it is being withdrawn.

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

import trio
from outcome import Outcome, Value

from ..base.groups import without
from ..base.logs import FailureLog, peer_logger
from ..errors import BranchLimit, LocalProtocolError
from .actor import Lane

T = TypeVar("T")
Work = Callable[[Lane], Awaitable[T]]


logger = peer_logger("trio_mcp.call")

failures = FailureLog()
"""Logs what branches raise after they have lost their race: callers can cause it in every service of the process."""

MAX_BRANCHES = 100_000
"""Branches of one actor that may run at the same time."""

MAX_DEPTH = 32
"""How deep branches may nest."""


class Branch(Generic[T]):
    """A handle on one branch: `await branch.result()` inside the block, `branch.value` after it."""

    __slots__ = ("_done", "_ended", "_group", "_joining", "_outcome", "lane")

    def __init__(self, group: Branches, lane: Lane) -> None:
        self._group = group
        self.lane = lane
        self._ended = False
        self._outcome: Outcome[T] | None = None
        self._joining = 0
        """Tasks that wait in `result`."""
        self._done: trio.Event | None = None
        """Made for the first of them: most branches are only joined by the end of the block."""

    async def result(self) -> T:
        """Wait for the branch to end and return its value. A cancel while waiting leaves the branch running.

        If the branch fails, a task that waits for it inside the block is cancelled like everything else there; the block raises
        the error of the branch.
        """
        if self._ended:
            await trio.lowlevel.checkpoint()  # if it has failed, the cancel arrives here
        else:
            await self._join()
        return self.value

    async def _join(self) -> None:
        self._group.lane.begin_join()
        self._joining += 1
        self._done = self._done or trio.Event()
        try:
            await self._done.wait()
        finally:
            # Else `end` has counted it already, in the step in which the branch ended.
            if not self._ended:
                self._joining -= 1
                self._group.lane.end_join()

    @property
    def value(self) -> T:
        """The value that the branch returned.

        Raises:
            RuntimeError: it has not ended, or ended with an error.
        """
        if not isinstance(self._outcome, Value):
            why = "" if self._ended else " yet: `await handle.result()`, or look at it after the block"
            raise RuntimeError(f"{self!r} has no value{why}")
        return cast("T", self._outcome.value)

    def end(self, outcome: Outcome[T] | None) -> None:
        """Set the outcome, once; passes the busyness of the branch to the lane, if it waits for the result."""
        self._ended = True
        self._outcome = outcome
        for _ in range(self._joining):
            self._group.lane.end_join()
        if self._done is not None:
            self._done.set()

    def __repr__(self) -> str:
        state = "running" if not self._ended else "failed" if self._outcome is None else "ended"
        return f"<Branch {self.lane.path} {state}>"


class Branches:
    """A group of branches of one lane; an async context manager that ends when all of them have."""

    __slots__ = ("_nursery", "_opened", "_running", "_waiters_woken", "_waiting", "cancelled", "failed_at", "lane")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.failed_at = math.inf
        """See `Siblings`."""
        self.cancelled = False
        """Whether it was cancelled from within: by `cancel`, or because something in it failed."""
        self._waiters_woken = False
        self._opened: AbstractAsyncContextManager[trio.Nursery, bool | None] = trio.open_nursery()
        self._nursery: trio.Nursery | None = None
        self._running = 0
        self._waiting = False

    async def __aenter__(self) -> Self:
        self._nursery = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if error is not None and is_failure(error):
            self.cancel()
        if self.cancelled:
            await self._let_waiters_wake()  # noqa: ASYNC102  shielded, and two turns of the scheduler at most
        if self._running:
            self._waiting = True
            self.lane.begin_join()
        try:
            return await self._opened.__aexit__(kind, error, traceback)  # noqa: ASYNC102  a nursery's exit, not clean-up
        finally:
            self._nursery = None

    def start(self, fn: Work[T], *, timeout: float = math.inf, max_depth: int = MAX_DEPTH) -> Branch[T]:
        """Start `fn(child_lane)` as a branch.

        Args:
            timeout: seconds from now on.
            max_depth: how deep this branch may be.

        Raises:
            BranchLimit: the actor has too many branches, or they nest too deep; nothing was started.
            RuntimeError: outside the `async with` block.
        """
        if self._nursery is None:
            raise RuntimeError("start branches inside `async with`")
        branch: Branch[T] = Branch(self, new_lane(self.lane, max_depth, self))
        # First, because it raises if the nursery is closed: nothing must have been counted then.
        self._nursery.start_soon(self._run, branch, with_timeout(fn, timeout))
        self._running += 1
        actor = self.lane.actor
        actor.branches += 1
        actor.lane_busy()  # before its task first runs
        actor.enter(branch.lane, None)
        return branch

    def cancel(self) -> None:
        """Cancel every branch of the group, with the reason `SIBLING`."""
        if self._nursery is None or self.cancelled:
            return
        self.cancelled = True
        # If the parent was cancelled before, its reason came first and stands.
        if self.lane.cancellation is None:
            self.failed_at = trio.current_time()
        self._nursery.cancel_scope.cancel()

    async def _run(self, branch: Branch[T], work: Work[T]) -> None:
        outcome: Outcome[T] | None = None
        branch.lane.actor.enter(branch.lane, trio.lowlevel.current_task())
        try:
            value = await work(branch.lane)
            check_awaited(branch.lane)
            outcome = Value(value)
        except BaseException as error:
            if is_failure(error):
                self.cancel()
            raise
        finally:
            if self.cancelled:
                await self._let_waiters_wake()  # noqa: ASYNC102  shielded, and two turns of the scheduler at most
            self._running -= 1
            branch.end(outcome)
            if self._waiting and not self._running:
                self._waiting = False
                self.lane.end_join()
            self.lane.actor.branches -= 1
            self.lane.actor.leave(branch.lane)
            self.lane.actor.lane_idle()

    async def _let_waiters_wake(self) -> None:
        """After a cancel from within, let the cancelled lanes withdraw their questions before this one is counted off."""
        # Trio runs the cancelled tasks and this one in the next turn of its scheduler, in any order. After the turn that follows,
        # all of them have run.
        if not self._waiters_woken:
            self._waiters_woken = True
            for _ in range(2):
                await trio.lowlevel.cancel_shielded_checkpoint()


async def run_branch(lane: Lane, fn: Work[T], *, timeout: float = math.inf, max_depth: int = MAX_DEPTH) -> T:
    """Run one branch in the caller's task and return its value; its exception is not wrapped in a group.

    Raises:
        BranchLimit: the actor has too many branches, or they nest too deep, and nothing was run; or the timeout has expired.
    """
    child = new_lane(lane, max_depth)
    lane.actor.branches += 1
    try:
        return await run_child(lane, child, with_timeout(fn, timeout))
    finally:
        lane.actor.branches -= 1


async def run_child(lane: Lane, child: Lane, fn: Work[T]) -> T:
    """Run `fn(child)` in the caller's task while the parent, `lane`, waits for it, and return its value."""
    lane.actor.lane_busy()
    lane.begin_join()
    lane.actor.enter(child, trio.lowlevel.current_task())
    try:
        value = await fn(child)
        check_awaited(child)
    finally:
        lane.actor.leave(child)
        lane.end_join()
        lane.actor.lane_idle()
    return value


async def race(lane: Lane, *fns: Work[T], max_depth: int = MAX_DEPTH) -> T:
    """Run branches concurrently until the first of them ends, and cancel the others; they have unwound when this returns.

    Returns:
        the value of the first one. If it failed, its error is raised in an exception group.
    """
    won: list[T] = []

    async def run(fn: Work[T], child: Lane) -> None:
        try:
            value = await fn(child)
        except BaseException as error:  # noqa: ASYNC103
            if not won or not isinstance(without(error, trio.Cancelled), Exception):
                raise
            failures.log(logger, "a lost branch", f"the branch {child.path} failed after it had lost its race", error)
        else:
            if not group.cancelled:
                won.append(value)
                group.cancel()
            return  # noqa: ASYNC104
        # It failed after its cancel, and the error was logged. Whatever it raised, it must end as cancelled.
        await trio.lowlevel.checkpoint()

    async with Branches(lane) as group:
        for fn in fns:
            group.start(partial(run, fn), max_depth=max_depth)
    return won[0]


def check_awaited(lane: Lane) -> None:
    """Check the code of a lane that has returned.

    Raises:
        LocalProtocolError: it has dropped a coroutine that it had to await; the message names the first one.
    """
    if lane.unawaited:
        name = lane.unawaited[0]
        raise LocalProtocolError(f"{name}() was not awaited: write `await {name}(...)`")


def is_failure(error: BaseException) -> bool:
    """Return whether an error is more than a cancellation."""
    return without(error, trio.Cancelled) is not None


def with_timeout(fn: Work[T], timeout: float) -> Work[T]:
    """Return `fn` with a limit of `timeout` seconds, which start now and not when its task first runs."""
    return fn if timeout == math.inf else partial(run_within, fn, timeout, trio.current_time() + timeout)


async def run_within(fn: Work[T], timeout: float, deadline: float, lane: Lane) -> T:
    with trio.CancelScope(deadline=deadline) as scope:
        lane.scope = scope
        return await fn(lane)
    # The scope has caught its own expiry. A cancel from outside that came at the same time arrives here, and must win: the branch
    # did not fail then.
    await trio.lowlevel.checkpoint()
    why = f"a branch of this call did not end within {timeout:g} seconds"
    raise BranchLimit(why, kind="time", limit=timeout, used=trio.current_time() - deadline + timeout)


def new_lane(parent: Lane, max_depth: int, siblings: Branches | None = None) -> Lane:
    """Return a lane for the parent's next branch, or raise `BranchLimit`."""
    if parent.actor.branches >= MAX_BRANCHES:
        why = f"this call already runs {MAX_BRANCHES} branches, which is the limit"
        raise BranchLimit(why, kind="branches", limit=MAX_BRANCHES, used=MAX_BRANCHES + 1)
    if parent.depth >= max_depth:
        why = f"the branches of this call may nest {max_depth} deep; this one would be {parent.depth + 1} deep"
        raise BranchLimit(why, kind="depth", limit=max_depth, used=parent.depth + 1)
    return Lane(parent.actor, parent.next_path(), parent, siblings, parent.depth + 1)
