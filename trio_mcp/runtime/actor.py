"""An actor is one logical call: its cancel scope, mailbox, journal and lanes, and exactly one outcome.

The body of an actor and each of its branches is a *lane*. A lane is busy (it can still do something on its own), waiting (at
least one question of its own is open) or joining (it waits for branches). The actor counts the busy ones; when none is left,
nothing more will happen until an answer comes, and whoever carries the actor's questions to the peer can send all of them
in one go. The rules of the count, each with a test:

- a branch is busy from the moment it is created, before its task first runs;
- an answer makes its lane busy in the step that delivers it, not when the lane wakes;
- when the last branch that a lane joins ends, its busyness passes to that lane, so the count never touches zero in between;
- a lane with several open questions waits as long as one of them is open;
- a lane that is cancelled while it waits gives its questions up and becomes busy again, since its clean-up runs.

A lane is cancelled with its actor, with the lane that it is a branch of, by a sibling that fails, or when its own time is up.
`Lane.reason` tells which came first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

import trio

from ..errors import Disconnected
from .journal import Journal
from .mailbox import Mailbox, MailboxStatistics


class CancelReason(Enum):
    """Why an actor was cancelled; the first reason stands."""

    CLIENT = "client"
    DISCONNECT = "disconnect"
    DEADLINE = "deadline"
    EXPIRED = "expired"
    SHUTDOWN = "shutdown"
    SIBLING = "sibling"


class Cancellation(NamedTuple):
    """When something was cancelled, on Trio's clock (seconds), and why."""

    at: float
    reason: CancelReason


class Siblings(Protocol):
    """The group that a branch was started in."""

    @property
    def failed_at(self) -> float:
        """When one of them failed and cancelled the others, on Trio's clock (seconds); `inf` while none has."""
        ...


class ActorState(Enum):
    """Running in front of a caller, parked between two requests of its caller, stuck, or over.

    A stuck one was cancelled and did not end in its time. It was answered for, and runs on without anybody who waits for it.
    """

    RUNNING = "running"
    PARKED = "parked"
    STUCK = "stuck"
    DONE = "done"


NO_LONGER = (ActorState.STUCK, ActorState.DONE)
UNHEARD = "the call is over, or was answered for: no answer reaches it any more"


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned this value."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The body raised this."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The body was cancelled, for this reason."""

    reason: CancelReason


Outcome: TypeAlias = Returned | Raised | Cancelled


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """A snapshot of one actor."""

    state: ActorState
    busy_lanes: int
    branches: int
    mailbox: MailboxStatistics
    cancel_reason: CancelReason | None


class Actor:
    """One logical call. Made by `Supervisor.start`; its owner keeps it to cancel it, park it and post to its mailbox."""

    __slots__ = (
        "__weakref__",
        "_journal",
        "_mailbox",
        "branches",
        "busy",
        "cancel_reason",
        "cancelled_at",
        "deadline",
        "held",
        "name",
        "on_cancel",
        "on_done",
        "on_quiet",
        "overdue_at",
        "principal",
        "scope",
        "state",
        "task",
    )

    def __init__(self, name: str, principal: str | None, deadline: float, journal: Journal | None = None) -> None:
        self.name = name
        self.principal = principal
        self.deadline = deadline
        """When the whole call must be over, on Trio's clock (seconds); `inf` for never. Parking does not move it."""
        self.scope = trio.CancelScope(deadline=deadline)
        self._mailbox: Mailbox | None = None
        self._journal = journal
        self.cancel_reason: CancelReason | None = None
        self.cancelled_at = math.inf
        """When it was given that reason, on Trio's clock (seconds)."""
        self.state = ActorState.RUNNING
        self.busy = 1
        self.branches = 0
        self.held = 0
        """Bytes of the requests that it has had, counted by its owner for the caps; it never changes while parked."""
        self.on_quiet: Callable[[], None] | None = None
        """Called whenever no lane can do anything more on its own."""
        self.on_cancel: Callable[[Actor], None] | None = None
        """Called when it is cancelled by `cancel`."""
        self.on_done: Callable[[Actor, Outcome], None] | None = None
        """To be told its outcome; None once that was done."""
        self.overdue_at = math.inf
        """When whoever waits for its end gives up on it, on Trio's clock."""
        self.task: trio.lowlevel.Task | None = None
        """The task that runs its body, while it does."""

    @property
    def mailbox(self) -> Mailbox:
        """Where answers to it arrive; made when it first asks, since most calls never do."""
        if self._mailbox is None:
            self._mailbox = Mailbox()
            if self.state in NO_LONGER:
                self._mailbox.close(Disconnected(UNHEARD))
        return self._mailbox

    @property
    def journal(self) -> Journal:
        """What it has learned; made when it first learns something."""
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    def cancel(self, reason: CancelReason) -> None:
        """Ask the actor to stop. It unwinds through its `finally` blocks; the first reason given is the one it sees."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            self.cancelled_at = trio.current_time()
        if self.on_cancel is not None:
            self.on_cancel(self)
        self.scope.cancel()

    def leave(self, state: ActorState) -> None:
        """It is over, or stuck: no answer reaches it any more, and what still runs of it (a thread, say) may ask nothing."""
        self.state = state
        if self._mailbox is not None:
            self._mailbox.close(Disconnected(UNHEARD))

    @property
    def reason(self) -> CancelReason | None:
        """Why it was cancelled, also when nobody but the clock did it; None while it was not."""
        if self.cancel_reason is not None or not self.scope.cancel_called:
            return self.cancel_reason
        parked = self.state is ActorState.PARKED and self.scope.deadline < self.deadline
        return CancelReason.EXPIRED if parked else CancelReason.DEADLINE

    @property
    def cancellation(self) -> Cancellation | None:
        """The same with the time of it."""
        reason = self.reason
        if reason is None:
            return None
        return Cancellation(self.scope.deadline if self.cancel_reason is None else self.cancelled_at, reason)

    @property
    def open_questions(self) -> int:
        """Questions of its lanes that have no answer yet."""
        return 0 if self._mailbox is None else len(self._mailbox)

    @property
    def quiet(self) -> bool:
        """No lane is busy: nothing will happen until an answer comes."""
        return self.busy == 0

    def lane_busy(self) -> None:
        self.busy += 1

    def lane_idle(self) -> None:
        self.busy -= 1
        assert self.busy >= 0, f"more idle lanes than there are: {self!r}"
        if self.busy == 0 and self.on_quiet is not None:
            self.on_quiet()

    def statistics(self) -> ActorStatistics:
        return ActorStatistics(self.state, self.busy, self.branches, self.mailbox.statistics(), self.cancel_reason)

    def __repr__(self) -> str:
        reason = f" cancelled={self.cancel_reason.value}" if self.cancel_reason else ""
        return f"<Actor {self.name} {self.state.value} busy={self.busy} {self.mailbox!r}{reason}>"


class Lane:
    """The body of an actor, or one of its branches, as far as the count of busy lanes is concerned.

    A lane knows its actor, and no actor knows its lanes, so that they hold no cycle. An actor is made with one busy lane,
    `Lane(actor)`, which whoever runs its body makes.

    `path` is empty for the body and `/1/2` for the second branch of its first branch: stable from run to run. `depth` is 0 for
    the body and one more for each branch below it.
    """

    __slots__ = (
        "_asked",
        "_children",
        "_joining",
        "_named",
        "_names",
        "_open",
        "actor",
        "depth",
        "parent",
        "path",
        "scope",
        "siblings",
    )

    def __init__(
        self, actor: Actor, path: str = "", parent: Lane | None = None, siblings: Siblings | None = None
    ) -> None:
        self.actor = actor
        self.path = path
        self.parent = parent
        self.siblings = siblings
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.scope: trio.CancelScope | None = None
        """The scope that ends when its own time is up; None without a limit. Nobody else cancels it."""
        self._open = 0
        self._joining = 0
        self._children = 0
        self._asked = 0
        self._named: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()

    def next_key(self, kind: str) -> str:
        """A key for the next question of this lane, the same in every run of the same body."""
        self._asked += 1
        return f"{kind}{self.path}-{self._asked}"

    def named_key(self, name: str) -> str:
        """The same for a question that its author named: the name alone, where no other question of the call can have it."""
        key = self.next_key(name)
        if self.path or name in self._named:
            return key
        self._named = (*self._named, name)
        return name

    @property
    def order(self) -> tuple[int, ...]:
        """Where this lane's newest question stands among those of its call: by branch, then in the order asked."""
        return (*map(int, self.path.split("/")[1:]), self._asked)

    def use_name(self, name: str) -> str:
        """The same for a step that has a name of its own.

        Raises:
            ValueError: this lane has used the name.
        """
        if name in self._names:
            raise ValueError(f"the step {name!r} was used already: a name identifies one step of a call")
        self._names = (*self._names, name)
        return f"{self.path}:{name}"

    def free_name(self, name: str) -> None:
        """The step was not done: its name may be used again."""
        self._names = tuple(used for used in self._names if used != name)

    def next_path(self) -> str:
        """The path of this lane's next branch."""
        self._children += 1
        return f"{self.path}/{self._children}"

    @property
    def reason(self) -> CancelReason | None:
        """Why it was cancelled; the first reason stands. None while it was not."""
        cancelled = self.cancellation
        return None if cancelled is None else cancelled.reason

    @property
    def cancellation(self) -> Cancellation | None:
        """The same with the time of it."""
        first = self.actor.cancellation if self.parent is None else self.parent.cancellation
        if self.siblings is not None and self.siblings.failed_at < math.inf:  # which is noted only where it came first
            first = Cancellation(self.siblings.failed_at, CancelReason.SIBLING)
        scope = self.scope
        if scope is not None and scope.cancel_called and (first is None or scope.deadline < first.at):
            first = Cancellation(scope.deadline, CancelReason.DEADLINE)
        return first

    def begin_wait(self) -> None:
        """A question of this lane was opened."""
        self._open += 1
        if self._open == 1 and not self._joining:
            self.actor.lane_idle()

    def end_wait(self) -> None:
        """One of its questions was settled or given up."""
        self._open -= 1
        if self._open == 0 and not self._joining:
            self.actor.lane_busy()

    def begin_join(self) -> None:
        """The lane starts to wait for branches."""
        self._joining += 1
        if self._joining == 1 and not self._open:
            self.actor.lane_idle()

    def end_join(self) -> None:
        """The branches it waited for have ended."""
        self._joining -= 1
        if self._joining == 0 and not self._open:
            self.actor.lane_busy()

    def __repr__(self) -> str:
        state = "joining" if self._joining else "waiting" if self._open else "busy"
        return f"<Lane {self.path or 'body'} {state}>"
