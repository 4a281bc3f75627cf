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

from ..errors import LimitExceeded
from .actor import Actor, ActorState, Cancelled, CancelReason, Outcome, Raised, Returned
from .journal import Journal

__all__ = ["Limits", "Supervisor", "SupervisorStatistics", "open_supervisor"]

logger = logging.getLogger("trio_mcp.call")
Body = Callable[[Actor], Awaitable[object]]
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


class Supervisor:
    """Made by `open_supervisor`. All methods but `drain` are synchronous and must be called from its Trio loop."""

    def __init__(self, nursery: trio.Nursery, limits: Limits) -> None:
        self.limits = limits
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
        self._draining = False
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
        self._actors[actor.name] = actor
        self._per_principal[principal] += 1
        self._started += 1
        self._nursery.start_soon(self._run, actor, body, on_done, name=actor.name)
        return actor

    def spawn(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Do something small for an actor beside it, such as keeping its journal; it must contain its own errors."""
        self._nursery.start_soon(work, *args)

    def park(self, actor: Actor) -> None:
        """Let a running actor wait, with all it holds, for its caller's next request; it is cancelled after `park_ttl` seconds.

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

    def resume(self, actor: Actor) -> None:
        """The next request of a parked actor has come."""
        self._unpark(actor)
        actor.state = ActorState.RUNNING
        actor.scope.deadline = actor.deadline

    def cancel_all(self, reason: CancelReason) -> None:
        """Cancel every actor."""
        for actor in list(self._actors.values()):
            actor.cancel(reason)

    def refuse_new(self) -> None:
        """From now on `start` refuses: the server is shutting down."""
        self._draining = True

    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Refuse new actors, give the running ones `seconds` to end, then cancel all and wait `clean_up` seconds for them.

        Parked actors cannot end by themselves and are cancelled at once. A cancel cuts the waiting short.
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

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Every actor that has not ended, oldest first."""
        return tuple(self._actors.values())

    def statistics(self) -> SupervisorStatistics:
        return SupervisorStatistics(
            running=len(self._actors) - self._parked_total,
            parked=self._parked_total,
            parked_bytes=self._parked_bytes,
            started=self._started,
            returned=self._returned,
            raised=self._raised,
            cancelled=dict(self._cancelled),
            refused=self._refused,
        )

    def __repr__(self) -> str:
        running = len(self._actors) - self._parked_total
        return f"<Supervisor running={running} parked={self._parked_total} started={self._started}>"

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
    async def _run(self, actor: Actor, body: Body, on_done: OnDone) -> None:
        outcome: Outcome = CUT_OFF
        try:
            outcome = await contained(actor, body)
        finally:
            if os.getpid() != self._pid:  # a tool forked and came back: this copy of the process serves nobody
                os._exit(1)
            self._forget(actor, outcome)
            try:
                on_done(actor, outcome)
            except BaseException:  # noqa: ASYNC103
                logger.exception("the end of %s failed", actor.name)
            actor.let_go()

    def _forget(self, actor: Actor, outcome: Outcome) -> None:
        self._unpark(actor)
        actor.state = ActorState.DONE
        del self._actors[actor.name]
        self._per_principal[actor.principal] -= 1
        if not self._per_principal[actor.principal]:
            del self._per_principal[actor.principal]
        match outcome:
            case Returned():
                self._returned += 1
            case Raised():
                self._raised += 1
            case Cancelled(reason):
                self._cancelled[reason] += 1
        if self._idle is not None and not self._actors:
            self._idle.set()

    def _unpark(self, actor: Actor) -> None:
        if actor.state is ActorState.PARKED:
            self._parked_total -= 1
            self._parked_bytes -= actor.held
            self._parked[actor.principal] -= 1
            if not self._parked[actor.principal]:
                del self._parked[actor.principal]

    async def _all_gone(self) -> None:
        if self._actors:
            self._idle = trio.Event()
            await self._idle.wait()


CUT_OFF = Cancelled(CancelReason.SHUTDOWN)
"""The outcome of an actor that is cancelled from outside, with its supervisor."""


async def contained(actor: Actor, body: Body) -> Outcome:
    """Run a body inside its actor's scope and turn whatever it does into an outcome.

    Only a cancellation from outside the actor passes through; `SystemExit`, `KeyboardInterrupt` and `GeneratorExit` that a
    body raises are its own failures (reliability, finding 3).
    """
    try:
        with actor.scope:
            try:
                return Returned(await body(actor))
            finally:
                if trio.lowlevel.current_task().child_nurseries:
                    close_abandoned(actor)
    except BaseException as error:  # noqa: BLE001, ASYNC103  this is the boundary
        if trio.current_effective_deadline() == -math.inf:  # cancelled from outside, with the supervisor
            cancelled = split(error)[0]  # a name for the rest would keep it, and with it this frame
            if cancelled is not None:
                raise cancelled from None  # noqa: ASYNC104
        return Raised(error)  # noqa: ASYNC104  also a `Cancelled` that a body kept from another scope: it is nobody's here
    assert actor.reason is not None, "the scope of an actor is left early by a cancel only"
    return Cancelled(actor.reason)


def close_abandoned(actor: Actor) -> None:
    """A body left nurseries open (a generator with one inside that was not closed): cancel what runs in them.

    This is what Trio does when such a task exits, but there it also fails the task, past every boundary, and with it the
    supervisor's nursery. Nothing may be awaited here: the generator's own finalizer may be about to close the nursery too.
    """
    task = trio.lowlevel.current_task()
    logger.error("%s left a nursery open; the tasks in it are cancelled", actor.name)
    while task.child_nurseries:
        nursery = task._child_nurseries.pop()  # noqa: SLF001
        nursery.cancel_scope.cancel()
        nursery._closed = True  # noqa: SLF001
        nursery.cancel_scope._close(None)  # noqa: SLF001


def split(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return (error, None) if isinstance(error, trio.Cancelled) else (None, error)


@asynccontextmanager
async def open_supervisor(limits: Limits | None = None) -> AsyncIterator[Supervisor]:
    """A supervisor for the length of the block; leaving it cancels the actors that are left."""
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, limits or Limits())
        try:
            yield supervisor
        finally:
            supervisor.refuse_new()
            supervisor.cancel_all(CancelReason.SHUTDOWN)
            nursery.cancel_scope.cancel()
