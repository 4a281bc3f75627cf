"""One request that is sent or served, or a part of the work for it: its span, and its duration for the metrics."""

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

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from pydantic_core import from_json

from .. import telemetry
from ..base.named_tuples import NamedTuple
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
    measured,
    status_of,
)

if TYPE_CHECKING:
    from .spans import AnySpan, Attached, CallSpan, Origin, Spans

RESULT: Final = "gen_ai.tool.call.result"
LATE_NS: Final = 50_000
"""Nanoseconds after which the span of an operation has another beginning than its start."""


class Role(NamedTuple):
    """What an operation is: the kind of its span, and the metric of its duration; "" for none."""

    kind: str
    metric: str = ""


SERVES: Final = Role("SERVER", "mcp.server.operation.duration")
SENDS: Final = Role("CLIENT", "mcp.client.operation.duration")
TAKES: Final = Role("SERVER")
WORKS: Final = Role("INTERNAL")


class Owner(Protocol):
    """Whose operations they are: `Telemetry`."""

    spans: Spans | None
    content: bool

    def failed(self, error: Exception) -> None: ...
    def record(self, name: str, seconds: float, attributes: Attributes) -> None: ...
    def remember(self, state: str, first: str | None) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class Operation:
    """One request, or a part of the work for one.

    Attributes:
        name: of its span.
        attributes: those that its span and its metrics have.
        details: those of its span alone.
        began: when it began, in seconds of `time.perf_counter`.
        span: None before it starts, and where none is recorded.
        origin: where it comes from; None for the code that runs when it starts.
    """

    _telemetry: Owner
    _role: Role
    name: str
    attributes: Attributes
    details: Attributes = field(default_factory=dict[str, Value], init=False)
    began: float = field(default_factory=time.perf_counter, init=False)
    span: AnySpan | None = field(default=None, init=False)
    origin: Origin | None = field(default=None, init=False)
    _is_started: bool = field(default=False, init=False)
    _first: str | None = field(default=None, init=False)
    _shown: Attributes = field(default_factory=dict[str, Value], init=False)
    """What the span began with."""
    _token: Attached | None = field(default=None, init=False)
    _view: CallSpan | None = field(default=None, init=False)
    _description: str | None = field(default=None, init=False)
    _ended: float | None = field(default=None, init=False)

    # its span

    @property
    def first(self) -> str | None:
        """The context of the first leg of its call, as a `traceparent`; None if there is no span."""
        return self._first if self._first or self.span is None else telemetry.spans.traceparent(self.span)

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
        self._shown = self.attributes | self.details
        span = spans.start(self.name, self._role.kind, self._shown, origin, start_time)
        if span.is_recording():
            self.span, self._first = span, first
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
        if (state := getattr(result, "request_state", None)) is not None:
            self._telemetry.remember(state, self.first)
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

    def end(self, details: Mapping[str, Value] | None = None, *, missing: type[Exception] | None = None) -> None:
        """End the span, and record the duration, once.

        Args:
            details: more attributes of the span.
            missing: why there is no result, unless a reason was noted before.
        """
        if self._ended is not None:
            return
        if missing is not None and ERROR_TYPE not in self.attributes and "trio_mcp.cancelled" not in self.details:
            self.attributes[ERROR_TYPE] = missing.__qualname__
        self._ended = time.perf_counter()
        owner = self._telemetry
        self.start(attach=False)
        try:
            if self.span is not None:
                self._end_span(self.span, details)
        except Exception as error:  # noqa: BLE001  span processors and exporters are the program's
            owner.failed(error)
        if self._role.metric:
            owner.record(self._role.metric, self._ended - self.began, measured(self.attributes))

    def _end_span(self, span: AnySpan, details: Mapping[str, Value] | None) -> None:
        shown, now = self._shown, {**self.attributes, **self.details, **(details or {})}
        # The SDK validates each attribute again.
        new = {name: value for name, value in now.items() if shown.get(name) != value}
        if new:
            span.set_attributes(new)
        if OTHER in new.values():
            span.update_name(self.name)
        if ERROR_TYPE in self.attributes:
            telemetry.spans.mark_failed(span, self._description)
        span.end()

    # as a context manager, in whose block it is the current one if it has started: from then to its end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.leave()
        if error is not None:
            self.raised(error)
        self.end()
