"""Calls whose questions are requests (legacy): each is sent immediately, on the channel of the request that is being served."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ... import types
from ...errors import (
    CapabilityError,
    Disconnected,
    LimitExceeded,
    LocalProtocolError,
    MalformedAnswer,
    PeerError,
    QuestionRejected,
    RemoteProtocolError,
)
from ...protocol.jsonrpc import INVALID_PARAMS, Notification, Request, RequestId
from ...runtime import CALL_OVER_MESSAGE, Actor, Journal, Lane, Outcome, Slot
from ...types import ClientCapabilities, Model
from ...types.capabilities import lacks
from .. import calls
from ..replies import ReplyTarget
from .call import Call, Plan
from .facts import Question, RequestFacts, ask_traced
from .failures import GOES_ON_REASONS, check_capabilities
from .pending_asks import ELICITATION_COMPLETE, AskedQuestion, PendingAsks
from .services import CallOffers, CallServices

if TYPE_CHECKING:
    from ..recovery.stored_journal import CallLog
    from .memory import CallMemory
    from .previous_run import PreviousRun

T = TypeVar("T", bound=Model)

EXPECTED: Final[Mapping[str, str]] = {
    "elicit": "its user's answer",
    "sample": "its model's answer",
    "roots": "its folders",
}
"""What a question asks a client for, by its kind, in the words of an error."""


class AskAgain(Exception):
    """Raised where a call waits for an answer, when its question has to be sent again."""


class CallByRequests(Call[PendingAsks]):
    """A call that asks by requests. Its origin is the connection that they go out on, with those that have no answer yet.

    Those for the user go out one at a time, in the order in which they were asked, unless the service says otherwise: a user
    sees one prompt, and a second one would lie on top of it. Questions to a model or to the client itself are not held back.
    """

    __slots__ = ()

    next_process_answers = True

    async def ask(self, lane: Lane, question: Question[T]) -> T:
        telemetry = self.services.telemetry
        if telemetry is not None and question.trace is None and not self.is_replaying:
            return await ask_traced(telemetry, self.ask, lane, question, self.facts.protocol_version)
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_can_ask(sends_requests=True)
        check_capabilities(self.facts, question)
        in_turn = question.kind == "elicit" and not self.services.options.parallel_prompts
        asked: AskedQuestion | None = None
        if self.memory is not None:
            key, _ = lane.next_question(question.kind, question.name)
            asked = AskedQuestion(self, key, self.memory.fingerprint(question), in_turn)
            known = self._known(self.memory, asked, question)
            if known is not None:
                return await known
        if in_turn:
            await self._origin.wait_turn(self)
        try:
            # Only a call with an idempotency key may have to ask again. See `_ask_once` for the others.
            again, asking = None if self.keyed is None else (question, asked), self._ask_once(question, asked)
            del question, asked
            while True:  # noqa: ASYNC913  it raises `AskAgain` only after a wait
                try:
                    return await asking
                except AskAgain:
                    assert again is not None
                    asking = self._ask_once(*again)
        finally:
            if in_turn:
                self._origin.pass_turn(self)

    async def _ask_once(self, question: Question[T], asked: AskedQuestion | None) -> T:
        """Ask on the channel of the request that is being served; raise `AskAgain` if another one has taken its place."""
        if not (self.services.options.tasks.ask_as_tasks and calls.client_tasks.runs_as_task(self.facts, question)):
            return await self._request(question, asked, as_task=False)
        return await self._result_of(
            question, asked, await self._request(calls.client_tasks.task_question(question), asked, as_task=True)
        )

    async def _result_of(self, question: Question[T], asked: AskedQuestion | None, reply: Model) -> T:
        """Return the answer to what was asked as a task, when it is there."""
        if isinstance(reply, types.CreateTaskResult):
            return await self._request(calls.client_tasks.result_question(question, reply), asked, as_task=True)
        if not isinstance(reply, question.answer_type):
            raise MalformedAnswer(EXPECTED[question.kind], RemoteProtocolError("it is no answer to this question"))
        return reply

    async def _request(self, question: Question[T], asked: AskedQuestion | None, *, as_task: bool) -> T:
        """Send one request, and wait for its answer."""
        request, slot = self._open_request(question, asked, as_task=as_task)
        try:
            target = self.target
            if target is None:
                raise Disconnected(CALL_OVER_MESSAGE)
            await target.send(request)
        except BaseException:
            # Not sent: `Outbox.send` queues nothing when it is cancelled, so the client must not get a cancellation for it.
            self._origin.settle_unsent(request.id)
            slot.give_up()
            raise
        kind = question.kind
        # A person may take an hour, and a thousand calls may wait: a kilobyte each.
        del question, request, target, asked
        try:
            return await slot.take()
        except (PeerError, RemoteProtocolError) as error:
            raise told_reply(kind, error) from None
        except trio.Cancelled:
            # In the same step in which it came.
            if isinstance(slot.untaken, types.CreateTaskResult):
                self._origin.cancel_task(slot.untaken.task_id)
            raise

    def question_method(self, key: str) -> str | None:
        return self._origin.method_of(key)

    @property
    def queued_questions(self) -> int:
        return self._origin.queued(self)

    def take_over_on(self, asks: PendingAsks, facts: RequestFacts, target: ReplyTarget) -> None:
        """Answer a repeat of the request, perhaps on another connection: open questions are asked again there.

        The client has lost the response that brought them, and with it the prompts that its user saw.
        """
        if self.target is not None:
            self._origins = {**(self._origins or {}), self.target: self._origin}
        self.take_over(facts, target)
        self._ask_on(asks)

    def _remove(self, target: ReplyTarget) -> None:
        super()._remove(target)
        if self._origins is not None:
            self._origins.pop(target, None)
            if self.target is not None and (asks := self._origins.pop(self.target, None)) is not None:
                self._ask_on(asks)

    def _ask_on(self, asks: PendingAsks) -> None:
        """Ask on this connection from now on, and ask what is open again there."""
        earlier = self._origin
        open_asks = [request_id for request_id, actor in earlier.actors.items() if actor is self.actor]
        for request_id in open_asks:
            # Withdrawn by `_on_settled` on the same connection; on another one its id means nothing.
            if asks is not earlier:
                earlier.settle(request_id)
            self.actor.mailbox.post(str(request_id), AskAgain())
        if asks is not earlier and self in earlier.prompting:
            asks.prompting[self] = earlier.prompting.pop(self)
        self._origin = asks

    def notify_completed(self, elicitation_id: str) -> None:
        codec = self.facts.terms.codec
        if self.is_answering and not self.cancelled_by_client and codec.can_notify(ELICITATION_COMPLETE):
            params = types.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
            self.post(Notification(ELICITATION_COMPLETE, codec.encode_notification(ELICITATION_COMPLETE, params)))

    def expect_completion(self, elicitation_ids: Iterable[str]) -> None:
        if self.facts.terms.codec.can_notify(ELICITATION_COMPLETE):
            for name in elicitation_ids:
                self._origin.expect_completion(self.services.url_elicitations, name)

    # what an earlier run has asked

    def _known(
        self, memory: CallMemory, asked: AskedQuestion, question: Question[T]
    ) -> Coroutine[object, object, T] | None:
        """Return what gives the answer without asking: that an earlier run got, or is still to get; None if it did not ask."""
        known = memory.recall_reply(asked.key, question, asked.fingerprint)
        if known is not None:
            return recalled(question.kind, known)
        earlier = self._origin.earlier_request(self, asked.key)
        if earlier is None:
            return None
        if earlier.fingerprint == asked.fingerprint:
            slot = self.actor.mailbox.open(str(earlier.id), Model, partial(self._on_settled, earlier.id))
            return self._awaited(question, asked, slot)
        # The user must not answer a question that the call no longer asks.
        self._on_settled(earlier.id)
        memory.note_other_question(asked.key)
        return None

    async def _awaited(self, question: Question[T], asked: AskedQuestion, slot: Slot[Model]) -> T:
        """Wait for the answer to what an earlier run has asked, which may be a task."""
        try:
            reply = await slot.take()
        except (PeerError, RemoteProtocolError) as error:
            raise told_reply(question.kind, error) from None
        return await self._result_of(question, asked, reply)

    # a durable store

    def keep_in(self, log: CallLog) -> None:
        """Write what the call records and asks to a log from now on, and first what there is of both."""
        self._origin.keep_in(self, log)

    def report_above(self, progress: float) -> None:
        """Report only progress above this value, which an earlier run has reported."""
        self._opened_reports().continue_above(progress)

    @property
    def continues_elsewhere(self) -> bool:
        is_kept = self.memory is not None and self.memory.log is not None
        return is_kept and self.actor.reason in GOES_ON_REASONS

    def _on_actor_done(self, actor: Actor, outcome: Outcome) -> None:
        if self._origin.earlier and not self.continues_elsewhere:
            for notice in self._origin.abandoned(self):
                self.post(notice)
        super()._on_actor_done(actor, outcome)

    # requests

    def _open_request(
        self, question: Question[T], asked: AskedQuestion | None, *, as_task: bool
    ) -> tuple[Request, Slot[T]]:
        """Return the request that asks, and the slot that its answer will be in."""
        try:
            request = self._origin.new_request(question, self.actor, asked, as_task=as_task)
        except LocalProtocolError as error:
            # With this code the codec says that the client's revision has no such form or message. The tool may ask otherwise.
            if error.code != INVALID_PARAMS:
                raise
            needed = lacks(ClientCapabilities(), question.needs) or {}
            revision = self.facts.terms.codec.revision.name
            raise CapabilityError(f"a client that speaks {revision} cannot be asked this: {error}", needed) from None
        try:
            slot = self.actor.mailbox.open(str(request.id), question.answer_type, partial(self._on_settled, request.id))
        except (LimitExceeded, Disconnected):
            self._origin.settle_unsent(request.id)
            raise
        return request, slot

    def _on_settled(self, request_id: RequestId) -> None:
        """A question has its answer, or the call stopped waiting for it; the client gets a cancellation if it still owes one.

        This runs in the step in which that happens: for a stuck call, before the call is answered for.
        """
        if self.continues_elsewhere:
            # Its user may answer in the next process.
            return
        for message in self._origin.settle(request_id):
            if isinstance(message, Request) and self.cancelled_by_client:
                # Over HTTP its client reads the response of a call that it has cancelled no longer.
                self._origin.post(message)
            else:
                self.post(message)


def resume_request(
    services: CallServices,
    offers: CallOffers,
    plan: Plan,
    facts: RequestFacts,
    target: ReplyTarget,
    origin: PendingAsks,
    run: PreviousRun,
    log: CallLog | None,
) -> CallByRequests:
    """Start the call of a request from before a restart once more, with what its earlier run has left, and return it.

    Args:
        log: where it is recorded further; it has what the earlier run recorded.
    """
    loss = run.loss(plan, always_replay=services.options.always_replay)
    if loss is not None:
        plan = plan._replace(run=calls.previous_run.failing_body(loss))
    call = CallByRequests(services, offers, plan, facts, target, origin, None, Journal(run.entries))
    # Its body has not run yet.
    origin.resume(call, run.requests)
    if call.memory is not None and log is not None:
        call.memory.continue_in(log)
    if run.progress is not None:
        call.report_above(run.progress)
    return call


async def recalled(kind: str, known: T | PeerError | RemoteProtocolError) -> T:
    """Return the answer that an earlier run of a call got, or raise the error."""
    # A replay must not starve other tasks by rushing through recorded answers.
    await trio.lowlevel.checkpoint()
    if isinstance(known, PeerError | RemoteProtocolError):
        raise told_reply(kind, known)
    return known


def told_reply(kind: str, error: PeerError | RemoteProtocolError) -> QuestionRejected | MalformedAnswer:
    """Return the error of a client's reply as the body gets it."""
    expected = EXPECTED.get(kind, "an answer")
    return QuestionRejected(expected, error) if isinstance(error, PeerError) else MalformedAnswer(expected, error)
