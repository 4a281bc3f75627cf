"""The supervisor owns the nursery in which every actor of a server runs.

It starts, parks, resumes, cancels and drains them, enforces the caps, and is the boundary that contains whatever an actor's
body raises: one tool never ends the process. Starting is a plain call, so that a refused actor has allocated nothing.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from ..checks import check_int, check_seconds
from ..errors import LimitExceeded
from .actor import Actor, ActorState, Cancelled, CancelReason, Outcome, Raised, Returned
from .boundary import Body, contained
from .journal import Journal
from .overdue import Overdue, stacks
from .watchdog import Watchdog

logger = logging.getLogger("trio_mcp.call")

GRACE = 5.0
"""Seconds that an actor may take to end when it was cancelled or its time is up."""

OnDone = Callable[[Actor, Outcome], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on actors. Parked ones count in both `actors` and `parked`. The newest is refused, never an older one evicted."""

    actors: int = 20_000
    actors_per_principal: int = 20_000
    parked: int = 10_000
    parked_per_principal: int = 10_000
    parked_bytes: int = 256 * 1024 * 1024
    """Bytes of the requests that parked actors hold on to (`Actor.held`); what Python makes of them is several times that."""
    park_ttl: float = 600.0
    """Seconds a parked actor waits for the next request of its caller."""

    def __post_init__(self) -> None:
        for name in ("actors", "actors_per_principal", "parked", "parked_per_principal", "parked_bytes"):
            check_int(name, getattr(self, name))
        check_seconds("park_ttl", self.park_ttl)


@dataclass(frozen=True, slots=True)
class SupervisorStatistics:
    """Actors by state now, and how actors ended since the supervisor was opened."""

    running: int
    parked: int
    parked_bytes: int
    started: int
    returned: int
    raised: int
    cancelled: dict[CancelReason, int]
    refused: int
    stuck: int = 0
    """Those that were cancelled, did not end in their time, and still run."""
    ever_stuck: int = 0


class Supervisor:
    """Made by `open_supervisor`. All methods but `drain` are synchronous and must be called from its Trio loop."""

    def __init__(self, nursery: trio.Nursery, limits: Limits, grace: float, watchdog: float) -> None:
        self.limits = limits
        self.grace = grace
        self._nursery = nursery
        self._pid = os.getpid()
        self._actors: dict[str, Actor] = {}
        self._per_principal: Counter[str | None] = Counter()
        self._parked: Counter[str | None] = Counter()
        self._parked_total = 0
        self._parked_bytes = 0
        self._serial = itertools.count(1)
        self._started = self._returned = self._raised = self._refused = 0
        self._cancelled: Counter[CancelReason] = Counter()
        self._stuck = self._ever_stuck = 0
        self._overdue = Overdue(self._actors, self._give_up)
        self._timing = False
        self._watchdog = Watchdog(watchdog, self._is_busy, self._owner)
        self._draining = self._closing = False
        self._idle: trio.Event | None = None

    def start(
        self,
        body: Body,
        on_done: OnDone,
        *,
        principal: str | None = None,
        deadline: float = math.inf,
        label: str = "actor",
        journal: Journal | None = None,
    ) -> Actor:
        """Start an actor: `body(actor)` runs in the supervisor's nursery, `on_done(actor, outcome)` is called once after it.

        A body that has not ended `grace` seconds after its cancel or its deadline is stuck: `on_done` is called then.

        Args:
            principal: whose actor it is, for the caps.
            deadline: on Trio's clock, seconds.
            label: the first part of its name.
            journal: what an earlier run of the same call had learned.

        Raises:
            LimitExceeded: a cap is reached, or the supervisor is draining. Nothing was started.
        """
        self._admit(principal)
        actor = Actor(f"{label}-{next(self._serial)}", principal, deadline, journal)
        actor.on_done = on_done
        actor.on_cancel = self._was_cancelled
        self._actors[actor.name] = actor
        self._per_principal[principal] += 1
        self._started += 1
        self._nursery.start_soon(self._run, actor, body, name=actor.name)
        if self._watchdog.asleep:
            self._watchdog.wake()
        if deadline != math.inf:
            self._expect_end(actor, deadline)
        return actor

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Do something small for an actor beside it, such as keeping its journal; it must contain its own errors."""
        self._nursery.start_soon(work, *args)

    def park(self, actor: Actor) -> None:
        """Let a running actor wait, with all it holds, for its caller's next request; it is cancelled after `park_ttl` seconds.

        While the supervisor drains it is cancelled at once: the next request would be refused.

        Raises:
            LimitExceeded: too many are parked already. The actor still runs; cancel it.
        """
        limits, principal = self.limits, actor.principal
        if self._parked_total >= limits.parked:
            raise LimitExceeded(f"{limits.parked} calls already wait for an answer, which is this server's limit")
        if self._parked[principal] >= limits.parked_per_principal:
            raise LimitExceeded(
                f"{limits.parked_per_principal} of your calls already wait for an answer, which is the limit"
            )
        if self._parked_bytes + actor.held > limits.parked_bytes:
            raise LimitExceeded(
                f"the calls that wait for an answer may hold {limits.parked_bytes} bytes of requests on this server, "
                f"and with this one of {actor.held} bytes it would be more"
            )
        self._parked[principal] += 1
        self._parked_total += 1
        self._parked_bytes += actor.held
        actor.state = ActorState.PARKED
        actor.scope.deadline = min(actor.deadline, trio.current_time() + limits.park_ttl)
        self._expect_end(actor, actor.scope.deadline)
        if self._draining:
            actor.cancel(CancelReason.SHUTDOWN)

    def resume(self, actor: Actor) -> None:
        """The next request of a parked actor has come."""
        self._unpark(actor)
        actor.state = ActorState.RUNNING
        actor.scope.deadline = actor.deadline
        self._expect_end(actor, actor.deadline)
        if self._watchdog.asleep:
            self._watchdog.wake()

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel every actor."""
        for actor in list(self._actors.values()):
            actor.cancel(reason)

    def refuse_new(self) -> None:
        """From now on `start` refuses: the server is shutting down."""
        self._draining = True

    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Refuse new actors, give the running ones `seconds` to end, then cancel all and wait `clean_up` seconds for them.

        Parked actors cannot end by themselves and are cancelled at once. What is left in the end is stuck: it is answered for
        and runs on. A cancel cuts the waiting short.
        """
        self.refuse_new()
        for actor in list(self._actors.values()):
            if actor.state is ActorState.PARKED:
                actor.cancel(CancelReason.SHUTDOWN)
        with trio.move_on_after(seconds):
            await self._all_gone()
        self.cancel_all(CancelReason.SHUTDOWN)
        with trio.move_on_after(clean_up):
            await self._all_gone()
        for actor in self.actors:
            if actor.state is not ActorState.STUCK:
                self._give_up(actor)

    def close(self) -> None:
        """Cancel what is left; nothing is started any more."""
        self.refuse_new()
        self.cancel_all(CancelReason.SHUTDOWN)
        self._closing = True
        if not self._actors:
            self._end_timing()

    @property
    def blocked(self) -> int:
        """How often an actor was seen to keep the event loop from turning."""
        return self._watchdog.incidents

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Every actor that has not ended, oldest first."""
        return tuple(self._actors.values())

    def statistics(self) -> SupervisorStatistics:
        return SupervisorStatistics(
            running=self._living - self._parked_total,
            parked=self._parked_total,
            parked_bytes=self._parked_bytes,
            started=self._started,
            returned=self._returned,
            raised=self._raised,
            cancelled=dict(self._cancelled),
            refused=self._refused,
            stuck=self._stuck,
            ever_stuck=self._ever_stuck,
        )

    def __repr__(self) -> str:
        running = self._living - self._parked_total
        stuck = f" stuck={self._stuck}" if self._stuck else ""
        return f"<Supervisor running={running} parked={self._parked_total} started={self._started}{stuck}>"

    @property
    def _living(self) -> int:
        """Actors that are not stuck."""
        return len(self._actors) - self._stuck

    def _admit(self, principal: str | None) -> None:
        limits = self.limits
        refusal = None
        if self._draining:
            refusal = "this server is shutting down"
        elif len(self._actors) >= limits.actors:
            refusal = f"this server already runs {limits.actors} calls, which is its limit"
        elif self._per_principal[principal] >= limits.actors_per_principal:
            refusal = f"{limits.actors_per_principal} of your calls are already running, which is the limit"
        if refusal is not None:
            self._refused += 1
            raise LimitExceeded(refusal)

    @trio.lowlevel.enable_ki_protection  # a real Ctrl-C belongs to the main task, not to the tool it happens to hit
    async def _run(self, actor: Actor, body: Body) -> None:
        outcome: Outcome = CUT_OFF
        actor.task = trio.lowlevel.current_task()
        try:
            outcome = await contained(actor, body)
        finally:
            if os.getpid() != self._pid:  # a tool forked and came back: this copy of the process serves nobody
                os._exit(1)
            self._forget(actor)
            self._tell(actor, outcome)

    def _forget(self, actor: Actor) -> None:
        """An actor has ended."""
        self._unpark(actor)
        if actor.overdue_at != math.inf:
            self._overdue.expect(actor, math.inf)
        if actor.state is ActorState.STUCK:
            self._stuck -= 1
            logger.warning("%s, which was stuck, has ended", actor.name)
        actor.leave(ActorState.DONE)
        actor.on_cancel = actor.on_quiet = actor.task = None  # no reference back to whoever owns it
        del self._actors[actor.name]
        self._per_principal[actor.principal] -= 1
        if not self._per_principal[actor.principal]:
            del self._per_principal[actor.principal]
        if self._closing and not self._actors:
            self._end_timing()

    def _tell(self, actor: Actor, outcome: Outcome) -> None:
        """Tell what became of an actor to whoever wants to know, unless that was done when it got stuck."""
        on_done, actor.on_done = actor.on_done, None
        if on_done is None:
            return
        match outcome:
            case Returned():
                self._returned += 1
            case Raised():
                self._raised += 1
            case Cancelled(reason):
                self._cancelled[reason] += 1
        if self._idle is not None and not self._living:
            self._idle.set()
        try:
            on_done(actor, outcome)
        except BaseException:  # noqa: ASYNC103
            logger.exception("the end of %s failed", actor.name)

    # what the watchdog's thread asks

    def _is_busy(self) -> bool:
        """Some actor may do something."""
        return len(self._actors) > self._parked_total

    def _owner(self, task: trio.lowlevel.Task) -> str | None:
        """The actor in whose task, or below it, a task runs."""
        above: trio.lowlevel.Task | None = task
        while above is not None:
            actor = self._actors.get(above.name)
            if actor is not None and actor.task is above:
                return actor.name
            above = None if above.parent_nursery is None else above.parent_nursery.parent_task
        return None

    # those that do not end

    def _end_timing(self) -> None:
        self._overdue.stop()
        self._watchdog.close()

    def _was_cancelled(self, actor: Actor) -> None:
        self._expect_end(actor, min(trio.current_time(), actor.overdue_at - self.grace))

    def _expect_end(self, actor: Actor, cancelled: float) -> None:
        """Give the actor its grace from that time on."""
        self._overdue.expect(actor, cancelled + self.grace)
        if not self._timing and actor.overdue_at != math.inf:
            self._timing = True
            self._nursery.start_soon(self._overdue.run)

    def _give_up(self, actor: Actor) -> None:
        """An actor had its time to end: what is told of it is that it was cancelled, and nobody waits for it any longer."""
        reason = actor.reason
        assert reason is not None, "only a cancelled actor has to end"
        where = "" if actor.task is None else stacks(actor.task)
        logger.error(
            "%s is stuck: it was cancelled (%s) and has not ended; nobody waits for it any longer\n%s",
            actor.name,
            reason.value,
            where,
        )
        self._unpark(actor)
        actor.cancel_reason = reason
        actor.leave(ActorState.STUCK)
        actor.on_cancel = None
        self._overdue.expect(actor, math.inf)
        self._stuck += 1
        self._ever_stuck += 1
        self._tell(actor, Cancelled(reason))

    def _unpark(self, actor: Actor) -> None:
        if actor.state is ActorState.PARKED:
            self._parked_total -= 1
            self._parked_bytes -= actor.held
            self._parked[actor.principal] -= 1
            if not self._parked[actor.principal]:
                del self._parked[actor.principal]

    async def _all_gone(self) -> None:
        if self._living:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()


CUT_OFF = Cancelled(CancelReason.SHUTDOWN)
"""The outcome of an actor that is cancelled from outside, with its supervisor."""


@asynccontextmanager
async def open_supervisor(
    limits: Limits | None = None, grace: float = GRACE, watchdog: float = math.inf
) -> AsyncIterator[Supervisor]:
    """A supervisor for the length of the block; leaving it cancels the actors that are left, and waits for them all.

    Args:
        grace: seconds that an actor may take to end when it was cancelled or its time is up.
        watchdog: seconds for which an actor may keep the event loop from turning before it is logged; `inf` for not looking.
    """
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, limits or Limits(), grace, watchdog)
        try:
            yield supervisor
        finally:
            supervisor.close()
            nursery.cancel_scope.cancel()
