"""What to run for a request, and what the body that runs may do with its call."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from ...protocol.codec import Codec
from ...protocol.codec.reading import RequestTerms
from ...protocol.jsonrpc import Encoded, RequestId
from ...runtime import CancelReason, JournalEntry, Lane
from ...types import ClientCapabilities, Implementation, JsonObject, JsonValue, LoggingLevel, Model
from ..options import ServiceOptions

T = TypeVar("T", bound=Model)


class RequestFacts(NamedTuple):
    """What a handler may know about the request it serves; `size` is the number of its bytes on the wire."""

    id: RequestId
    method: str
    terms: RequestTerms
    principal: str | None
    headers: Mapping[str, str]
    size: int = 0

    @property
    def codec(self) -> Codec:
        return self.terms.codec

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return self.terms.client_capabilities

    @property
    def client_info(self) -> Implementation | None:
        return self.terms.client_info

    @property
    def meta(self) -> JsonObject:
        """The raw `_meta` object."""
        return self.terms.meta

    @property
    def protocol_version(self) -> str:
        return self.terms.codec.revision.name


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A question that a call asks its client.

    Attributes:
        kind: `elicit`, `sample` or `roots`; the first part of the question's key.
        answer_type: the model that a valid answer decodes to.
        needs: the client capabilities it takes, such as `elicitation.form`.
        name: the author's name for it; the key of the question where a call asks it once, outside of branches.
    """

    kind: str
    method: str
    params: Model
    answer_type: type[T]
    needs: tuple[str, ...]
    name: str | None = None


class ResumeMode(Enum):
    """What happens to a call whose parked actor is gone when its client comes back."""

    REPLAY = "replay"
    PARKED = "parked"


class CallPort(Protocol):
    """What the body of a plan may do with the call that runs it."""

    @property
    def facts(self) -> RequestFacts:
        """The request that is being served, or was served last."""
        ...

    @property
    def options(self) -> ServiceOptions: ...

    @property
    def deadline(self) -> float:
        """When the call must be over, on Trio's clock (seconds); infinity without a limit."""
        ...

    @property
    def replayable(self) -> bool:
        """Answers and step results are recorded, so that the body can run again."""
        ...

    @property
    def owns_outbox(self) -> bool:
        """The current request is answered on a channel that serves no other request."""
        ...

    def ask(self, lane: Lane, question: Question[T]) -> Awaitable[T]:
        """Ask the client and return its answer. A cancel withdraws the question.

        Raises:
            CapabilityError: the client did not declare that it can answer; nothing was sent.
            LimitExceeded: the call has too many open questions; nothing was sent.
            LocalProtocolError: the call was cancelled and its clean-up asks behind a shield; nothing was sent.
            Disconnected: the call is over (a thread of it may not be), or took too long to clean up and was answered for.
            PeerError: the client answered with an error (legacy only).
        """
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress on the current request, if it asked for reports.

        Raises:
            LocalProtocolError: the value did not rise (L-PRG-1b), or is not a finite number.
        """
        ...

    async def log(self, level: LoggingLevel, data: JsonValue, logger_name: str | None) -> None:
        """Send a log message, if the current request's threshold lets it through."""
        ...

    async def notify(self, method: str, params: Model) -> None:
        """Send a notification about the current request; waits while its reader is slow."""
        ...

    async def end_stream(self, retry: float | None) -> None:
        """End the response stream of the current request, where its client can come back for the rest."""
        ...

    def recall_step(self, name: str) -> JournalEntry | None:
        """Return the result that an earlier run had from this step."""
        ...

    def record_step(self, name: str, result: JsonValue) -> None:
        """Record the result of a step, for a replay."""
        ...


Body: TypeAlias = Callable[[CallPort, Lane], Awaitable[Model]]
"""Runs as an actor; the lane is that of the body, from which its branches start."""


class Plan(NamedTuple):
    """How to run a request as an actor.

    Attributes:
        run: the body; its result is the request's.
        target: what is called (a tool's name, a resource's URI), for names and logs.
        timeout: the longest the call may take in seconds, or infinity.
        error_result: returns the result that reports a failure or a cancellation, or None to answer with a protocol error. A
            call that timed out is reported as a `LimitExceeded` that says which limit it was.
        resume: what happens when the call's parked actor is gone.
    """

    run: Body
    target: str
    timeout: float = math.inf
    error_result: Callable[[BaseException | CancelReason], Model | None] = lambda _cause: None
    resume: ResumeMode = ResumeMode.PARKED


Route: TypeAlias = Callable[[RequestFacts, Model], Model | Encoded | Plan]
"""Serve one request method: answer at once, or return the plan of an actor. Raises `ProtocolError` to reject."""

RequestCheck: TypeAlias = Callable[[RequestFacts, Model], None]
"""Compares a request with its HTTP headers, also one that carries a call forward. Raises `ProtocolError` to reject."""
