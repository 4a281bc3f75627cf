"""What an actor does now: its lanes as a tree, and the questions that each of them waits for.

A snapshot is derived from what the actors, their lanes and their mailboxes are made of. So nothing is recorded for it while
actors run, and an actor pays nothing for it.
"""

# The task that waits for an answer says which lane asked: it is the task of that lane, or one that the code of the lane has
# started below it. The lane itself does not know, because a question that is sent at once does not make it wait (`actor`).

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice

import trio

from .actor import Actor, ActorState, CancelReason, Lane
from .stacks import CodeLine, code_line


class LaneState(StrEnum):
    """Whether a lane does something, waits for answers, or waits for its branches."""

    RUNNING = "running"
    WAITING = "waiting"
    JOINING = "joining"


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """The body of an actor, or one of its branches.

    Attributes:
        path: "1.2" for the second branch of the first branch; empty for the body.
        name: of the function that it runs; empty if it is not known.
        questions: the keys of the questions whose answers it waits for.
        branches: those that it has started and that run, oldest first.
        at: where it is, if it runs; None if that is not known.
    """

    path: str
    name: str
    state: LaneState
    questions: tuple[str, ...]
    branches: tuple[LaneSnapshot, ...]
    at: CodeLine | None


@dataclass(frozen=True, slots=True)
class ActorSnapshot:
    """An actor at one moment.

    Attributes:
        age: seconds since it was started.
        reason: why it was cancelled; None if it was not.
        body: its lanes, as a tree.
        more_branches: how many branches are not in the tree.
        waiting, busy: how many of all its lanes wait for answers, and how many run.
    """

    name: str
    state: ActorState
    age: float
    reason: CancelReason | None
    body: LaneSnapshot
    more_branches: int
    waiting: int
    busy: int

    def is_waiting(self, queued: int = 0) -> bool:
        """Return whether some lane waits for an answer, and none runs.

        Args:
            queued: lanes that seem to run, but wait to ask.
        """
        return self.waiting > 0 and self.busy <= queued


def snapshot_of(actor: Actor, limit: int) -> ActorSnapshot:
    """Return what an actor does now.

    Args:
        limit: how many of its branches are shown, the oldest first.
    """
    lanes = actor.lanes or {}
    shown = list(islice(lanes, limit))
    children: dict[Lane | None, list[Lane]] = {}
    for lane in shown:
        children.setdefault(parent_of(lane, lanes), []).append(lane)
    questions = questions_of(actor, lanes)
    tasks = {actor.task, *lanes.values()}
    states = {lane: state_of(actor, lane, is_asking=lane in questions) for lane in (None, *lanes)}

    def line_of(lane: Lane | None) -> CodeLine | None:
        task = actor.task if lane is None else lanes[lane]
        return None if task is None or states[lane] is not LaneState.RUNNING else code_line(task, tasks)

    def snapshot(lane: Lane | None) -> LaneSnapshot:
        return LaneSnapshot(
            path="" if lane is None else lane.path.removeprefix("/").replace("/", "."),
            name="" if lane is None else name_of(lane.title),
            state=states[lane],
            questions=tuple(questions.get(lane, ())),
            branches=tuple(map(snapshot, children.get(lane, ()))),
            at=line_of(lane),
        )

    counts = Counter(states.values())
    return ActorSnapshot(
        name=actor.name,
        state=actor.state,
        age=trio.current_time() - actor.started_at,
        reason=actor.reason,
        body=snapshot(None),
        more_branches=len(lanes) - len(shown),
        waiting=counts[LaneState.WAITING],
        busy=counts[LaneState.RUNNING],
    )


def parent_of(lane: Lane, lanes: Mapping[Lane, object]) -> Lane | None:
    """Return the lane of these that a lane was started in; None if that is the body."""
    above = lane.parent
    while above is not None and above not in lanes:
        above = above.parent
    return above


def questions_of(actor: Actor, lanes: Mapping[Lane, trio.lowlevel.Task | None]) -> dict[Lane | None, list[str]]:
    """Return the keys of the open questions by the lane that asks; None is the body."""
    slots = () if actor.opened_mailbox is None else actor.opened_mailbox.slots
    # A branch that is run in the task of its parent comes after it, and hides it: the parent waits for it.
    lane_of = {task: lane for lane, task in lanes.items() if task is not None} if slots else {}
    found: dict[Lane | None, list[str]] = {}
    for slot in slots:
        task = slot.task
        while task is not None and task not in lane_of and task is not actor.task:
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        found.setdefault(None if task is None else lane_of.get(task), []).append(slot.key)
    return found


def state_of(actor: Actor, lane: Lane | None, *, is_asking: bool) -> LaneState:
    """Return the state of a lane; None is the body."""
    if is_asking:
        return LaneState.WAITING
    if lane is not None:
        return LaneState.JOINING if lane.is_joining else LaneState.RUNNING
    # Of the lanes of an actor only the body is not in the table. What the others do not make up of the count is its own.
    busy_branches = sum(each.is_busy for each in actor.lanes or ())
    return LaneState.JOINING if actor.lanes and actor.busy <= busy_branches else LaneState.RUNNING


def name_of(title: object) -> str:
    """Return the name of what a lane runs."""
    while isinstance(title, partial):
        title = title.func
    if title is None or isinstance(title, str):
        return title or ""
    name = str(getattr(title, "__name__", type(title).__name__))
    return "lambda" if name == "<lambda>" else name
