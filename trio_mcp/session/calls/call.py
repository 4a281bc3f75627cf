"""A call: the actor that runs a plan, and the request that it answers at the moment.

`Call` is what both kinds of calls share; `asks_requests` and `asks_rounds` say how each kind asks its client.
"""

# A call answers one request at a time, its open leg. A legacy call has one leg. A modern one may have several, and none while
# it is parked between two of them.
#
#     state       request open   actor                 leaves it by
#     answering   yes            running               end_leg (a round: parked; the outcome: over), withdraw, disconnect
#     parked      no             parked                a request that carries the call forward (`asks_rounds`), or the end
#     over        no             done, or stuck        nothing; a stuck actor may still run, and can neither ask nor report
#
# Who refers to whom: the session's table knows the reply targets, a target knows the call that answers it, the call knows its
# targets, its plan and its actor. A target forgets its call when it has been answered, and the supervisor drops the callbacks of
# an actor that has ended. A call never keeps an exception: its frames would keep the call. So an ended call is freed at once,
# without the garbage collector; the sweep's census checks that.
#
# A trace, for a legacy call that is cancelled by its client:
#
#     Call(...)                             answering; the actor runs `plan.run(call, actor)`
#     progress(1, 2, None)                  a notification with the request's progress token
#     withdraw(target, CLIENT)              the actor is cancelled; from now on nothing is sent about the request
#     _on_actor_done(Cancelled(CLIENT))     end_leg(None): over; the target is closed without a reply

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeAlias

import trio
from typing_extensions import TypeVar

from ... import telemetry, types
from ...base.logs import peer_logger
from ...base.named_tuples import NamedTuple
from ...errors import Disconnected, LimitExceeded, LocalProtocolError, UrlElicitationRequired
from ...protocol.jsonrpc import Encoded, ErrorDetail, Notification, Request
from ...runtime import (
    CALL_OVER_MESSAGE,
    FINISHED_STATES,
    Account,
    Actor,
    Cancelled,
    CancelReason,
    Journal,
    Lane,
    Outcome,
    Raised,
    Returned,
)
from ...storage import StoreError
from ...types import JsonValue, LoggingLevel, Model
from ...types.messages import HEARTBEAT
from .. import calls
from ..envelope import CALL_SIZE, HEADER_SIZE
from ..replies import LegOutcome, OutcomeKeeper, ReplyTarget
from .facts import IS_REPLAYED, ErrorResult, ProgressReports, Question, RequestFacts, ResumeMode, TaskSupport
from .failures import (
    CANCEL_ERRORS,
    EXPECTED_ERRORS,
    GOES_ON_REASONS,
    NO_REPLY_REASONS,
    error_detail,
    store_failure,
    timeout_error,
    told_error,
)
from .services import CallOffers, CallServices

if TYPE_CHECKING:
    from ..raised import RaisedErrors

T = TypeVar("T", bound=Model)
OriginT_co = TypeVar("OriginT_co", default=object, covariant=True)
logger = peer_logger("trio_mcp.call")

PROGRESS: Final = "notifications/progress"

HAS_RUN: Final = "The call has ended, and what it did before stays done. Start it again if that is safe."
"""For the caller of a call that the store has failed in the middle."""


@dataclass(slots=True, eq=False, repr=False)
class Call(ABC, Generic[OriginT_co]):
    """One logical call of a client, and the methods that its body uses. Creating one starts its actor.

    Args:
        offers: those that the plan is of.
        facts: the first request of the call.
        target: where the result of that request is sent.
        origin: what this kind of call needs to ask questions.
        legs: the leg book of a call that continues here although its actor no longer exists.
        journal: what an earlier run recorded.

    Raises:
        LimitExceeded: the server runs too many calls, or has no memory left for one, or is shutting down.
    """

    services: CallServices
    offers: CallOffers
    _plan: Plan
    facts: RequestFacts
    """The request that it answers, or answered last."""
    target: ReplyTarget | None
    """Where messages about the request go; None when the call is parked or its client has disconnected."""
    _origin: OriginT_co
    legs: calls.legs.LegBook | None = None
    """The book of its legs; None until the call asks in a round."""
    journal: InitVar[Journal | None] = None
    actor: Actor = field(init=False)
    is_answering: bool = field(default=True, init=False)
    """A request is open."""
    cancelled_by_client: bool = field(default=False, init=False)
    """The client cancelled the request: nothing more is sent about it, also while the call cleans up (M-CAN-2s)."""
    memory: calls.memory.CallMemory | None = field(default=None, init=False)
    """Records answers and step results; None for a call that is never replayed, so that nothing is asked of it."""
    _copies: dict[ReplyTarget, RequestFacts | None] = field(default_factory=dict, init=False)
    """Further requests that get the same reply; the first takes the place of `target`, with its own facts if it has any here."""
    _origins: dict[ReplyTarget, OriginT_co] | None = field(default=None, init=False)
    """The connections of the copies whose place a repeat has taken; None before the first repeat of a call that needs them."""
    keyed: OutcomeKeeper | None = field(default=None, init=False)
    """Its idempotency key; None without one."""
    operation: telemetry.Operation | None = field(default=None, init=False)
    """The span of its leg, or of the work of its task; None without telemetry."""
    _reports: ProgressReports | None = field(default=None, init=False)
    """The progress it has reported; None before the first report."""

    def __post_init__(self, journal: Journal | None) -> None:
        services, options, facts, plan = self.services, self.services.options, self.facts, self._plan
        size = CALL_SIZE + facts.size + HEADER_SIZE * len(facts.headers)
        if facts.known_caller is not None:
            size += facts.known_caller.size
        account = self._open_account(size)
        seconds = min(plan.timeout, options.max_seconds)
        actor = self.actor = services.supervisor.start(
            partial(plan.run, self),
            self._on_actor_done,
            principal=facts.principal,
            account=account,
            deadline=math.inf if seconds == math.inf else trio.current_time() + seconds,
            label=plan.target,
            journal=journal,
            delayed=plan.delayed,
        )
        actor.on_quiescent = self.on_quiescent
        if plan.resume is IS_REPLAYED or options.always_replay:
            self.memory = calls.memory.CallMemory(
                actor.journal, plan.target, services.note_divergence, services.is_durable
            )
        if self.target is not None:
            self.target.work, self.operation = self, self.target.operation
            if plan.heartbeat is not None:
                self._start_heartbeat(plan.heartbeat)

    def _open_account(self, size: int) -> Account | None:
        """Return an account that has drawn these bytes for the call; None counts nothing. Raises `LimitExceeded` without room."""
        account = None if self.target is None else self.target.outbox.account
        if account is None:
            return None
        return account.open(size)

    @abstractmethod
    def ask(self, lane: Lane, question: Question[T]) -> Awaitable[T]:
        """Ask the client and return its answer. A cancel withdraws the question.

        Raises:
            CapabilityError: the client did not declare that it can answer; nothing was sent.
            LimitExceeded: the call has too many open questions; nothing was sent.
            LocalProtocolError: the call was cancelled, and its shielded clean-up asks; nothing was sent.
            Disconnected: the call has ended, though one of its threads may still run; or it is stuck.
            QuestionRejected: the client answered with an error (legacy only).
            MalformedAnswer: it answered with something else (legacy only; in a round the answer is rejected).
        """

    @property
    def method(self) -> str:
        return self.facts.method

    @property
    def continues_elsewhere(self) -> bool:
        """Whether a call that was cancelled may continue as a replay, here or in another process, or has done so."""
        return False

    @property
    def target_name(self) -> str:
        """The name of the tool, prompt or resource that it calls."""
        return self._plan.target

    next_process_answers: ClassVar[bool] = False
    """Whether the next process answers a call that continues there; its client asks for the rest of a response without one."""

    on_quiescent: ClassVar[Callable[..., None] | None] = None
    """Called when the last lane begins to wait for an answer; None for calls that do nothing then."""

    @abstractmethod
    def question_method(self, key: str) -> str | None:
        """Return the method of the question whose answer is awaited under this key; None if it is no question to the client."""

    @property
    def queued_questions(self) -> int:
        """How many questions wait until the user has answered another one."""
        return 0

    # messages about the request

    async def progress(
        self,
        progress: float,
        total: float | None,
        message: str | None,
        whole: types.ProgressNotificationParams | None = None,
    ) -> None:
        """Report progress, if the request asked for it. A value that is not finite or does not rise is dropped (L-PRG-1b).

        Args:
            whole: the report of a server behind a proxy, with whatever else it says.
        """
        reports, token = self._opened_reports(), self.facts.terms.progress_token
        is_wanted = token is not None and self.is_answering and not self.is_replaying
        value = reports.report(self._plan.target, progress, total, message, is_wanted=is_wanted)
        if token is not None and value is not None:
            if whole is None:
                params = types.ProgressNotificationParams(
                    progress_token=token, progress=value, total=total, message=message
                )
            else:
                params = whole.model_copy(update={"progress_token": token, "progress": value})
            await self.notify(PROGRESS, params)
            return
        # A checkpoint also when nothing is sent: it may be the only one that a tool has.
        await trio.lowlevel.checkpoint()

    async def log(
        self,
        level: LoggingLevel,
        data: JsonValue,
        logger_name: str | None,
        whole: types.LoggingMessageNotificationParams | None = None,
    ) -> None:
        """Send a log message, unless its level is below the threshold of the request.

        Args:
            whole: the message of a server behind a proxy, with whatever else it says.
        """
        if not self.is_answering or not self.facts.terms.log_threshold.passes(level) or self.is_replaying:
            await trio.lowlevel.checkpoint()
            return
        if whole is None:
            values = {"level": level, "data": data, "logger": logger_name}
            whole = types.LoggingMessageNotificationParams.model_validate(values)
        await self.notify("notifications/message", whole)

    def _opened_reports(self) -> ProgressReports:
        if self._reports is None:
            self._reports = ProgressReports(self.services.records)
        return self._reports

    def _start_heartbeat(self, seconds: float) -> None:
        """Report progress whenever the body has not for this long, if the request of the open leg asked for progress."""
        if self.facts.terms.progress_token is not None:
            reports = self._opened_reports()
            send, leg = partial(self._send_heartbeat, reports), reports.begin_heartbeat()
            self.services.supervisor.spawn(reports.send_heartbeats, send, seconds, leg)

    def _send_heartbeat(self, reports: ProgressReports) -> None:
        """Send one heartbeat, unless its reader is slow or the memory budget has no room for it."""
        target, terms = self.target, self.facts.terms
        # Without waiting: a heartbeat that waited for room in the outbox could be sent after the reply. A slow reader has enough
        # to read.
        if terms.progress_token is None or target is None or self.cancelled_by_client or target.outbox.is_full:
            return
        value = reports.heartbeat_value()
        if value is None:
            return
        params = types.ProgressNotificationParams(
            progress_token=terms.progress_token,
            progress=value,
            total=reports.total,
            message=reports.message,
            meta={HEARTBEAT: True},
        )
        encoded = terms.codec.encode_notification(PROGRESS, params)
        with suppress(LimitExceeded):
            target.check_room(len(encoded.raw))
            self.post(Notification(PROGRESS, encoded))

    async def notify(self, method: str, params: Model) -> None:
        """Send a notification about the request; waits while its reader is slow. Sends nothing once the request is over.

        Raises:
            LimitExceeded: the memory budget has no room for it.
        """
        target = self.target
        if target is None or self.cancelled_by_client:
            # A checkpoint also when nothing is sent: it may be the only one that a tool has.
            await trio.lowlevel.checkpoint()
            return
        await self.send(Notification(method, self.facts.terms.codec.encode_notification(method, params)))

    async def send(self, message: Notification) -> None:
        """Send an encoded notification about the request, as `notify` does."""
        target = self.target
        if target is None or self.cancelled_by_client:
            await trio.lowlevel.checkpoint()
            return
        await target.send(message)

    def post(self, message: Notification | Request) -> None:
        """Queue a notification, or a request whose answer is not needed, without waiting; also during a clean-up."""
        if self.target is not None:
            self.target.post(message)

    def notify_completed(self, elicitation_id: str) -> None:
        """Tell the client that its user has finished at a page, if its revision has that message and the call is open."""

    def expect_completion(self, elicitation_ids: Iterable[str]) -> None:
        """Tell the client when its user has finished at these pages, although the call does not wait for it."""

    def set_status(self, message: str) -> None:
        """Show this text as the status of the task that the call runs as, if it is one."""

    @property
    def plan(self) -> Plan:
        """How it runs."""
        return self._plan

    async def become_task(self, lane: Lane) -> None:  # noqa: ARG002
        """Go on as a task, if the caller of a tool that becomes one later takes it; this then does not return.

        Raises:
            RuntimeError: the tool never becomes a task, or a branch or a step of it runs.
        """
        # Both also where the call becomes none: whether the author hears of it does not depend on the caller.
        if self._plan.task is not TaskSupport.LATER:
            raise RuntimeError('the tool never becomes a task while it runs: register it with task="later"')
        if self.memory is not None and self.memory.runs_step:
            raise RuntimeError(BECOMES_OUTSIDE)
        await trio.lowlevel.checkpoint()

    async def end_stream(self, retry: float | None) -> None:
        """End the response stream of the request, if its client can resume it, which it should do after `retry` seconds."""
        if self.target is None or self.target.end_response is None:
            await trio.lowlevel.checkpoint()
        else:
            await self.target.end_response(retry)

    # those who wait for the answer

    def answer(self, facts: RequestFacts, target: ReplyTarget) -> None:
        """Begin a new leg, whose result is the response to this request."""
        self.facts = facts
        self.target = target
        self.is_answering = True
        self.cancelled_by_client = False
        target.work = self
        if target.operation is not None and self.operation is not None:
            self.operation.continued(target.operation)
            self.operation = target.operation
        if self._plan.heartbeat is not None:
            self._start_heartbeat(self._plan.heartbeat)

    def join(self, target: ReplyTarget) -> None:
        """Send the outcome of the open leg to one more request, a copy of the one that started it."""
        if self.target is None:
            self.target = target
        else:
            self._copies[target] = None
        target.work = self

    def take_over(self, facts: RequestFacts, target: ReplyTarget) -> None:
        """Let a repeat of the request take its place: reports go there; the one before still gets the outcome."""
        if self.target is not None:
            self._copies = {self.target: self.facts, **self._copies}
        self.facts, self.target = facts, target
        target.work = self

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:
        """Drop a request. The call is cancelled for this reason, unless a copy of the request still waits for it."""
        if self._copies:
            self._remove(target)
            target.finish(None)
        else:
            self.actor.cancel(reason)
            # Never taken back: the end of the connection withdraws a cancelled request once more.
            if reason is CancelReason.CLIENT:
                self.cancelled_by_client = True

    def disconnect(self, target: ReplyTarget) -> None:
        """Forget a request whose client disconnected; the call is cancelled if it was the last."""
        self._remove(target)
        if self.target is None:
            self.actor.cancel(CancelReason.DISCONNECT)

    def _remove(self, target: ReplyTarget) -> None:
        if self.target is not target:
            self._copies.pop(target, None)
        elif self._copies:
            self.target = next(iter(self._copies))
            self.facts = self._copies.pop(self.target) or self.facts
        else:
            self.target = None

    def end_leg(self, outcome: LegOutcome) -> None:
        """End the open leg, and send this outcome to each request that waits for it."""
        target, copies = self.target, self._copies
        # Before any reply goes out: a task that the reply wakes must find the call in its new state.
        self.target, self._copies = None, {}
        self.is_answering = False
        if self._reports is not None and self._reports.heartbeat is not None:
            self._reports.end_heartbeat()
        if self.legs is not None:
            self.legs.end(outcome)
            if isinstance(outcome, Encoded) and self.actor.account is not None:
                self.actor.account.draw(len(outcome.raw))
        if self.keyed is not None and self._end_keyed(self.keyed, outcome, target, copies):
            return
        if target is not None:
            target.finish(outcome)
        for copy in copies:
            copy.finish(outcome)

    def _end_keyed(
        self,
        keyed: OutcomeKeeper,
        outcome: LegOutcome,
        target: ReplyTarget | None,
        copies: Iterable[ReplyTarget],
    ) -> bool:
        """Keep an outcome under the key of the call; return whether it is sent from there, once it is stored."""
        # A repeat goes on in the next process with what this one has recorded, or gets the unknown-outcome error.
        goes_on = keyed.is_stored and self.actor.cancel_reason in GOES_ON_REASONS
        targets = [*(() if target is None else (target,)), *copies]
        if not keyed.end_leg(None if goes_on else outcome, targets):
            return False
        if self.memory is not None and (self.legs is None or self.legs.call_id is None):
            # It goes with the outcome. After a round, what the call does is in the log of the state that leads to it.
            self.memory.log = None
        return True

    @property
    def span_details(self) -> Mapping[str, str | bool | int]:
        """What the span of a leg, which ends now, shows of the call."""
        reason, legs = self.actor.reason, self.legs
        shown: dict[str, str | bool | int] = {"trio_mcp.leg": 1 if legs is None else legs.number}
        if legs is not None and legs.questions:
            shown["trio_mcp.questions"] = len(legs.questions)
        if reason is not None:
            shown["trio_mcp.cancel_reason"] = reason.value
        return shown

    @property
    def is_replaying(self) -> bool:
        """The body runs again and has not come to anything new: what it reports now was reported before."""
        return self.memory is not None and self.memory.journal.replaying

    # its actor

    def check_can_ask(self, *, sends_requests: bool) -> None:
        """Raise unless an answer could still reach the call."""
        actor = self.actor
        if actor.state in FINISHED_STATES:
            raise Disconnected(CALL_OVER_MESSAGE)
        # Behind a shield a cancelled call would otherwise wait for its answer until it is given up. A request can be answered
        # when the time of the call is up, say; a round cannot, since no leg follows a cancel.
        if actor.scope.cancel_called and (not sends_requests or actor.reason in NO_REPLY_REASONS):
            raise LocalProtocolError("the call was cancelled, and can ask nothing more")

    def _on_actor_done(self, _actor: Actor, outcome: Outcome) -> None:
        # A call that was cancelled while it was parked has no end to report; if its time was up, the next leg gets that.
        ended = not isinstance(outcome, Cancelled) or outcome.reason is CancelReason.DEADLINE
        answer = self._leg_outcome(outcome) if ended or self.is_answering else None
        if self.is_answering:
            self.end_leg(answer)
        if self._reports is not None:
            self._reports.close()
        if self.legs is not None:
            self.keep_outcomes(self.legs, answer if ended else None)
        if self.keyed is not None:
            self.keyed.end()
            self.keyed = None

    def keep_outcomes(self, legs: calls.legs.LegBook, final: LegOutcome) -> None:
        """Keep the outcomes of the legs of an ended call for repeated requests, and `final` for a next leg."""

    def _leg_outcome(self, outcome: Outcome) -> LegOutcome:
        """Return what to answer the caller with; None if the call was cancelled for a client that wants no reply."""
        reason = self.actor.cancel_reason
        if reason is CancelReason.FENCED:
            # Another process may have answered by now. Where only this request's own response is cut, its client comes back.
            is_cut = self.target is None or self.target.owns_outbox
            return None if is_cut else CANCEL_ERRORS[CancelReason.FENCED]
        if self.next_process_answers and not isinstance(outcome, Returned) and self.continues_elsewhere:
            return None
        answer: LegOutcome
        try:
            value = outcome.value if isinstance(outcome, Returned) else None
            if isinstance(value, str):
                answer = self._encoded(value)
            # What is about tasks, or passes unread, is encoded by the body.
            elif isinstance(value, Encoded | ErrorDetail):
                answer = value
            else:
                result = self._answer(outcome)
                answer = result if result is None or isinstance(result, ErrorDetail) else self._encoded(result)
        except BaseException as error:  # noqa: BLE001, ASYNC103  nothing that a tool makes may get past its own call
            answer = error_detail(self.services.failures, self.facts, self._told(error), self._plan.target)
        return None if reason is not None and reason in NO_REPLY_REASONS else answer

    def _answer(self, outcome: Outcome) -> Model | str | ErrorDetail | None:
        """Return what an outcome means as a result or an error; None if the client that cancelled the call wants no reply."""
        if isinstance(outcome, Returned):
            assert isinstance(outcome.value, Model | str)
            return outcome.value
        plan = self._plan
        cause: BaseException | CancelReason
        match outcome:
            case Raised(error):
                cause = self._told(error)
            case Cancelled(reason) if reason in NO_REPLY_REASONS:
                return None
            case Cancelled(reason):
                timed_out = reason is CancelReason.DEADLINE
                cause = (
                    timeout_error(plan.target, plan.timeout, self.services.options.max_seconds) if timed_out else reason
                )
        result = plan.error_result(self.facts, cause, self.services.failures)
        if result is not None:
            return result
        if isinstance(cause, UrlElicitationRequired):
            self.expect_completion(page.elicitation_id for page in cause.pages)
        if isinstance(cause, CancelReason):
            return CANCEL_ERRORS[cause]
        return error_detail(self.services.failures, self.facts, cause, plan.target)

    def _told(self, error: BaseException) -> BaseException:
        """Return the error that the caller may read, and hand an unexpected one to a client that raises it."""
        services = self.services
        if isinstance(error, StoreError):
            return store_failure(services.records, error, HAS_RUN)
        if services.raised is not None and isinstance(error, Exception) and not isinstance(error, EXPECTED_ERRORS):
            self._pass_on(error, services.raised)
        tells = services.options.tell_errors
        return told_error(services.failures, self.facts, error, self._plan.target) if tells else error

    def _pass_on(self, error: Exception, raised: RaisedErrors) -> None:
        for target in filter(None, (self.target, *self._copies)):
            raised.put(target.request_id, error)

    def _encoded(self, result: Model | str) -> Encoded:
        facts, info = self.facts, self.services.server_info_json
        try:
            return facts.terms.codec.encode_result(facts.method, result, info)
        except LocalProtocolError as error:
            instead = self._plan.error_result(facts, error, self.services.failures)
            if instead is None:
                raise
            return facts.terms.codec.encode_result(facts.method, instead, info)

    def __repr__(self) -> str:
        ids = [target.request_id for target in (self.target, *self._copies) if target is not None]
        return f"<Call {self._plan.target} {self.facts.method} ids={ids} {'open' if self.is_answering else 'ended'}>"


BECOMES_OUTSIDE: Final = "a call becomes a task while none of its branches and steps runs: call become_task() outside"

Body: TypeAlias = Callable[[Call, Actor | Lane], Awaitable[Model]]
"""What the actor runs. It runs in `Lane(actor)`, unless it gets a lane: middleware gives one, and may run it several times.

What no middleware sees may return an encoded result, or a text that is all of it.
"""


class Plan(NamedTuple):
    """How to run a request as an actor.

    Attributes:
        run: the body; its result is the request's.
        target: what is called (a tool's name, a resource's URI), for names and logs.
        timeout: the maximum duration of the call in seconds; may be infinity.
        error_result: returns the result that reports a failure or a cancellation, or None to answer with a protocol error. A
            call that timed out is reported as a `LimitExceeded` that says which limit it was.
        resume: what happens if a retry arrives and the parked actor no longer exists.
        heartbeat: seconds without a report of progress after which one is sent; None for no heartbeat.
        repeatable: whether the call may safely run twice; a step that was running when its process ended may run again.
        task: whether it runs as a task.
        becomes: its request, from which `become_task` creates the task; None if the call never becomes one.
        delayed: see `Supervisor.start`.
    """

    run: Body
    target: str
    timeout: float = math.inf
    error_result: ErrorResult = lambda _facts, _cause, _failures: None
    resume: ResumeMode = ResumeMode.PARKED
    heartbeat: float | None = None
    repeatable: bool = False
    task: TaskSupport = TaskSupport.FORBIDDEN
    becomes: Model | None = None
    delayed: bool = False


Route: TypeAlias = Callable[[RequestFacts, Model], Model | Encoded | Plan]
"""Serve one request method: return a result, or the plan of an actor. Raises `ProtocolError` to reject."""


class PlainRoute(partial["Model | Encoded | Plan"]):
    """A route of `tools/call` that also takes a `PlainCall` as params. The body of its plan may return a text as it is then.

    What is around a route, such as middleware, is another route, which gets models.
    """


RequestCheck: TypeAlias = Callable[[RequestFacts, Model], None]
"""Compares a request with its HTTP headers, also one that carries a call forward. Raises `ProtocolError` to reject."""
