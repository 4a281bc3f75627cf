"""The questions of tasks whose results no request waits for (2025-11-25): they go out on their session's own channel.

A client that sees `input_required` should ask for the result, on whose stream the questions come. Some hosts poll the state and
nothing else; the specification lets them expect messages of a task on any stream, so a task asks there when nobody has come to
fetch its questions for the time of two polls. It does so once for each question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from ...errors import LimitExceeded, LocalProtocolError
from ...protocol.jsonrpc import Encoded
from ...runtime import Actor, Lane, Supervisor
from ...runtime.quota import Quota
from ..calls.asks_requests import CallByRequests
from ..calls.facts import RequestFacts
from .open_task import OpenTask
from .questions import ask_open_ones

POLLS: Final = 2
"""A client that does what the specification says sees the question in its next poll, and fetches it before the one after."""

_NOTHING: Final = Encoded(b"{}")


@dataclass(slots=True, eq=False)
class Unattended:
    """The tasks that have a question which nobody has fetched yet.

    Args:
        patience: seconds that they wait before they ask on their session's channel.
    """

    _supervisor: Supervisor
    _waits: Quota
    patience: float
    _due: deque[tuple[float, OpenTask]] = field(default_factory=deque[tuple[float, OpenTask]])
    _is_waiting: bool = False

    def note(self, task: OpenTask) -> None:
        """Wait with a task for its client, if one of its questions may have to go out on the session's channel."""
        if task.is_unattended or not _has_unasked(task):
            return
        task.is_unattended = True
        self._due.append((trio.current_time() + self.patience, task))
        if not self._is_waiting:
            self._is_waiting = True
            self._supervisor.spawn(self._ask_when_due)

    async def _ask_when_due(self) -> None:
        """All wait for the same time, so that the first in the queue is the first that is due."""
        try:
            while self._due:
                due, task = self._due[0]
                await trio.sleep_until(due)
                self._due.popleft()
                task.is_unattended = False
                if _has_unasked(task) and not _begin(task, self._waits):
                    # Its channel is full, or as many ask as may.
                    self.note(task)
        finally:
            self._is_waiting = False


def _has_unasked(task: OpenTask) -> bool:
    if task.asker is not None or not task.is_open or task.session is None or task.session.ask is None:
        return False
    return not task.questions.keys() <= task.asked_unattended


def _begin(task: OpenTask, waits: Quota) -> bool:
    """Ask on the session's channel; return False if that has to be tried again."""
    session, work = task.session, task.work
    if session is None or session.ask is None or session.is_reachable is None or work is None:
        return True
    if not session.is_reachable():
        # `Tasks.reached` comes then.
        return True
    asking = OwnAsking(task, work.facts, waits)
    try:
        waits.take(task.caller)
    except LimitExceeded:
        return False
    try:
        asking.withdraw = session.ask(asking)
    except (LimitExceeded, LocalProtocolError):
        # The server is full, or shutting down; whoever asks for the result still gets the question.
        asking.withdraw = None
    if asking.withdraw is None:
        waits.give_back(task.caller)
        return False
    # At once: a call of `tasks/result` may come before the work of this one begins.
    task.asker = asking
    return True


@dataclass(slots=True, eq=False)
class OwnAsking:
    """Asks the questions of one task on its session's channel.

    Attributes:
        facts: the request that created the task.
        waits: counts it: the client has the result to wait for, as with `tasks/result`.
        withdraw: ends it, and takes back what is open; None if the client cannot be reached.
    """

    task: OpenTask
    facts: RequestFacts
    waits: Quota
    withdraw: Callable[[], None] | None = None

    async def run(self, call: object, place: Actor | Lane) -> Encoded:
        """Ask until nothing is open; run as the body of a call whose messages go out there."""
        assert isinstance(call, CallByRequests)
        task, asking = self.task, dict[str, trio.CancelScope]()
        try:
            await ask_open_ones(task, self, call, place if isinstance(place, Lane) else Lane(place), asking)
        finally:
            # The author may ask again under another key, but these are not sent twice without being fetched.
            task.asked_unattended = frozenset(asking) & task.questions.keys() | task.asked_unattended
        return _NOTHING

    def ended(self) -> None:
        """Let others ask, also if the call was cancelled before its body began."""
        self.waits.give_back(self.task.caller)
        if self.task.asker is self:
            self.task.asker = None
            self.task.wake()


def leave_to(task: OpenTask, facts: RequestFacts) -> None:
    """Let a call of `tasks/result` ask what is open, unless that may be on the screen of its own user already."""
    asking = task.asker
    if not isinstance(asking, OwnAsking) or asking.withdraw is None:
        return
    session = None if facts.session is None else facts.session.facts
    if session is not task.session or session is None or session.is_reachable is None or not session.is_reachable():
        asking.withdraw()
