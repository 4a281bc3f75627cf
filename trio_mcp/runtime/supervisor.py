"""The supervisor owns the nursery in which every actor of a server runs.

It starts, parks, resumes, cancels and drains them, enforces the limits, and contains every exception of an actor's body: one
tool never ends the process. `start` is a plain function and not an async one, so that a refused actor has allocated nothing.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial

import trio

from .. import runtime
from ..base import forks
from ..base.groups import UnwrappedErrors, split_group
from ..base.logs import OwnText, peer_logger
from ..base.shared_limits import PARKED_CALLS, RUNNING_CALLS
from ..base.values import make_tuple
from ..errors import LimitExceeded
from .actor import DONE, RUNNING, Actor, ActorState, Cancelled, CancelReason, Outcome, Raised, Returned
from .cleanup_deadlines import CleanupDeadlines
from .journal import Journal
from .limits import Limits, SupervisorStatistics
from .memory_budget import Account
from .quota import Quota
from .watchdog import Watchdog

# Clean-up after a body that left nurseries open in its task.

logger = peer_logger("trio_mcp.call")


def cancel_leftover_nurseries(actor: Actor) -> None:
    """Cancel the tasks in nurseries that a body left open, for example in a generator that it did not close.

    Trio does the same when such a task exits, but then also fails the task, past every handler of ours, and with it the nursery
    of the supervisor.
    """
    task = trio.lowlevel.current_task()
    logger.error("%s left a nursery open; the tasks in it are cancelled", actor.name)
    # No await in here: the generator's own finalizer may be about to close the same nursery.
    # Private names, since Trio has no public way to close the nursery of a generator that will never continue.
    while task.child_nurseries:
        nursery = task._child_nurseries.pop()  # noqa: SLF001
        nursery.cancel_scope.cancel()
        nursery._closed = True  # noqa: SLF001
        nursery.cancel_scope._close(None)  # noqa: SLF001


# What each event changes. `overdue_at` is the cleanup deadline of `cleanup_deadlines`; the states are those of `actor`.
#
#   event                state after   scope.deadline               overdue_at                 counters
#   start                RUNNING       deadline                     deadline + grace           actors +1
#   park                 PARKED        same                         min(same, until + grace)   parked +1
#   `until` passes       same          same                         min(same, now + grace)     -
#   resume               RUNNING       deadline                     deadline + grace           parked -1
#   cancel               same          same                         min(same, now + grace)     -
#   the body ends        DONE          -                            inf                        actors -1, parked -1 if it was
#   overdue_at passes    STUCK         -                            inf                        stuck +1, parked -1 if it was
#   a stuck body ends    DONE          -                            inf                        actors -1, stuck -1
#
# `until` is the time of the park plus the ttl, if that is before the deadline; the actor is cancelled then.
#
# A stuck actor stays in `actors`: it still uses memory and perhaps a thread, so it must count against the limit. Draining does
# not wait for it, because its caller has been answered.
#
# Example: a call with a deadline of 60 s, grace 5 s, `park_ttl` 600 s, that asks a question and is then cancelled.
#
#   t = 0    start      RUNNING   scope 60   overdue 65
#   t = 1    park       PARKED    scope 60   overdue 65    (until 601 would be later than its own deadline)
#   t = 9    resume     RUNNING   scope 60   overdue 65
#   t = 10   cancel     RUNNING   scope 60   overdue 15    the body gets `trio.Cancelled`, and unwinds
#   t = 11   body ends  DONE                               on_done(Cancelled(CLIENT))
#
# Had its `finally` blocks run for longer, it would be STUCK at t = 15, and `on_done` would be called then.


CANCEL_GRACE = 5.0
"""Seconds that an actor may take to end after it was cancelled or its deadline has passed."""

Body = Callable[[Actor], Awaitable[object]]
OnDone = Callable[[Actor, Outcome], None]


class Supervisor:
    """Made by `open_supervisor`. All methods but `drain` are synchronous and must be called from its Trio loop."""

    def __init__(self, nursery: trio.Nursery, limits: Limits, grace: float, watchdog: float) -> None:
        self.limits = limits
        self._nursery = nursery
        self._generation = forks.generation
        self._actors: dict[str, Actor] = {}
        self._started = Quota(RUNNING_CALLS, limits.actors, limits.actors_per_principal)
        self._parked = Quota(PARKED_CALLS, limits.parked, limits.parked_per_principal)
        self._serial = itertools.count(1)
        self._now = trio.lowlevel.current_clock().current_time
        self._counts = SupervisorStatistics()
        self._deadlines = CleanupDeadlines(nursery, grace, self._actors, self._mark_stuck)
        self.watchdog = Watchdog(watchdog, self._is_busy, self._owner)
        # Bound once: each actor refers to it.
        self._on_cancel = self._deadlines.cancelled
        self._draining = self._closing = self._keeps_parked = False
        self._draining_tasks = trio.lowlevel.ParkingLot()

    def start(
        self,
        body: Body,
        on_done: OnDone,
        *,
        principal: str | None = None,
        account: Account | None = None,
        deadline: float = math.inf,
        label: str = "actor",
        journal: Journal | None = None,
        delayed: bool = False,
    ) -> Actor:
        """Run `body(actor)` in the supervisor's nursery; `on_done(actor, outcome)` is called once, after it.

        If the body has not ended `grace` seconds after its cancel or its deadline, the actor is stuck: `on_done` is called then.

        Args:
            principal: the owner of the actor.
            account: what is held for it; it is closed at its end, also if it is refused. Its caller, by default the principal, is
                what the actor counts for, see `Quota`.
            deadline: on Trio's clock, seconds.
            label: the first part of its name.
            journal: what an earlier run of the same call recorded.
            delayed: the task of the body starts with `Actor.wake`, or a cancel; `end` ends the actor without one.

        Raises:
            LimitExceeded: a limit is reached, or the supervisor is draining. Nothing was started.
        """
        caller = (account and account.caller) or principal
        try:
            if self._draining:
                raise LimitExceeded("this server is shutting down")
            self._started.take(caller)
        except LimitExceeded:
            self._counts.refused += 1
            if account is not None:
                account.close()
            raise
        name = f"{label}-{next(self._serial)}"
        actor = Actor(name, principal, deadline, journal)
        actor.caller = caller
        actor.account = account
        actor.started_at = self._now()
        actor.on_done = on_done
        actor.on_cancel = self._on_cancel
        self._actors[name] = actor
        self._counts.started += 1
        if delayed and deadline == math.inf:
            # In the context of this step, such as its span, and not of the one that wakes it.
            begin = partial(self._nursery.start_soon, self._run, actor, body, name=name)
            actor.begin = partial(copy_context().run, begin)
        else:
            self._nursery.start_soon(self._run, actor, body, name=name)
        if self.watchdog.asleep:
            self.watchdog.wake()
        if deadline != math.inf:
            # Only then: it is expensive to set the deadline of a scope.
            actor.scope.deadline = deadline
            self._deadlines.expect_end(actor, deadline)
        return actor

    def end(self, actor: Actor, work: Callable[[], object]) -> None:
        """End an actor whose task has not started, with what a function returns or raises as the outcome of its body."""
        try:
            outcome: Outcome = Returned(work())
        except Exception as error:  # noqa: BLE001  this is the boundary
            outcome = Raised(error)
        self._forget(actor)
        self._report_outcome(actor, outcome)
        # As in `_run`.
        del outcome

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run something small for an actor, such as storing its journal, in a task of the nursery; it must not raise."""
        self._nursery.start_soon(work, *args)

    def park(self, actor: Actor, seconds: float | None = None) -> None:
        """Let a running actor wait for its caller's next request.

        Args:
            seconds: after this time it is cancelled; None for `park_ttl`.

        Raises:
            LimitExceeded: too many are parked already. The actor still runs; cancel it.
        """
        self._parked.take(actor.caller)
        if actor.place is not None:
            actor.place.leave()
        actor.state = ActorState.PARKED
        wait = self.limits.park_ttl if seconds is None else seconds
        # Its scope is left alone: to move a deadline of Trio's costs more than all of this.
        self._deadlines.expect_return(actor, wait)
        # While draining, the next request of its caller may not come here, so it cannot go on.
        if self._draining and not self._keeps_parked:
            actor.cancel(CancelReason.SHUTDOWN)

    def resume(self, actor: Actor) -> None:
        """Let a parked actor run again: the next request of its caller has arrived."""
        self._unpark(actor)
        actor.state = ActorState.RUNNING
        self._deadlines.expect_end(actor, actor.deadline)
        if self.watchdog.asleep:
            self.watchdog.wake()

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel every actor."""
        for actor in list(self._actors.values()):
            actor.cancel(reason)

    def refuse_new(self, *, keeps_parked: bool = False) -> None:
        """Make `start` raise from now on, because the server is shutting down.

        Args:
            keeps_parked: the next requests of parked actors still come.
        """
        self._draining = True
        self._keeps_parked = keeps_parked

    async def drain(self, seconds: float, clean_up: float = 2.0, *, keeps_parked: bool = False) -> None:
        """Refuse new actors, give the running ones `seconds` to end, then cancel all and wait `clean_up` seconds for them.

        Parked actors cannot end without a request and are cancelled immediately, unless `keeps_parked` says that their requests
        still come. Actors that are left in the end are stuck. A cancel ends the wait early.
        """
        self.refuse_new(keeps_parked=keeps_parked)
        for actor in list(self._actors.values()):
            if actor.state is ActorState.PARKED and not keeps_parked:
                actor.cancel(CancelReason.SHUTDOWN)
        with trio.move_on_after(seconds):
            await self._all_gone()
        self.cancel_all(CancelReason.SHUTDOWN)
        with trio.move_on_after(clean_up):
            await self._all_gone()
        for actor in self.actors:
            if actor.state is not ActorState.STUCK:
                self._mark_stuck(actor)

    def close(self) -> None:
        """Refuse new actors, and cancel those that are left."""
        self.refuse_new()
        self.cancel_all(CancelReason.SHUTDOWN)
        self._closing = True
        if not self._actors:
            self._end_timing()

    @property
    def draining(self) -> bool:
        """Whether it refuses new actors, because the server is shutting down."""
        return self._draining

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Every actor that has not ended, oldest first."""
        return tuple(self._actors.values())

    def statistics(self) -> SupervisorStatistics:
        """Return the actors by state now, and how actors ended so far."""
        counts, parked = self._counts, self._parked.in_use
        return replace(counts, running=self._living - parked, parked=parked, cancelled=dict(counts.cancelled))

    def __repr__(self) -> str:
        now = self.statistics()
        stuck = f" stuck={now.stuck}" if now.stuck else ""
        return f"<Supervisor running={now.running} parked={now.parked} started={now.started}{stuck}>"

    @property
    def _living(self) -> int:
        """Actors that are not stuck."""
        return len(self._actors) - self._counts.stuck

    @trio.lowlevel.enable_ki_protection  # a real Ctrl-C belongs to the main task, not to the tool it happens to hit
    async def _run(self, actor: Actor, body: Body) -> None:
        """Run a body inside its actor's scope, and report its outcome, whatever it raises."""
        # One coroutine for all of it, because each has half a kilobyte of a call that waits.
        outcome: Outcome | None = None
        task = actor.task = trio.lowlevel.current_task()
        try:
            with actor.scope:
                try:
                    outcome = make_tuple(Returned, (await body(actor),))
                finally:
                    if task.child_nurseries:
                        cancel_leftover_nurseries(actor)
            outcome = outcome or left_early(actor)
        except BaseException as error:  # noqa: BLE001, ASYNC103  this is the boundary
            outcome = None
            outcome = contained(error)
        finally:
            # A tool has forked, and the child returned from it. The child has a copy of all connections and must not use them.
            if forks.generation != self._generation:
                os._exit(1)
            self._forget(actor)
            self._report_outcome(actor, SHUTDOWN_OUTCOME if outcome is None else outcome)
            # The traceback of what a body has raised holds this frame, and a task its coroutine.
            del outcome, task

    def _forget(self, actor: Actor) -> None:
        """Remove an actor that has ended from all tables."""
        if actor.state is not RUNNING:
            self._unpark(actor)
            if actor.state is ActorState.STUCK:
                self._counts.stuck -= 1
                logger.warning("%s, which was stuck, has ended", actor.name)
        if actor.overdue_at != math.inf:
            self._deadlines.drop(actor)
        actor.state = DONE
        if actor.opened_mailbox is not None:
            actor.retire(ActorState.DONE)
        if actor.account is not None:
            actor.account.close()
        # No reference back to the call that owns it, which would be a cycle.
        actor.on_cancel = actor.on_quiescent = actor.task = actor.begin = None
        del self._actors[actor.name]
        self._started.give_back(actor.caller)
        if self._closing and not self._actors:
            self._end_timing()

    def _report_outcome(self, actor: Actor, outcome: Outcome) -> None:
        """Count the outcome of an actor and report it to its owner, unless that was done when it got stuck."""
        on_done, actor.on_done = actor.on_done, None
        if on_done is None:
            return
        if isinstance(outcome, Returned):
            self._counts.returned += 1
        elif isinstance(outcome, Raised):
            self._counts.raised += 1
        else:
            self._counts.cancelled[outcome.reason] = self._counts.cancelled.get(outcome.reason, 0) + 1
        if self._draining and not self._living:
            self._draining_tasks.unpark_all()
        # A failure in here would end the nursery, and with it every other call.
        try:
            on_done(actor, outcome)
        except BaseException:  # noqa: ASYNC103
            logger.exception("the end of %s failed", actor.name)

    # called in the watchdog's thread: they only read, and a dict of the loop may change under them at any time

    def _is_busy(self) -> bool:
        """Return whether some actor is not parked."""
        return len(self._actors) > self._parked.in_use

    def _owner(self, task: trio.lowlevel.Task) -> str | None:
        """Return the name of the actor that a task belongs to: its own task, or one below it."""
        above: trio.lowlevel.Task | None = task
        while above is not None:
            actor = self._actors.get(above.name)
            if actor is not None and actor.task is above:
                return actor.name
            above = None if above.parent_nursery is None else above.parent_nursery.parent_task
        return None

    # actors that do not end

    def _end_timing(self) -> None:
        self._deadlines.stop()
        self.watchdog.close()

    def _mark_stuck(self, actor: Actor) -> None:
        """Report an actor as cancelled although it has not ended: its grace period is over."""
        reason = actor.reason
        assert reason is not None, "only a cancelled actor has to end"
        line = None if actor.task is None else runtime.stacks.code_line(actor.task)
        logger.error(
            "%s is stuck: it was cancelled (%s) and has not ended within its grace period; its caller got an error. It is %s\n%s",
            actor.name,
            reason,
            "nowhere in its own code" if line is None else f"at {line}",
            OwnText("" if actor.task is None else runtime.stacks.stacks(actor.task)),
        )
        self._unpark(actor)
        # Kept where the deadline of its scope has cancelled it.
        actor.cancel_reason = reason
        actor.retire(ActorState.STUCK)
        actor.on_cancel = None
        self._deadlines.drop(actor)
        self._counts.stuck += 1
        self._counts.ever_stuck += 1
        self._report_outcome(actor, Cancelled(reason))

    def _unpark(self, actor: Actor) -> None:
        if actor.state is ActorState.PARKED:
            self._parked.give_back(actor.caller)

    async def _all_gone(self) -> None:
        while self._living:
            await self._draining_tasks.park()


def contained(error: BaseException) -> Raised:
    """Return the outcome of a body that raised this, outside of its actor's scope.

    Only a cancel from outside the actor passes through. `SystemExit`, `KeyboardInterrupt` and `GeneratorExit` that a body
    raises are failures of this call alone (reliability, finding 3).
    """
    if trio.current_effective_deadline() == -math.inf:  # cancelled from outside, with the supervisor
        # No name for the rest: it would keep the error, and with it this frame.
        cancelled = split_group(error, trio.Cancelled)[0]
        if cancelled is not None:
            try:
                raise cancelled from None
            finally:
                # Its traceback holds this frame.
                del cancelled, error
    # Also a `Cancelled` that the body caught in another scope and raises here, where it belongs to no scope.
    return Raised(error)


def left_early(actor: Actor) -> Cancelled:
    """Return the outcome of a body whose scope has caught its cancel."""
    reason = actor.cancel_reason or actor.reason
    assert reason is not None, "the scope of an actor is left early by a cancel only"
    return Cancelled(reason)


SHUTDOWN_OUTCOME = Cancelled(CancelReason.SHUTDOWN)
"""The outcome of an actor that is cancelled from outside, with its supervisor."""


@asynccontextmanager
async def open_supervisor(
    limits: Limits | None = None, grace: float = CANCEL_GRACE, watchdog: float = math.inf
) -> AsyncIterator[Supervisor]:
    """Open a supervisor; leaving the block cancels the actors that are left, and waits for them all.

    Args:
        grace: seconds that an actor may take to end after it was cancelled or its deadline has passed.
        watchdog: seconds for which an actor may block the event loop before that is logged; `inf` disables the watchdog.
    """
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor(nursery, limits or Limits(), grace, watchdog)
            try:
                yield supervisor
            finally:
                supervisor.close()
                nursery.cancel_scope.cancel()
