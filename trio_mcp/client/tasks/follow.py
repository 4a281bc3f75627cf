"""Following a task to its end: waiting for its changes, answering its questions, and reading what came of it.

What waits is the caller's task, so that its cancel, its timeout and its context variables apply to the handlers of the questions.
A `TaskWatch` keeps up with the server meanwhile, for as long as somebody waits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import trio

from ...base.logs import peer_logger
from ...errors import (
    LimitExceeded,
    McpError,
    PeerError,
    RemoteProtocolError,
    RequestTimeout,
    TaskCancelled,
    without_traceback,
)
from ...types import (
    CallToolResult,
    CancelTaskResult,
    InputRequest,
    JsonObject,
    Model,
    RequestParams,
    Task,
    TaskRequestParams,
    UpdateTaskRequestParams,
)
from ..known_task import KnownTask
from ..link import Link
from ..options import add_option_note
from .watch import SessionWatch, StreamWatch, TaskWatch, ask_state, read_payload, request_again

# One follower for each handle, or for each call that the server answered with a task:
#
#     the caller's task                              the watch, in a task of the link
#     ---------------------------------------------+-------------------------------------------
#     enters `_watching`                             starts; subscribes, and asks for the state
#     parks                                          takes a state: wakes all who wait
#     a question: its handler, then `tasks/update`   takes a state without it: cancels the handler
#     parks                                          takes the last state
#     reads the outcome, leaves `_watching`          is stopped


logger = peer_logger("trio_mcp.client")

CANCEL_TIMEOUT: Final = 2.0
"""Seconds that cancelling the task of a call may take which was itself cancelled."""


class Follower(ABC):
    """Follows one task, in the way of the revision that the server speaks.

    Args:
        asker: the name of the tool, where it is known.
        max_rounds: how many times the task may ask; a round is what it asks at the same time.
        idle_timeout: seconds without a change after which the wait ends. The time of an answer does not count.
    """

    def __init__(
        self, link: Link, known: KnownTask, asker: str, max_rounds: int, idle_timeout: float = math.inf
    ) -> None:
        self.known = known
        self._link = link
        self._asker = asker
        self._max_rounds = max_rounds
        self._idle_timeout = idle_timeout

    # for those who wait

    async def status(self) -> Task:
        """Ask for the state of the task, and return it. Raises the errors of the request."""
        known = self.known
        if known.is_over:
            await trio.lowlevel.checkpoint()
        else:
            await ask_state(self._link, known)
        assert known.newest is not None
        return known.newest

    async def result(self, on_change: Callable[[Task], None] | None = None) -> CallToolResult:
        """Wait until the task is over, and return its result.

        Args:
            on_change: called with each change.

        Raises:
            TaskCancelled: it was cancelled.
            PeerError: it failed, or the server no longer knows it.
            LimitExceeded: it asked in more rounds than it may.
            RequestTimeout: it did not change in `idle_timeout` seconds.
            Exception: what the tool raised, with `raise_exceptions=True`; the first time only.

        A cancel leaves the task as it is.
        """
        known = self.known
        seen = known.newest

        def is_enough() -> bool:
            return self._is_settled or (on_change is not None and known.newest != seen)

        if not self._is_settled:
            with self._watching(wants_result=True) as watch:
                while not self._is_settled:
                    await self._advance(watch, is_enough)
                    if on_change is not None and known.newest is not None and known.newest != seen:
                        seen = known.newest
                        on_change(seen)
        await trio.lowlevel.checkpoint()
        if self._link.is_connected and (raised := self._link.session.raised) is not None:
            raised.raise_for_task(known.id)
        return self._outcome()

    async def change(self, seen: Task | None) -> Task:
        """Wait until the task is not as it was seen; raises as `result` does, but for its outcome."""
        known = self.known
        if known.newest is None or known.newest == seen:
            asking = seen is not None and seen.status == "input_required"
            with self._watching(wants_result=asking) as watch:
                # Of a task that asks on the stream of its result, the stream stays open until that is answered.
                await self._advance(watch, lambda: known.newest not in (None, seen) and not self._is_asking(watch))
        await trio.lowlevel.checkpoint()
        assert known.newest is not None
        return known.newest

    async def cancel(self) -> None:
        """Cancel the task; returns when the server has agreed. A task that is over stays as it is.

        Raises the errors of the request.
        """
        known = self.known
        if known.is_over:
            await trio.lowlevel.checkpoint()
            return
        answer = await self._request_unless_over("tasks/cancel", TaskRequestParams(task_id=known.id))
        if isinstance(answer, CancelTaskResult) and answer.task is not None:
            known.take(answer.task)

    async def clean_up(self) -> None:
        """Cancel the task, whose result is no longer needed. Shielded, bounded; raises none of the server's errors."""
        if self.known.is_over or not self._link.is_connected:
            return
        with trio.move_on_after(CANCEL_TIMEOUT, shield=True):
            try:
                await self._link.request("tasks/cancel", TaskRequestParams(task_id=self.known.id))
            except McpError as error:
                logger.info("a task that is no longer needed was not cancelled: %s", error)

    # one step each

    @abstractmethod
    def _watch(self, *, wants_result: bool) -> TaskWatch:
        """Return what keeps up with the task."""

    @property
    @abstractmethod
    def _is_settled(self) -> bool:
        """Whether all that `_outcome` needs is known."""

    @abstractmethod
    def _outcome(self) -> CallToolResult:
        """Return the result of a task that is settled, or raise what came of it instead."""

    def _is_asking(self, watch: TaskWatch) -> bool:  # noqa: ARG002
        return False

    async def _answer_next(self) -> bool:
        """Answer what the task asks, if no one else does; return whether there was anything to do."""
        return False

    @contextmanager
    def _watching(self, *, wants_result: bool) -> Generator[TaskWatch]:
        watch = self._watch(wants_result=wants_result)
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()

    async def _advance(self, watch: TaskWatch, is_enough: Callable[[], bool]) -> None:
        """Wait for changes, and answer questions, until it is enough."""
        while not is_enough():
            if watch.failure is not None:
                raise without_traceback(watch.failure)
            if await self._answer_next():
                continue
            newest = self.known.newest
            idle = math.inf if newest is not None and newest.status == "input_required" else self._idle_timeout
            with trio.move_on_after(idle) as scope:
                await self.known.wait()
            if scope.cancelled_caught:
                raise RequestTimeout(f"the task did not change for {idle:g} seconds")

    async def _request_unless_over(self, method: str, params: RequestParams) -> Model | None:
        """Send a request about the task; return None if the server refuses it because the task is over.

        Raises the errors of the request.
        """
        try:
            return await request_again(self._link, method, params)
        except PeerError as error:
            refused = without_traceback(error)
        # The server may not know it any more, or refuse this too: the first error says more then.
        with suppress(PeerError):
            await self.status()
        if not self.known.is_over:
            raise refused
        return None


class DeclaredFollower(Follower):
    """Follows a task of the extension, which holds its questions and its outcome itself."""

    def __init__(
        self, link: Link, known: KnownTask, asker: str, max_rounds: int, idle_timeout: float = math.inf
    ) -> None:
        super().__init__(link, known, asker, max_rounds, idle_timeout)
        self._rounds = 0
        self._is_answering = False
        self._answered: set[str] = set()
        """Keys of the questions that have an answer; the server never uses one again (M-TSK-5)."""
        self._unsent: dict[str, JsonObject] = {}
        """Answers that the server may not have."""

    def _watch(self, *, wants_result: bool) -> TaskWatch:  # noqa: ARG002
        return StreamWatch(self._link, self.known)

    @property
    def _is_settled(self) -> bool:
        return self.known.outcome is not None or self.known.is_over

    def _outcome(self) -> CallToolResult:
        known = self.known
        if known.outcome is None:
            known.outcome = self._read_outcome()
        return outcome_of(known.outcome)

    def _read_outcome(self) -> CallToolResult | Exception:
        task = self.known.details
        if task is None or task.status == "cancelled":
            message = None if self.known.newest is None else self.known.newest.status_message
            return TaskCancelled(self.known.id, message)
        if task.status == "failed" and task.error is not None:
            error = PeerError(task.error.code, task.error.message, task.error.data)
            add_option_note(error)
            return error
        if task.result is None:
            return RemoteProtocolError(f"the task is {task.status}, and the server did not send what came of it")
        return read_payload(self._link, task.result)

    async def _answer_next(self) -> bool:
        if self._is_answering:
            return False
        asked = {key: question for key, question in self.known.questions.items() if key not in self._answered}
        if not asked and not self._unsent:
            return False
        self._is_answering = True
        try:
            if asked:
                await self._ask(asked)
            if self._unsent:
                await self._send_answers()
        finally:
            self._is_answering = False
            # Another task that waits for the same one may go on.
            self.known.wake()
        return True

    async def _ask(self, asked: Mapping[str, InputRequest]) -> None:
        """Have the handlers answer; cancel them if the task no longer asks any of it."""
        if self._rounds >= self._max_rounds:
            raise LimitExceeded(f"the task asked in more than {self._max_rounds} rounds; the limit is max_rounds")
        self._rounds += 1
        with trio.CancelScope() as scope:
            self.known.on_change = lambda: self._withdraw(asked, scope)
            try:
                answers = await self._link.rounds.answer(self._asker, asked, self._link.session.terms.codec)
            finally:
                self.known.on_change = None
            self._answered.update(answers)
            self._unsent.update(answers)

    def _withdraw(self, asked: Mapping[str, InputRequest], scope: trio.CancelScope) -> None:
        if self.known.questions.keys().isdisjoint(asked):
            scope.cancel()

    async def _send_answers(self) -> None:
        answers = dict(self._unsent)
        params = UpdateTaskRequestParams(task_id=self.known.id, input_responses=answers)
        await self._request_unless_over("tasks/update", params)
        # What came meanwhile stays: only one task answers at a time, so nothing did.
        self._unsent.clear()


class RequestedFollower(Follower):
    """Follows a task of 2025-11-25, which asks on the stream of its result; the session serves its questions."""

    def _watch(self, *, wants_result: bool) -> TaskWatch:
        return SessionWatch(self._link, self.known, wants_result=wants_result)

    @property
    def _is_settled(self) -> bool:
        return self.known.outcome is not None

    def _outcome(self) -> CallToolResult:
        known = self.known
        assert known.outcome is not None
        if isinstance(known.outcome, PeerError) and known.newest is not None and known.newest.status == "cancelled":
            raise TaskCancelled(known.id, known.newest.status_message)
        return outcome_of(known.outcome)

    def _is_asking(self, watch: TaskWatch) -> bool:
        newest = self.known.newest
        return (
            isinstance(watch, SessionWatch)
            and watch.wants_result
            and newest is not None
            and newest.status == "input_required"
        )


def outcome_of(outcome: CallToolResult | Exception) -> CallToolResult:
    """Return a result, or raise what there is instead of one."""
    if isinstance(outcome, Exception):
        # Each who waits gets its own: a shared one would collect the tracebacks of all of them.
        raise without_traceback(outcome)
    return outcome
