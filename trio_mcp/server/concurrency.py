"""`limit=` and `queue=` of a tool: how many of its calls run at once, and how many more may wait."""

# A call holds its place while it runs. A modern call gives it back when it is parked, since it may wait for hours, and waits for
# one again when its answers have come, ahead of the calls that have not begun. A legacy call that waits for an answer is running.
#
# The body of a parked call may also go on without an answer. If its question has timed out, it waits for a place first, too. If
# the author's cancel scope or the timeout of a branch has ended the question, it cannot: a cancelled task must not wait, and a
# shield would not bound its wait. Then it takes a place over the limit, and others wait until one more has ended. When all its
# lanes wait again, it gives the place back.
#
# A task that goes on, after a restart or because a call has become it, was admitted when it began. It waits like a parked call.
#
# Callers share the places: over half of them, a caller that has a quarter waits although some are free, and another one has room.
#
# A call that a tool loop of the same tool makes never waits for its first place: that could be the place of its caller, which in
# turn waits for the call. Nor does it wait when it resumes after it was parked: it then takes a place over the limit.
#
#   event                       running    what goes on
#   a question is cancelled     +1         the call
#   a call begins               +1         the call
#                               same       no place, or none for its caller: it waits
#   a call ends, or is parked   -1         nothing waits, or only callers that have their share
#                               same       the first call whose caller has room: the place is handed over; resumed ones first

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from ..base.shared_limits import TOOL_PLACES, TOOL_QUEUE
from ..errors import LimitExceeded
from ..runtime import Actor, Lane
from ..runtime.quota import Quota
from ..runtime.threads import FairLimiter


class ToolBusy(LimitExceeded):
    """A tool runs all the calls that it may, and its queue is full; nothing was run."""


class ConcurrencyLimit:
    """The places of one tool, shared by all services of its server.

    Args:
        tool: its name.
        limit: how many calls run at once.
        queue: how many more may wait for a place. Callers share it: see `Quota`.
    """

    def __init__(self, tool: str, limit: int, queue: int) -> None:
        self._tool = tool
        self._waiting = Quota(TOOL_QUEUE, queue)
        self._running = FairLimiter(TOOL_PLACES, limit, self._waiting)

    def admit(self, caller: Hashable | None = None) -> None:
        """Raise `ToolBusy` if a call could neither run nor wait.

        Args:
            caller: whose it is; None if that is not known yet, and it is asked again before it waits.
        """
        if self._running.has_room(caller):
            return
        refusal = self._waiting.refusal(caller)
        if refusal is not None:
            self._waiting.count_refusal()
            runs = self._running.held.refusal(caller)
            raise ToolBusy(f"the tool {self._tool} is busy: {runs}; and {refusal}. Try again in a moment.")

    def admit_after(self, check: Callable[[], None]) -> None:
        """Call `check`, and then `admit`."""
        check()
        self.admit()

    @asynccontextmanager
    async def hold(self, actor: Actor) -> AsyncGenerator[None]:
        """Hold a place during the block, except while the actor is parked.

        Raises:
            ToolBusy: there is none, and the queue is full.
        """
        # Middleware may run the body several times at once, in one call, which has one place for all of them.
        place = place_of(actor)
        if place.limit is None:
            # Again: calls that came in the same moment were all admitted before the first of them ran.
            if not actor.was_admitted:
                self.admit(actor.caller)
            place.limit, place.caller = self, actor.caller
        place.runs += 1
        try:
            await place.enter(resumed=actor.was_admitted)
            yield
        finally:
            place.runs -= 1
            if not place.runs:
                place.leave_own()
                place.limit = None
                forget_empty(actor, place)

    @asynccontextmanager
    async def hold_nested(self, lane: Lane) -> AsyncGenerator[None]:
        """Hold a place for a run of the tool that another tool's call makes in this lane, except while the actor is parked.

        Raises:
            ToolBusy: there is none, and the queue is full, or a run of this very tool has made the call.
        """
        self.admit(lane.actor.caller)
        actor, outer = lane.actor, place_of(lane.actor)
        if not self._running.has_room(actor.caller) and outer.is_held_above(lane, self):
            raise ToolBusy(
                f"the tool {self._tool} is busy: {self._running.held.refusal(actor.caller)}; and this call cannot wait for a "
                f"place, because it was made by a call of {self._tool} that holds one"
            )
        place = Place(self, path=lane.path, caller=actor.caller)
        outer.nested[place] = None
        try:
            await place.enter(resumed=False)
            place.runs = 1
            yield
        finally:
            del outer.nested[place]
            place.leave_own()
            forget_empty(actor, outer)

    async def take(self, caller: Hashable | None, *, resumed: bool) -> None:
        """Take a place, or wait for one. A cancel leaves none taken."""
        await self._running.acquire(caller, ahead=resumed)

    def take_over_limit(self, caller: Hashable | None) -> None:
        """Take a place, over the limit if none is free."""
        self._running.add(caller)

    def give_back(self, caller: Hashable | None) -> None:
        """Give a place back, or hand it over to the next call that waits."""
        self._running.release(caller)


@dataclass(slots=True, eq=False)
class Place:
    """The place of one call, with those of the runs of other tools in it; see `trio_mcp.runtime.Place`."""

    limit: ConcurrencyLimit | None = None
    """None where the call is of a tool without a limit."""
    held: bool = False
    runs: int = 0
    """How many runs of the body share it."""
    path: str = ""
    """The lane of the run."""
    caller: Hashable | None = None
    """Whose call it is; see `Actor`."""
    _taking: trio.Event | None = None
    """Set when the lane that waits for a place has stopped waiting; None while none waits."""
    _waiting: trio.CancelScope | None = None
    """Of the wait of that lane."""
    nested: dict[Place, None] = field(default_factory=dict["Place", None])
    """Those of the runs of other tools, which have no runs while they wait to begin."""

    def is_held_above(self, lane: Lane, limit: ConcurrencyLimit) -> bool:
        """Return whether a run holds a place of this limit from which this lane, directly or not, was called."""
        return any(place.held and place.limit is limit for place in self._above(lane.path))

    def _above(self, path: str) -> Iterator[Place]:
        """Yield the places of the runs from which a lane was called."""
        yield self
        for place in self.nested:
            # After a 0 come the further runs that middleware makes: they are beside the first one, not below it.
            if path.startswith(f"{place.path}/") and not path.startswith(f"{place.path}/0/"):
                yield place

    def leave(self) -> None:
        self.leave_own()
        for place in self.nested:
            place.leave_own()

    def leave_own(self) -> None:
        """Give back the place of the call itself."""
        if self.held:
            self.held = False
            assert self.limit is not None
            self.limit.give_back(self.caller)

    def claim(self) -> None:
        self._claim_own()
        for place in self.nested:
            if place.runs:
                place.claim()

    def _claim_own(self) -> None:
        if self.limit is not None and not self.held:
            self.held = True
            self.limit.take_over_limit(self.caller)
            if self._waiting is not None:
                self._waiting.cancel()

    async def enter(self, *, resumed: bool = True) -> None:
        await self._enter_own(resumed=resumed)
        for place in [*self.nested]:
            if place in self.nested and place.runs:
                if any(above.held and above.limit is place.limit for above in self._above(place.path)):
                    place.claim()
                else:
                    await place.enter(resumed=resumed)
                # Its run may have ended in the meantime.
                if place not in self.nested:
                    place.leave_own()

    async def _enter_own(self, *, resumed: bool) -> None:
        limit = self.limit
        if limit is None:
            return
        # Several runs of the body may begin together, as may the answers to several lanes come. One takes the place, for all.
        while not self.held:
            if self._taking is not None:
                await self._taking.wait()
                continue
            self._taking = taking = trio.Event()
            try:
                with trio.CancelScope() as self._waiting:
                    await limit.take(self.caller, resumed=resumed)
                    # Claimed in the step in which it was handed over.
                    if self.held:
                        limit.give_back(self.caller)
                    self.held = True
            finally:
                self._taking = self._waiting = None
                taking.set()


def place_of(actor: Actor) -> Place:
    """Return the place of a call, which is made if it has none."""
    place = actor.place
    if not isinstance(place, Place):
        place = actor.place = Place()
    return place


def forget_empty(actor: Actor, place: Place) -> None:
    """Forget a place that nothing holds any more."""
    if place.limit is None and not place.nested:
        actor.place = None
