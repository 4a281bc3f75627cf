"""What a handler may know of the request it serves, and the questions it may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from pydantic_core import from_json

from ...base.logs import FailureLog
from ...protocol.codec.reading import RequestTerms
from ...protocol.jsonrpc import Encoded, RequestId
from ...runtime import Actor, CancelReason, Lane
from ...runtime.loop_turn import LoopTurn
from ...types import ClientCapabilities, Implementation, JsonObject, Model
from ..envelope import Caller, caller_of

if TYPE_CHECKING:
    from ...protocol.codec.tasks import TaskState

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
    """

    kind: str
    method: str
    params: Model
    answer_type: type[T]
    needs: tuple[str, ...]
    name: str | None = None
    timeout: QuestionTimeout | None = None
    result_method: str | None = None


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
