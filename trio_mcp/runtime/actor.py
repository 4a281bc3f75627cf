"""An actor is one logical call: its cancel scope, mailbox, journal and lanes, and exactly one outcome.

The body of an actor and each of its branches is a *lane*. A lane is busy (it can still do something on its own), waiting (at
least one of its questions is open) or joining (it waits for branches). The actor counts the busy ones. When none is left,
nothing more will happen until an answer arrives, so the owner of the actor can send all of its questions together. The rules of
the count, each with a test:

- a branch is busy from the moment it is created, before its task first runs;
- an answer makes its lane busy in the step that delivers it, not when the lane wakes;
- when the last branch that a lane joins ends, its busyness passes to that lane, so the count never touches zero in between;
- a lane with several open questions waits as long as one of them is open;
- a lane that is cancelled while it waits withdraws its questions and becomes busy again, since its clean-up runs.

A lane is cancelled with its actor, with the lane that it is a branch of, by a sibling that fails, or when its timeout expires.
`Lane.reason` says which came first.
"""

# States of an actor, and who changes them. Parking is about the caller, not about the body: the lanes of a parked actor are the
# same as before, and its scope has only another deadline.
#
#   state              event                                     next       mailbox   on_done
#   -                  Supervisor.start                          RUNNING    open
#   RUNNING            Supervisor.park                           PARKED     open
#   PARKED             Supervisor.resume                         RUNNING    open
#   RUNNING, PARKED    cancel, or a deadline                     same       open
#   RUNNING, PARKED    the body ends                             DONE       closed    the outcome
#   RUNNING, PARKED    the grace period after a cancel expires   STUCK      closed    Cancelled(reason)
#   STUCK              the body ends                             DONE       closed    (was called already)
#
# States of a lane, by its two counters. Only the way from and to (0, 0) changes `Actor.busy`: a lane with open questions can join
# branches at the same time, for it may have several tasks.
#
#   open questions   joins   state
#   0                0       busy
#   1 or more        0       waiting
#   any              1 +     joining
#
# Example: a body starts two branches that ask one question each; the answers arrive together.
#
#   step                                      busy   what happens
#   the actor is started                      1      the body, before its task first runs
#   branches.start(a)                         2      a, before its task first runs
#   branches.start(b)                         3
#   the block of `branches` ends: join        2
#   a asks                                    1
#   b asks                                    0      on_quiescent: both questions are sent, and the actor is parked
#   the answers are posted: a, b              2      in these steps, before a task runs; the actor was resumed
#   a ends                                    1
#   b ends                                    1      +1 for the body, which joined the two, then -1 for b: never 0
#
# Without the last rule the count would be 0 between the end of b and the next step of the body, and the next round of questions
# would be sent without those that the body is about to ask.

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from enum import Enum, StrEnum
from typing import Final, Protocol, TypeAlias, TypeVar

import trio

from .. import runtime
from ..base.named_tuples import NamedTuple
from ..errors import Disconnected
from .journal import Journal
from .mailbox import Mailbox, Slot
from .memory_budget import Account

T = TypeVar("T")


class CancelReason(StrEnum):
    """Why a call or a branch was cancelled. If there are several reasons, the first one is kept."""

    CLIENT = "client"
    DISCONNECT = "disconnect"
    DEADLINE = "deadline"
    EXPIRED = "expired"
    SHUTDOWN = "shutdown"
    FENCED = "fenced"
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


class Place(Protocol):
    """What a running actor holds and a parked one does not, such as one of the places of a tool that limits its calls."""

    def leave(self) -> None:
        """Give the place back; called when the actor is parked."""

    async def enter(self) -> None:
        """Wait for a place again, if it was given back; called when an answer has come or timed out, before the lane goes on."""

    def claim(self) -> None:
        """Take a place at once, whether or not one is free; called when a lane goes on that must not wait."""


class ActorState(Enum):
    """Running for a request, parked between two requests of its caller, stuck, or done.

    A stuck actor was cancelled and did not end within its grace period. Its caller got an error, and its body still runs.
    """

    RUNNING = "running"
    PARKED = "parked"
    STUCK = "stuck"
    DONE = "done"


# Each actor has both, and to read a member of an enum takes ten times as long as a name of a module.
RUNNING: Final = ActorState.RUNNING
DONE: Final = ActorState.DONE

FINISHED_STATES = (ActorState.STUCK, ActorState.DONE)
CALL_OVER_MESSAGE = "the call is over, or its caller has been answered: it gets no more answers"


class Returned(NamedTuple):
    """The body returned this value."""

    value: object


class Raised(NamedTuple):
    """The body raised this."""

    error: BaseException


class Cancelled(NamedTuple):
    """The body was cancelled, for this reason."""

    reason: CancelReason


Outcome: TypeAlias = Returned | Raised | Cancelled


# Compared by identity: two actors are never the same call. Slots, because a server may hold thousands of actors.
class Actor:
    """One logical call. Made by `Supervisor.start`; its owner cancels it, parks it and posts to its mailbox."""

    __slots__ = (
        "__weakref__",
        "_journal",
        "account",
        "begin",
        "branches",
        "budget",
        "busy",
        "caller",
        "cancel_reason",
        "cancelled_at",
        "deadline",
        "lanes",
        "name",
        "numbered",
        "on_cancel",
        "on_done",
        "on_quiescent",
        "opened_mailbox",
        "overdue_at",
        "place",
        "principal",
        "scope",
        "started_at",
        "state",
        "task",
        "was_admitted",
    )

    def __init__(self, name: str, principal: str | None, deadline: float, journal: Journal | None = None) -> None:
        self.name = name
        self.principal = principal
        self.deadline = deadline
        """When the whole call must be over, on Trio's clock (seconds); `inf` for never. Parking does not move it."""
        self._journal = journal
        self.opened_mailbox: Mailbox | None = None
        self.scope = trio.CancelScope()
        self.cancel_reason: CancelReason | None = None
        self.cancelled_at = math.inf
        """When `cancel_reason` was set, on Trio's clock (seconds)."""
        self.state: ActorState = RUNNING
        self.busy = 1
        """Number of busy lanes; the first is the body's, before its task first runs."""
        self.branches = 0
        self.budget: runtime.TokenBudget | None = None
        """The tokens that all runs of its body share; None without a limit."""
        self.place: Place | None = None
        self.was_admitted = False
        """It goes on with what an earlier actor began, and waits for a place that it lacks, as a parked one does."""
        self.account: Account | None = None
        """What it draws from the memory budget; closed at its end."""
        self.numbered = 0
        """How many questions its owner has numbered."""
        self.on_quiescent: Callable[[], None] | None = None
        """Called whenever the last busy lane stops being busy."""
        self.on_cancel: Callable[[Actor], None] | None = None
        """Called by `cancel`, before the scope is cancelled."""
        self.on_done: Callable[[Actor, Outcome], None] | None = None
        """Called once with the outcome; None afterwards."""
        self.overdue_at = math.inf
        """When it is stuck if it has not ended, on Trio's clock (seconds); set by `CleanupDeadlines` only."""
        self.task: trio.lowlevel.Task | None = None
        """The task that runs its body, while it does."""
        self.begin: Callable[[], None] | None = None
        """Starts that task, if it was delayed; None afterwards."""
        self.caller: Hashable | None = None
        """What it counts for in the limits that callers share; see `Quota`."""
        self.started_at = math.inf
        """When it was started, on Trio's clock (seconds)."""
        self.lanes: dict[Lane, trio.lowlevel.Task | None] | None = None
        """The lanes below the body that run now, oldest first, and their tasks, once they have run; None before the first."""

    @property
    def mailbox(self) -> Mailbox:
        """The mailbox for the answers to its questions; made when it first asks, since most calls never do."""
        if self.opened_mailbox is None:
            self.opened_mailbox = Mailbox()
            # A thread of a stuck or finished call may still ask. It must get an error instead of blocking forever.
            if self.state in FINISHED_STATES:
                self.opened_mailbox.close(Disconnected(CALL_OVER_MESSAGE))
        return self.opened_mailbox

    @property
    def journal(self) -> Journal:
        """The journal of its steps and answers; made when the first is recorded."""
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    def cancel(self, reason: CancelReason) -> None:
        """Cancel the actor's scope. It unwinds through its `finally` blocks; the first reason given is the one it sees."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
            self.cancelled_at = trio.current_time()
        if self.on_cancel is not None:
            self.on_cancel(self)
        self.scope.cancel()
        self.wake()

    def wake(self) -> None:
        """Start the task of the body, if it was delayed."""
        begin, self.begin = self.begin, None
        if begin is not None:
            begin()

    def retire(self, state: ActorState) -> None:
        """Enter a final state, DONE or STUCK: its open questions fail, and its code that still runs, such as a thread, cannot
        ask."""
        self.state = state
        if self.opened_mailbox is not None:
            self.opened_mailbox.close(Disconnected(CALL_OVER_MESSAGE))

    def keep(self, size: int) -> None:
        """Draw bytes from the memory budget, for what it keeps until it ends.

        Raises:
            LimitExceeded: the budget has no room for them.
        """
        if self.account is not None:
            self.account.take(size)

    @property
    def reason(self) -> CancelReason | None:
        """Why it was cancelled, by its owner or by its deadline; None if it was not cancelled."""
        if self.cancel_reason is not None or not self.scope.cancel_called:
            return self.cancel_reason
        # `cancel`, which everything else calls, keeps the reason.
        return CancelReason.DEADLINE

    @property
    def cancellation(self) -> Cancellation | None:
        """The reason of its cancel with the time, or None."""
        reason = self.reason
        if reason is None:
            return None
        return Cancellation(self.scope.deadline if self.cancel_reason is None else self.cancelled_at, reason)

    @property
    def open_questions(self) -> int:
        """Number of questions of its lanes without an answer."""
        return 0 if self.opened_mailbox is None else len(self.opened_mailbox)

    @property
    def owner(self) -> object:
        """The object whose method `on_done` is: the call. None after the end, and if `on_done` is a plain function."""
        return getattr(self.on_done, "__self__", None)

    def enter(self, lane: Lane, task: trio.lowlevel.Task | None) -> None:
        """Count a lane below the body among those that run, in this task; None until its task first runs."""
        if self.lanes is None:
            self.lanes = {}
        self.lanes[lane] = task

    def leave(self, lane: Lane) -> None:
        """The lane has ended."""
        if self.lanes is not None:
            self.lanes.pop(lane, None)

    def lane_busy(self) -> None:
        self.busy += 1

    def lane_idle(self, *, announce: bool = True) -> None:
        self.busy -= 1
        assert self.busy >= 0, f"more idle lanes than there are: {self!r}"
        if announce and self.busy == 0 and self.on_quiescent is not None:
            self.on_quiescent()

    def __repr__(self) -> str:
        reason = f" cancelled={self.cancel_reason}" if self.cancel_reason else ""
        return f"<Actor {self.name} {self.state.value} busy={self.busy} {self.mailbox!r}{reason}>"


class Lane:
    """The body of an actor, or one of its branches, as far as the count of busy lanes is concerned.

    A lane refers to its actor, but no actor to its lanes, so there is no reference cycle. An actor is made with one busy lane,
    `Lane(actor)`, made by the code that runs its body.

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
        "title",
        "unawaited",
    )

    def __init__(
        self, actor: Actor, path: str = "", parent: Lane | None = None, siblings: Siblings | None = None, depth: int = 0
    ) -> None:
        self.actor = actor
        self.path = path
        self.parent = parent
        self.siblings = siblings
        self.depth = depth
        self.scope: trio.CancelScope | None = None
        """The scope of its timeout; None without one. It is cancelled by its deadline only."""
        self._open = 0
        self._joining = 0
        self._children = 0
        self._asked = 0
        # Tuples and not sets: an empty one costs nothing, and few bodies name more than a handful.
        self._named: tuple[str, ...] = ()
        self._names: tuple[str, ...] = ()
        self.unawaited: tuple[str, ...] = ()
        """What its code has called and not awaited yet; see `check_awaited`."""
        self.title: object = None
        """What it runs, for people: a function, or a name. None for the body."""

    def titled(self, title: object) -> Lane:
        """Say what the lane runs; return the lane."""
        self.title = title
        return self

    @property
    def coming_key(self) -> str:
        """The place of the next question of this lane: the same in every run of the same body."""
        return f"{self.path}-{self._asked + 1}"

    def next_key(self, kind: str) -> str:
        """Return a key for the next question of this lane: the same in every run of the same body."""
        self._asked += 1
        return f"{kind}{self.path}-{self._asked}"

    def named_key(self, name: str) -> str:
        """Return a key for a question that its author named: the name alone if no other question of the call can have it."""
        key = self.next_key(name)
        if self.path or name in self._named:
            return key
        self._named = (*self._named, name)
        return name

    def next_question(self, kind: str, name: str | None) -> tuple[str, tuple[int, ...]]:
        """Return the key of this lane's next question, and its place in the call: by branch, then in the order asked."""
        key = self.next_key(kind) if name is None else self.named_key(name)
        return key, (*map(int, self.path.split("/")[1:]), self._asked)

    def open_question(self, key: str, answer_type: type[T]) -> Slot[T]:
        """Open a slot like `Mailbox.open`, and count the question; the caller checks whether the actor is quiescent."""
        slot = self.actor.mailbox.open(key, answer_type, self.end_wait)
        self.begin_wait(announce=False)  # a sibling may be about to ask in this same step
        return slot

    def use_name(self, name: str) -> str:
        """Return a key for a step with this name.

        Raises:
            ValueError: this lane has used the name.
        """
        if name in self._names:
            raise ValueError(f"the step {name!r} was used already: a name identifies one step of a call")
        self._names = (*self._names, name)
        return f"{self.path}:{name}"

    def free_name(self, name: str) -> None:
        """Allow a name to be used again, because its step did not finish."""
        self._names = tuple(used for used in self._names if used != name)

    def again(self, layer: int, run: int) -> Lane:
        """Return the lane in which a layer of middleware runs the body once more.

        Args:
            run: counts the runs of this layer in this lane; the first one is that in the lane itself.
        """
        # The branches of a lane are numbered from 1, so the part 0 keeps these apart from them.
        return Lane(self.actor, f"{self.path}/0/{layer}/{run}", self, None, self.depth).titled("body again")

    def next_path(self) -> str:
        """Return the path of this lane's next branch."""
        self._children += 1
        return f"{self.path}/{self._children}"

    @property
    def is_busy(self) -> bool:
        """Whether it counts as busy: it neither waits for an answer nor for branches."""
        return not (self._open or self._joining)

    @property
    def is_joining(self) -> bool:
        """Whether it waits for branches."""
        return bool(self._joining)

    @property
    def reason(self) -> CancelReason | None:
        """Why it was cancelled first; None if it was not cancelled."""
        cancelled = self.cancellation
        return None if cancelled is None else cancelled.reason

    @property
    def cancellation(self) -> Cancellation | None:
        """Its first cancellation, with the time; None if it was not cancelled."""
        first = self.actor.cancellation if self.parent is None else self.parent.cancellation
        # `failed_at` is not compared with the time of `first`: it is set only if the parent was not cancelled by then.
        if self.siblings is not None and self.siblings.failed_at < math.inf:
            first = Cancellation(self.siblings.failed_at, CancelReason.SIBLING)
        scope = self.scope
        if scope is not None and scope.cancel_called and (first is None or scope.deadline < first.at):
            first = Cancellation(scope.deadline, CancelReason.DEADLINE)
        return first

    def begin_wait(self, *, announce: bool = True) -> None:
        """Count an open question of this lane; without `announce` the caller checks whether the actor is quiescent."""
        self._open += 1
        if self._open == 1 and not self._joining:
            self.actor.lane_idle(announce=announce)

    def end_wait(self) -> None:
        """Count one open question fewer: it was settled or given up."""
        self._open -= 1
        if self._open == 0 and not self._joining:
            self.actor.lane_busy()

    def begin_join(self) -> None:
        """Count that the lane starts to wait for branches."""
        self._joining += 1
        if self._joining == 1 and not self._open:
            self.actor.lane_idle()

    def end_join(self) -> None:
        """Count that the branches it waited for have ended."""
        self._joining -= 1
        if self._joining == 0 and not self._open:
            self.actor.lane_busy()

    def __repr__(self) -> str:
        state = "joining" if self._joining else "waiting" if self._open else "busy"
        return f"<Lane {self.path or 'body'} {state}>"
