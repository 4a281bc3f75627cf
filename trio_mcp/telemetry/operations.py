"""One request that is sent or served, or a part of the work for it: its span, and its duration for the metrics.

Nothing in here fails what it describes: what the sampler, a span processor or a propagator of the program raises is counted and
logged, and the request goes on without a span.
"""

# The states of the span of an operation:
#
#     state      event       what happens
#     no span    start       the span begins, and is the current one until `leave`
#     begun      continued   it stays the one that the code of the call sees, under which the next leg begins
#     begun      end         its attributes are set, and it ends
#     no span    end         one begins, with the time at which the operation began, and ends; or none is wanted
#
# A request that carries a call forward starts late: the context of the first leg is in its state, which has to be opened.

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self, TypeVar

from pydantic_core import from_json

from .. import telemetry
from ..base.logs import RepeatedRecords, peer_logger
from ..protocol.codec.reading import RequestTerms
from ..protocol.jsonrpc import Encoded, ErrorDetail, RequestId
from ..types import JsonObject, Model
from .conventions import (
    ERROR_TYPE,
    MAX_CONTENT,
    MAX_TEXT,
    METHOD,
    NAMED,
    OTHER,
    REQUEST_ID,
    TOOL_ERROR,
    UNNAMED,
    Attributes,
    Value,
    content_attributes,
    request_attributes,
    session_attributes,
    status_of,
    target_of,
)

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from .spans import CallSpan, Origin, Spans

T = TypeVar("T")
logger = peer_logger("trio_mcp.telemetry")

MOST_LEGS: Final = 1000
"""Calls in rounds of one client whose first request is remembered."""
RESULT: Final = "gen_ai.tool.call.result"


class Role(NamedTuple):
    """What an operation is: the kind of its span, and the metric of its duration; "" for none."""

    kind: str
    metric: str = ""


SERVES: Final = Role("SERVER", "mcp.server.operation.duration")
SENDS: Final = Role("CLIENT", "mcp.client.operation.duration")
WORKS: Final = Role("INTERNAL")

Recorder = Callable[[str, float, Attributes], None]
"""Records a duration: the name of the metric, the seconds, and the attributes."""


class ServedRequest(Protocol):
    """A request as its handler knows it."""

    @property
    def id(self) -> RequestId: ...
    @property
    def method(self) -> str: ...
    @property
    def terms(self) -> RequestTerms: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class Telemetry:
    """The telemetry of one server or one client.

    Args:
        spans: makes spans; None for metrics alone.
        content: whether spans show arguments, results, and the URIs of resources.
        process: names this process among those of a server; "" for a client.

    Attributes:
        recorders: get the duration of each request.
        failures: how often something that the program has set up has failed.
    """

    def __init__(self, spans: Spans | None, *, content: bool = False, process: str = "") -> None:
        self.spans = spans
        self.content = content
        self.recorders: list[Recorder] = []
        self.failures = 0
        self._process = process
        self._records = RepeatedRecords(logger)
        self._first_legs: dict[str, str] = {}
        """The first request of a call in rounds, by the state that the next one carries."""

    def failed(self, error: Exception) -> None:
        """Count and log a failure of what the program has set up."""
        self.failures += 1
        self._records.log("telemetry failed", level=logging.ERROR, exc_info=error)

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Record a duration. What a recorder raises is counted."""
        try:
            for record in self.recorders:
                record(name, seconds, attributes)
        except Exception as error:  # noqa: BLE001  exporters are the program's
            self.failed(error)

    def session_ended(
        self,
        side: Literal["client", "server"],
        began: float,
        version: str,
        network: Mapping[str, Value],
        error: str | None = None,
    ) -> None:
        """Record how long a session was open.

        Args:
            side: whose session.
            began: when it was opened, in seconds of `time.perf_counter`.
            error: what has ended it; None if nothing went wrong.
        """
        attributes = session_attributes(version, network, error)
        self.record(f"mcp.{side}.session.duration", time.perf_counter() - began, attributes)

    # requests that are served

    def serving(self, facts: ServedRequest, params: Model, network: Mapping[str, Value]) -> Operation:
        """Return the operation of a request that came now; its span is the current one until `leave`."""
        operation = self._request(SERVES, facts.method, params, facts.terms.codec.revision.name, network)
        if self.spans is None:
            return operation
        operation.details[REQUEST_ID] = str(facts.id)[:MAX_TEXT]
        operation.details["trio_mcp.process"] = self._process
        try:
            operation.origin = self.spans.origin(facts.terms.meta.raw, facts.headers)
        except Exception as error:  # noqa: BLE001  propagators are the program's
            self.failed(error)
        if not facts.terms.asks_in_rounds or getattr(params, "request_state", None) is None:
            operation.start()
        return operation

    def answering(self, method: str, handler: Callable[[Model], Awaitable[T]]) -> Callable[[Model], Awaitable[T]]:
        """Return a handler of a server's question that runs as an operation."""

        def serve(params: Model) -> Awaitable[T]:
            # At once: who calls handlers does so in the order of the questions.
            return self._answer(method, params, handler(params))

        return serve

    async def _answer(self, method: str, params: Model, answering: Awaitable[T]) -> T:
        operation = self._request(SERVES, method, params, "", {})
        if self.spans is not None:
            try:
                found = telemetry.spans.extracted(getattr(params, "meta", None) or {})
                operation.origin = telemetry.spans.Origin(found)
            except Exception as error:  # noqa: BLE001  as in `serving`
                self.failed(error)
        with operation.begun():
            return await answering

    def working(self, label: str, target: str, meta: bytes = b"") -> Operation:
        """Return the operation of a part of a call, such as a branch, or of the work of a task.

        Args:
            label: the first word of its name; `target` is the second, if there is one.
            meta: the `_meta` of the request that it is for, where its span is not the current one.
        """
        operation = Operation(self, WORKS, f"{label} {target}".rstrip(), {})
        if self.spans is not None and meta:
            operation.origin = self.spans.origin_of_work(meta)
        return operation

    # requests that are sent

    def sending(
        self, method: str, params: Model, version: str, network: Mapping[str, Value] | None = None
    ) -> Operation:
        """Return the operation of a request that is sent now, to a server or to a client."""
        operation = self._request(SENDS, method, params, version, network or {})
        first = self._first_legs.pop(getattr(params, "request_state", None) or "", None)
        operation.start(first, attach=False)
        return operation

    def remember(self, state: str | None, first: str | None) -> None:
        """Remember which request the one that will carry this state follows."""
        if state and first:
            self._first_legs[state] = first
            if len(self._first_legs) > MOST_LEGS:
                del self._first_legs[next(iter(self._first_legs))]

    def _request(self, role: Role, method: str, params: Model, version: str, network: Mapping[str, Value]) -> Operation:
        target = target_of(method, params)
        attributes = request_attributes(method, target, version, network)
        operation = Operation(self, role, f"{method} {target}" if target else method, attributes)
        if self.content and self.spans is not None:
            operation.details |= content_attributes(method, params)
        return operation


class Operation:
    """One request, or a part of the work for one.

    Attributes:
        name: of its span.
        attributes: those that its span and its metrics have.
        details: those of its span alone.
        span: None before it starts, and where none is recorded.
        first: the context of the first leg of its call, as a `traceparent`; None if it is not known.
        began: when it began, in seconds of `time.perf_counter`.
    """

    __slots__ = (
        "_content",
        "_description",
        "_ended",
        "_is_started",
        "_role",
        "_telemetry",
        "_token",
        "_view",
        "attributes",
        "began",
        "details",
        "first",
        "name",
        "origin",
        "span",
    )

    def __init__(self, owner: Telemetry, role: Role, name: str, attributes: Attributes) -> None:
        self.began = time.perf_counter()
        self.name = name
        self.attributes = attributes
        self.details: Attributes = {}
        self.span: Span | None = None
        self.first: str | None = None
        self.origin: Origin | None = None
        self._role = role
        self._telemetry = owner
        self._is_started = owner.spans is None
        self._ended: float | None = None
        self._token: Token[Context] | None = None
        self._view: CallSpan | None = None
        self._description: str | None = None

    # its span

    def start(self, first: str | None = None, *, attach: bool = True) -> Self:
        """Begin the span, unless it has begun.

        Args:
            first: the context of the first leg of the call: the span is linked to it, and below it if it has no other parent.
            attach: make it the current one until `leave`.
        """
        spans = self._telemetry.spans
        if self._is_started or spans is None:
            return self
        self._is_started = True
        try:
            self._start(spans, first, attach=attach)
        except Exception as error:  # noqa: BLE001  samplers and span processors are the program's
            self._telemetry.failed(error)
        return self

    def _start(self, spans: Spans, first: str | None, *, attach: bool) -> None:
        module = telemetry.spans
        origin = self.origin or module.HERE
        if first is not None and (leg := spans.first_leg(first)) is not None and leg.is_valid:
            origin = module.after(origin, leg)
        late = int((time.perf_counter() - self.began) * 1e9)
        start_time = time.time_ns() - late if late > LATE_NS else None
        span = spans.start(self.name, self._role.kind, self.attributes | self.details, origin, start_time)
        if span.is_recording():
            self.span = span
            self.first = first or module.traceparent(span)
            if attach:
                self._view = span = module.CallSpan(span)
        if attach and (self.span is not None or origin.parent is not None):
            self._token = module.entered(span, origin)

    def leave(self) -> None:
        """Make the span that was the current one before the current one again."""
        token, self._token = self._token, None
        if token is not None:
            telemetry.spans.left(token)

    def carried(self) -> JsonObject:
        """Return the members of `_meta` that say where a request comes from; empty if there is nothing to say."""
        if self._telemetry.spans is None:
            return {}
        try:
            return dict(telemetry.spans.written(self.span))
        except Exception as error:  # noqa: BLE001  propagators are the program's
            self._telemetry.failed(error)
            return {}

    def sent_as(self, request_id: RequestId) -> None:
        """Note the id of a request that is sent."""
        self.details[REQUEST_ID] = str(request_id)[:MAX_TEXT]

    def continued(self, following: Operation) -> None:
        """Let what the code of the call does from now on be a part of its next leg."""
        following.details["trio_mcp.parked_seconds"] = round(following.began - (self._ended or self.began), 6)
        if self._view is not None and following.span is not None:
            self._view.leg = following.span
            following._view = self._view

    # its end

    def answered(self, outcome: Encoded | ErrorDetail | None) -> None:
        """Note what a request that is served was answered with; None for no answer."""
        if isinstance(outcome, ErrorDetail):
            self._note_error(outcome)
        elif outcome is not None and self.attributes.get(METHOD) == "tools/call":
            raw = outcome.raw
            # What is found may be in what the tool has returned.
            if raw.find(b'"isError":true') >= 0 and from_json(raw).get("isError") is True:
                self.attributes[ERROR_TYPE] = TOOL_ERROR
            self._show_result(raw)

    def returned(self, result: Model) -> None:
        """Note the result of a request that was sent."""
        if getattr(result, "is_error", None) is True:
            self.attributes[ERROR_TYPE] = TOOL_ERROR
        self._telemetry.remember(getattr(result, "request_state", None), self.first)
        if self._telemetry.content and self.attributes.get(METHOD) == "tools/call":
            self._show_result(result.encode())

    def _show_result(self, raw: bytes) -> None:
        if self._telemetry.content:
            self.details[RESULT] = raw[:MAX_CONTENT].decode(errors="ignore")

    def raised(self, error: BaseException) -> None:
        """Note that there is no result. A cancel is no error."""
        code = getattr(error, "code", None)
        if not isinstance(error, Exception):
            self.details["trio_mcp.cancelled"] = True
        elif isinstance(code, int):
            self._note_error(ErrorDetail(code, str(getattr(error, "message", error))))
        else:
            self.attributes[ERROR_TYPE] = type(error).__qualname__

    def unanswered(self, expected: type[Exception]) -> None:
        """Note that there is no result, and why if nothing has said so yet."""
        if ERROR_TYPE not in self.attributes and "trio_mcp.cancelled" not in self.details:
            self.attributes[ERROR_TYPE] = expected.__qualname__

    def _note_error(self, error: ErrorDetail) -> None:
        self.attributes |= status_of(error, is_server=self._role is SERVES)
        method = str(self.attributes.get(METHOD, ""))
        # A message about a resource names its URI.
        if self._telemetry.content or not method.startswith("resources/"):
            self._description = error.message[:MAX_TEXT]
        # What the programs of clients call is theirs to choose.
        if self._role is SERVES and error.code in UNNAMED and NAMED.get(method) in self.attributes:
            self.attributes[NAMED[method]] = OTHER
            self.name = f"{method} {OTHER}"
            if self.span is not None:
                self.span.update_name(self.name)

    def end(self, details: Mapping[str, Value] | None = None) -> None:
        """End the span, and record the duration, once.

        Args:
            details: more attributes of the span.
        """
        if self._ended is not None:
            return
        self._ended = time.perf_counter()
        owner = self._telemetry
        self.start(attach=False)
        try:
            if self.span is not None:
                self._end_span(self.span, details)
        except Exception as error:  # noqa: BLE001  span processors and exporters are the program's
            owner.failed(error)
        if self._role.metric:
            owner.record(self._role.metric, self._ended - self.began, self.attributes)

    def _end_span(self, span: Span, details: Mapping[str, Value] | None) -> None:
        span.set_attributes({**self.attributes, **self.details, **(details or {})})
        if ERROR_TYPE in self.attributes:
            telemetry.spans.mark_failed(span, self._description)
        span.end()

    # as a context manager: from its start to its end

    def begun(self) -> Self:
        """Begin the span; to be used in a `with` statement, in whose block it is the current one."""
        return self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.leave()
        if error is not None:
            self.raised(error)
        self.end()


LATE_NS: Final = 50_000
"""Nanoseconds after which the span of an operation has another beginning than its start."""
