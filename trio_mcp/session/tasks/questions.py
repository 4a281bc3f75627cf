"""The questions of a task on the stream of `tasks/result` (2025-11-25): each goes out as a request that names the task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from ...base.groups import UnwrappedErrors
from ...errors import Disconnected, LimitExceeded, LocalProtocolError, MalformedAnswer, QuestionRejected
from ...protocol.jsonrpc import Encoded
from ...runtime import Actor, Lane, Supervisor
from ...runtime.quota import Quota
from ...types import Model
from ..calls.asks_requests import CallByRequests
from ..calls.call import Call
from ..calls.facts import Question, RequestFacts
from ..calls.legs import OpenQuestion
from .open_task import OpenTask
from .record import TaskRecord

PROMPT: Final = "elicit"
"""The kind of the questions that the user sees."""


class Asking(Protocol):
    """A task whose questions are asked, which runs here or in another process.

    Attributes:
        questions: the open ones, by key.
        is_open: more may be asked.
        asker: who asks them; None while there is no one.
    """

    asker: object

    @property
    def record(self) -> TaskRecord: ...

    @property
    def questions(self) -> Mapping[str, OpenQuestion]: ...

    @property
    def is_open(self) -> bool: ...

    async def wait_change(self) -> None:
        """Wait until something about it changes."""

    def wake(self) -> None:
        """Wake all who wait for a change."""

    async def answer(self, answers: Mapping[str, Model | Exception]) -> None:
        """Hand over answers, or what a client answered instead. Raises `LimitExceeded`."""

    def left_alone(self) -> None:
        """Note that its questions go out on a stream no more."""


async def ask_until_over(task: Asking, call: Call, lane: Lane) -> None:
    """Ask what the task asks, in this call, until the task is over. Only one call at a time asks; others wait for the end.

    A cancel withdraws what is open on this stream; it stays open in the task, and the next call asks it again.
    """
    try:
        await _ask_while(task, call, call, lane, {}, lambda: task.is_open)
    finally:
        task.left_alone()


async def ask_open_ones(
    task: OpenTask, asker: object, call: Call, lane: Lane, asking: dict[str, trio.CancelScope]
) -> None:
    """Ask what the task asks, in this call, until it asks nothing more.

    Args:
        asker: who asks, in `OpenTask.asker`.
        asking: gets what is asked, by key; what has been answered is removed.
    """
    await _ask_while(task, asker, call, lane, asking, lambda: task.is_open and bool(task.questions))


async def _ask_while(
    task: Asking,
    asker: object,
    call: Call,
    lane: Lane,
    asking: dict[str, trio.CancelScope],
    goes_on: Callable[[], bool],
) -> None:
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            try:
                while goes_on():
                    if task.asker in (None, asker):
                        task.asker = asker
                        _ask_new(task, call, lane, nursery, asking)
                    await task.wait_change()
            finally:
                if task.asker is asker:
                    task.asker = None
                    # Another call may ask from now on.
                    task.wake()
            nursery.cancel_scope.cancel()


def _ask_new(task: Asking, call: Call, lane: Lane, nursery: trio.Nursery, asking: dict[str, trio.CancelScope]) -> None:
    """Ask what is new, and withdraw what was answered elsewhere, or is no longer asked.

    Of those for the user one at a time goes out, as in any call; started together, Trio would send them in any order.
    """
    for key in asking.keys() - task.questions.keys():
        asking.pop(key).cancel()
    at_once = call.services.options.parallel_prompts
    prompting = any(task.questions[key].question.kind == PROMPT for key in asking)
    for key, asked in sorted(task.questions.items(), key=lambda item: item[1].order):
        is_prompt = asked.question.kind == PROMPT and not at_once
        if key not in asking and not (is_prompt and prompting):
            prompting = prompting or is_prompt
            scope = asking[key] = trio.CancelScope()
            params = asked.question.params
            meta = call.facts.terms.codec.related_meta(task.record.id, getattr(params, "meta", None))
            # Its key names it on the stream too, so that an answer which came there before a restart is not given to another one.
            question = asked.question._replace(params=params.model_copy(update={"meta": meta}), name=key)
            nursery.start_soon(_ask, task, key, question, call, lane, scope)


async def _ask(
    task: Asking, key: str, question: Question[Model], call: Call, lane: Lane, scope: trio.CancelScope
) -> None:
    answer: Model | Exception
    with scope:
        try:
            answer = await call.ask(lane, question)
        except (QuestionRejected, MalformedAnswer, LimitExceeded) as error:
            answer = error.with_traceback(None)
        except Disconnected:
            return
        try:
            await task.answer({key: answer})
        except LimitExceeded:
            if key in task.questions:
                raise
            # The lane has it, and the next write stores it: the stream goes on. Until then a replay asks again.


# The questions of tasks whose results no request waits for (2025-11-25): they go out on their session's own channel.
#
# A client that sees `input_required` should ask for the result, on whose stream the questions come. Some hosts only poll the
# state; the specification lets them expect messages of a task on any stream. So a task asks on the session's channel if its
# questions have not been fetched during the time of two polls. It does so once for each question.

POLLS: Final = 2
"""A client that does what the specification says sees the question in its next poll, and fetches it before the one after."""

_NOTHING: Final = Encoded(b"{}")


@dataclass(slots=True, eq=False)
class Unattended:
    """The tasks that have a question which no client has fetched yet.

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
        # The server is full, or shutting down; a request for the result still gets the question.
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
    """Let a call of `tasks/result` ask the open questions, unless its user may already see them."""
    asking = task.asker
    if not isinstance(asking, OwnAsking) or asking.withdraw is None:
        return
    session = None if facts.session is None else facts.session.facts
    if session is not task.session or session is None or session.is_reachable is None or not session.is_reachable():
        asking.withdraw()
