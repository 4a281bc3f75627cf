"""What a handler may know of the request it serves, and the questions it may ask."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import trio
from pydantic_core import from_json

from ...base.logs import FailureLog, RepeatedRecords, peer_logger
from ...base.named_tuples import NamedTuple
from ...protocol.codec.reading import RequestTerms
from ...protocol.jsonrpc import Encoded, RequestId
from ...runtime import Actor, CancelReason, Lane
from ...runtime.loop_turn import LoopTurn
from ...types import ClientCapabilities, Implementation, JsonObject, Model
from ..envelope import Caller, caller_of

if TYPE_CHECKING:
    from ...protocol.codec.tasks import TaskState
    from ...telemetry import Telemetry


T = TypeVar("T", bound=Model)


class Asking(Protocol):
    """What asks a client on the channel of its session."""

    @property
    def facts(self) -> RequestFacts:
        """The request that it goes back to."""
        ...

    async def run(self, call: object, place: Actor | Lane) -> Encoded:
        """The body of the call."""
        ...

    def ended(self) -> None:
        """The call is over."""


class SessionFacts:
    """A legacy session, as far as what outlives a request needs it. When it has ended, it has only its name.

    Attributes:
        owner: names the session; other clients do not know it.
        notify: sends a notification that belongs to no request.
        notify_task: the same for the news that a task has changed.
        ask: starts a call whose questions belong to no request of the client, and returns what cancels it; None if the client
            cannot be reached. Raises `LimitExceeded` or `LocalProtocolError` where no call can be started.
        is_reachable: whether such messages reach the client now.
    """

    __slots__ = ("ask", "is_reachable", "notify", "notify_task", "owner")

    def __init__(
        self,
        owner: str,
        notify: Callable[[str, Model], None] | None,
        notify_task: Callable[[TaskState], None] | None,
        ask: Callable[[Asking], Callable[[], None] | None] | None,
        is_reachable: Callable[[], bool] | None,
    ) -> None:
        self.owner = owner
        self.notify = notify
        self.notify_task = notify_task
        self.ask = ask
        self.is_reachable = is_reachable


class LegacySession(Protocol):
    """A legacy session. Most need no facts of it, which are made when something first does."""

    @property
    def facts(self) -> SessionFacts: ...


class RequestFacts(NamedTuple):
    """The description of a request for its handler.

    Attributes:
        turn: the cost of expensive lookups for the request is added to it.
        size: its length in bytes as received.
        known_caller: the principal with its scopes and claims; None if it has none, or without a principal. Read `caller`.
        own_headers: the headers came with this request, and not with its connection.
        session: the legacy session that it belongs to; None if it belongs to none.
    """

    id: RequestId
    method: str
    terms: RequestTerms
    principal: str | None
    headers: Mapping[str, str]
    turn: LoopTurn
    size: int = 0
    known_caller: Caller | None = None
    own_headers: bool = False
    session: LegacySession | None = None

    @property
    def caller(self) -> Caller | None:
        """Who sent the request; None on a server without authentication."""
        return caller_of(self.principal, self.known_caller)

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return self.terms.client_capabilities

    @property
    def client_info(self) -> Implementation | None:
        return self.terms.client_info

    @property
    def meta(self) -> JsonObject:
        """The `_meta` object as it came; decoded each time it is read."""
        return cast("JsonObject", from_json(self.terms.meta.raw))

    @property
    def protocol_version(self) -> str:
        return self.terms.codec.revision.name


class QuestionTimeout(NamedTuple):
    """When a question is withdrawn, on Trio's clock (seconds), and the text of the error then."""

    deadline: float
    text: str


class Question(NamedTuple, Generic[T]):
    """A question that a call asks its client.

    Attributes:
        kind: `elicit`, `sample` or `roots`; the first part of the question's key.
        answer_type: the model that a valid answer decodes to.
        needs: the client capabilities that it requires, such as `elicitation.form`.
        name: the author's name for it; its key the first time that a call asks it outside of branches.
        timeout: when it is withdrawn; None if it has no timeout. The call that asks sees to it, this is for the record.
        result_method: of the request whose result answers it, if that is not `method`.
        trace: members of `_meta` that are sent with it and do not tell it from another question: where its span is. None before
            it has one, and without telemetry.
    """

    kind: str
    method: str
    params: Model
    answer_type: type[T]
    needs: tuple[str, ...]
    name: str | None = None
    timeout: QuestionTimeout | None = None
    result_method: str | None = None
    trace: JsonObject | None = None

    @property
    def sent_params(self) -> Model:
        """The params with the members of `trace`."""
        meta = {**(getattr(self.params, "meta", None) or {}), **(self.trace or {})}
        return self.params.model_copy(update={"meta": meta})


async def ask_traced(
    telemetry: Telemetry,
    ask: Callable[[Lane, Question[T]], Awaitable[T]],
    lane: Lane,
    question: Question[T],
    version: str,
) -> T:
    """Ask a question as a span. Raises what `ask` raises."""
    operation = telemetry.sending(question.method, question.params, version)
    if operation is None:
        return await ask(lane, question._replace(trace={}))
    with operation:
        if question.name is not None:
            operation.details["trio_mcp.question"] = question.name
        if lane.path:
            operation.details["trio_mcp.branch"] = lane.path
        return await ask(lane, question._replace(trace=operation.carried()))


class ResumeMode(Enum):
    """What happens if a retry arrives and the parked actor of the call no longer exists."""

    REPLAY = "replay"
    PARKED = "parked"


class TaskSupport(StrEnum):
    """Whether a call runs as a task: never, if its caller can have it, always, or from where its author says on."""

    FORBIDDEN = "forbidden"
    OPTIONAL = "optional"
    REQUIRED = "required"
    LATER = "later"

    @property
    def listed(self) -> str:
        """The word of 2025-11-25, where a caller decides with its request."""
        return TaskSupport.OPTIONAL.value if self is TaskSupport.LATER else self.value


# Each call asks for both, and to read a member of an enum takes ten times as long as a name of a module.
IS_REPLAYED: Final = ResumeMode.REPLAY
NEVER_A_TASK: Final = TaskSupport.FORBIDDEN

ErrorResult: TypeAlias = Callable[[RequestFacts, BaseException | CancelReason, FailureLog], Model | None]
"""Returns the result that reports a failure, which it logs, or a cancellation; None to answer otherwise, or not at all."""


# What a call reports to its client: log messages, progress, and the heartbeat between reports of progress.

logger = peer_logger("trio_mcp.call")

DROPPED = "%s: progress must rise, so this report was dropped: %s came after %s"


class ProgressReports:
    """The progress that one call has reported."""

    __slots__ = ("_last", "_records", "_sent", "_shared", "_told_before", "heartbeat", "message", "sent_at", "total")

    def __init__(self, shared: RepeatedRecords) -> None:
        self._shared = shared
        """Bounds what the calls of all clients make the server log."""
        self.total: float | None = None
        self.message: str | None = None
        self.sent_at = trio.current_time()
        """When the last report was sent, or the leg began, on Trio's clock (seconds)."""
        self._last = -math.inf
        """The last value of the author."""
        self._sent = -math.inf
        """The last value that was sent."""
        self._told_before = -math.inf
        """The last value that an earlier run of the call sent; what a replay reports up to there is not news."""
        self._records: RepeatedRecords | None = None
        self.heartbeat: trio.CancelScope | None = None
        """That of the open leg, if it has one; see `end_heartbeat`."""

    def accept(self, target: str, value: float) -> bool:
        """Return whether a value of the author is finite and more than the last one; log the first one that is not.

        Further ones are counted. The log has their number once a minute, and at the end of the call.
        """
        if self._last < value < math.inf:
            self._last = value
            return True
        self._records = self._records or RepeatedRecords(logger, self._shared)
        self._records.log(DROPPED, target, value, self._last)
        return False

    def continue_above(self, value: float) -> None:
        """Send only what is above this value, which an earlier run of the call has sent."""
        self._told_before = self._sent = value

    def report(
        self, target: str, value: float, total: float | None, message: str | None, *, is_wanted: bool
    ) -> float | None:
        """Accept a report of the author, and return the value that is sent for it; None if nothing is sent.

        Args:
            is_wanted: whether it is sent, if it is news: as it is, or as the next float above the last heartbeat if that is more.
        """
        if not self.accept(target, value) or not is_wanted:
            return None
        self.total, self.message = total, message
        if value <= self._told_before:
            return None
        return self._send(value if value > self._sent else next_float(self._sent))

    def heartbeat_value(self) -> float | None:
        """Return the value of a heartbeat: the next float above the last value that was sent, 0 before the first."""
        return self._send(0.0 if self._sent == -math.inf else next_float(self._sent))

    def _send(self, value: float) -> float | None:
        if not value < math.inf:
            return None
        self._sent = value
        self.sent_at = trio.current_time()
        return value

    def begin_heartbeat(self) -> trio.CancelScope:
        """Return the scope for the heartbeat of a leg that begins now."""
        self.sent_at = trio.current_time()
        self.heartbeat = trio.CancelScope()
        return self.heartbeat

    async def send_heartbeats(self, send: Callable[[], None], seconds: float, leg: trio.CancelScope) -> None:
        """Call `send` whenever nothing was reported for this long, until the leg is cancelled."""
        with leg:
            while True:
                due = self.sent_at + seconds
                await trio.sleep_until(due)
                # The body may have reported meanwhile, which puts the heartbeat off.
                if self.sent_at + seconds <= due:
                    self.sent_at = trio.current_time()
                    send()

    def end_heartbeat(self) -> None:
        """End the heartbeat, if there is one, because the leg has ended."""
        if self.heartbeat is not None:
            # Not `cancel()`, which would keep the frames of its callers, and with them the result, until the task runs.
            self.heartbeat.deadline = -math.inf
            self.heartbeat = None

    def close(self) -> None:
        """Log how many reports were only counted; the call is over."""
        if self._records is not None:
            self._records.close()


def next_float(value: float) -> float:
    """Return the next float above a number, which may be a large int; infinity if there is none."""
    try:
        return math.nextafter(value, math.inf)
    except OverflowError:
        return math.inf
