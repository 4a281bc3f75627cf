"""Calls that run as tasks: no request is open, and what they ask waits in the task until somebody brings the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, cast

import trio

from ...errors import LimitExceeded, LocalProtocolError
from ...protocol.jsonrpc import ErrorDetail
from ...protocol.shown_text import CANNOT_SEND, shown_model
from ...runtime import Account, Actor, ActorState, Lane, Outcome
from ...storage import Change
from ...types import CallToolResult, Model
from ..calls.call import Call
from ..calls.facts import Question, ask_traced
from ..calls.failures import check_capabilities, error_detail
from ..calls.legs import OpenQuestion, claim_place
from ..raised import RaisedErrors
from ..recovery.stored_journal import write_held
from .open_task import HeldTask, OpenTask
from .record import TaskOutcome

T = TypeVar("T", bound=Model)

NOT_RECORDED: Final = (
    "the store of this server fails now, and has not recorded the answers; send them again in a moment"
)
ELSEWHERE: Final = "the task runs in another process of this server, which takes its answers"


class CallAsTask(Call[OpenTask]):
    """A call that runs as a task, which is its origin. While all its lanes wait for answers, its actor is parked."""

    __slots__ = ()

    def _open_account(self, size: int) -> Account:
        # Not that of the connection: the task outlives it.
        account = self.services.options.memory.open(None, self.facts.principal)
        account.caller = self._origin.caller
        return account.open(size)

    # questions

    async def ask(self, lane: Lane, question: Question[T]) -> T:
        telemetry = self.services.telemetry
        if telemetry is not None and question.trace is None and not self.is_replaying:
            return await ask_traced(telemetry, self.ask, lane, question, self.facts.protocol_version)
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.actor.scope.cancel_called or self.actor.state is ActorState.DONE:
            self.check_can_ask(sends_requests=False)
        # Of the request that made the task: a client that picks it up may well have the handler, and reads this.
        check_capabilities(self.facts, question, whose="the one that started the task")
        key, order = lane.next_question(question.kind, question.name)
        fingerprint = ""
        if self.memory is not None:
            fingerprint = self.memory.fingerprint(question)
            self.memory.check_timeout(key, fingerprint)
            known = self.memory.recall_answer(key, question, fingerprint)
            if known is not None:
                await trio.lowlevel.checkpoint()
                return known
        task = self._origin
        await task.wait_said()
        slot = lane.open_question(key, question.answer_type)
        task.questions[key] = OpenQuestion(cast("Question[Model]", question), fingerprint, order)
        try:
            task.home.questions_changed(task)
            if not self.actor.busy:
                self.on_quiescent()
            answer = await slot.take()
        except BaseException:
            slot.give_up()
            self._resume()
            claim_place(self.actor, question)
            raise
        finally:
            if task.questions.pop(key, None) is not None:
                task.home.questions_changed(task)
        # It was parked, and gave its place to another call of its tool.
        if self.actor.place is not None:
            await self.actor.place.enter()
        return answer

    def question_method(self, key: str) -> str | None:
        asked = self._origin.questions.get(key)
        return None if asked is None else asked.question.method

    def has_answer(self, key: str) -> bool:
        return self.memory is not None and self.memory.has_answer(key)

    async def take_answers(
        self, answers: Mapping[str, Model | Exception], size: int, along: Sequence[Change] = ()
    ) -> None:
        """Hand answers of `size` bytes in total to the lanes that asked; of other questions they are dropped.

        They are recorded in the store before, as are those that came earlier. A cancel does not interrupt that.

        Args:
            along: changes that are made in the same write.

        Raises:
            StoreError: those were not made; the answers were not recorded, as this tool is not run again.
            LimitExceeded: the memory budget has no room for them; none was taken. Or another process has taken the task over. Or
                the store has not recorded them: they were taken, and are to be sent again.
        """
        questions = self._origin.questions
        taken = {key: answer for key, answer in answers.items() if key in questions}
        if taken:
            self.actor.keep(size)
        for key, answer in taken.items():
            # From now on the question is answered: no key is answered twice (M-TSK-5).
            asked = questions.pop(key)
            if self.memory is not None and isinstance(answer, Model):
                self.memory.record_answer(key, answer, asked.fingerprint)
        # Also without a new one: a repeat must not be acknowledged before the answer that it repeats is recorded.
        is_recorded = True
        if self.memory is not None:
            is_recorded = await self.memory.commit(*along)
        elif along:
            await write_held(self.services.store, HeldTask(self._origin), along)
        if self._origin.is_forgotten:
            if self._origin.shown.outcome is not None:
                # It ended here meanwhile, and asks nothing any more.
                return
            raise LimitExceeded(ELSEWHERE)
        if taken:
            self._resume()
            for key, answer in taken.items():
                self.actor.mailbox.post(key, answer)
            self._origin.home.questions_changed(self._origin)
        if not is_recorded:
            raise LimitExceeded(NOT_RECORDED)

    def on_quiescent(self) -> None:
        """Park the actor: it does nothing until an answer comes, for as long as the task exists."""
        if self._origin.is_resuming:
            # What it had asked before the restart is asked again now.
            self._origin.is_resuming = False
            self._origin.wake()
        if self.actor.state is ActorState.RUNNING and self._origin.questions and not self.actor.scope.cancel_called:
            try:
                self.services.supervisor.park(self.actor, math.inf)
            except LimitExceeded:
                # It waits as a running call does, and counts as one.
                return

    def _resume(self) -> None:
        if self.actor.state is ActorState.PARKED and not self.actor.scope.cancel_called:
            self.services.supervisor.resume(self.actor)

    # messages

    async def notify(self, method: str, params: Model) -> None:
        """Send a notification about the work to the session that created the task, if it can be reached now (L-TSK-7).

        A modern task belongs to no session: its client polls or listens (M-TSK-7).
        """
        session = self._origin.session
        if session is not None and session.notify is not None and not self._origin.is_over:
            related = self.facts.terms.codec.related_meta(self._origin.record.id, getattr(params, "meta", None))
            session.notify(method, params.model_copy(update={"meta": related}))
        await trio.lowlevel.checkpoint()

    def set_status(self, message: str) -> None:
        # What a replay repeats was shown before, and perhaps what came after it.
        if not self.is_replaying:
            self._origin.home.set_message(self._origin, message)

    # the end

    def _on_actor_done(self, _actor: Actor, outcome: Outcome) -> None:
        self.is_answering = False
        if self.operation is not None:
            self.operation.end(self.span_details)
        if self._reports is not None:
            self._reports.close()
        self._origin.home.work_ended(self._origin, self._outcome(outcome), self.actor.reason)

    def _outcome(self, outcome: Outcome) -> TaskOutcome:
        """Return how the work ended, as the record keeps it: without what JSON cannot say."""
        try:
            answer = self._answer(outcome)
            if isinstance(answer, Model):
                answer = self._sendable(answer)
        except Exception as error:  # noqa: BLE001  nothing that a tool makes may get past its own call
            answer = error_detail(self.services.failures, self.facts, self._told(error), self._plan.target)
        if isinstance(answer, CallToolResult):
            return TaskOutcome(result=answer)
        assert answer is None or isinstance(answer, ErrorDetail)
        return TaskOutcome(error=answer)

    def _pass_on(self, error: Exception, raised: RaisedErrors) -> None:
        if not self._origin.is_over:
            raised.put_for_task(self._origin.record.id, error)

    def _sendable(self, result: Model) -> Model | None:
        """Return a result that JSON can say, or the one that says why this one cannot be sent."""
        try:
            return shown_model(result, "result")
        except ValueError as error:
            cause = LocalProtocolError(CANNOT_SEND.format(error))
            return self._plan.error_result(self.facts, cause, self.services.failures)
