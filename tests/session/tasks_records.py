"""What a machine of tasks keeps of the tasks that its callers know, of what they sent, and of what they are asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from talk import Talk
from tasks_model import Case

from trio_mcp.types import RequestId

CALLERS = ("ana", "ana", "ben", None, None)
"""Who the callers are authenticated as. The second is another session of the first."""


@dataclass(eq=False)
class Task:
    """A task whose id a caller has.

    Attributes:
        talk: where it was created.
        expires: when its ttl is over, in Unix seconds.
        high: the latest time that any clock has shown since.
        has_session: it belongs to the session that created it, since there is no authentication.
        stage: the newest status message that was seen.
        end: how it ended, as a caller saw it: in which way, and with which text if that is known.
        cancels: somebody has asked for its cancel, or its session has ended.
        is_over: a caller has received the answer that it is cancelled, or too late to cancel.
        open: its open questions as a modern caller has seen them last: their numbers, by key.
        known: all of them, ever.
        posted: those whose answers were acknowledged, and wait in the store for the process that works on the task.
        answered: the numbers of those whose answers were acknowledged and taken.
    """

    id: str
    case: Case
    talk: Talk
    expires: float
    high: float
    stage: int = 0
    end: tuple[str, str | None] | None = None
    cancels: bool = False
    is_over: bool = False
    open: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    posted: dict[str, int] = field(default_factory=dict)
    answered: set[int] = field(default_factory=set)

    @property
    def has_session(self) -> bool:
        return self.case.era == "legacy" and CALLERS[self.case.caller] is None

    def is_visible_to(self, talk: Talk) -> bool:
        if self.has_session:
            return talk is self.talk
        owner = CALLERS[self.case.caller]
        return owner is None or talk.peer.principal == owner


@dataclass(eq=False)
class Sent:
    """A request.

    Attributes:
        about: its method, or "create" and "call" for a call.
        view: what its sender may know of the task when it is sent.
        values: the answers that it brings, by the numbers of their questions.
        is_repeat: it repeats another one under its key.
        due: when its answer has to be there, on Trio's clock.
    """

    talk: Talk
    about: str
    case: Case | None = None
    task: Task | None = None
    view: str = ""
    values: dict[int, str] = field(default_factory=dict)
    is_repeat: bool = False
    due: float = -math.inf


@dataclass(eq=False)
class Asked:
    """A question that came as a request."""

    talk: Talk
    id: RequestId
    case: Case
    each: int
    is_open: bool = True


@dataclass(eq=False)
class Round:
    """The state of a call that waits for answers, and its questions: their numbers by key."""

    case: Case
    state: str
    questions: dict[str, int]
