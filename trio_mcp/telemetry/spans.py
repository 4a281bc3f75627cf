"""The spans of OpenTelemetry, and how their context travels in `_meta` (SEP-414). The only module that knows the API of spans."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import Token
from re import Pattern
from typing import Final, TypeAlias

from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.util.types import Attributes as SpanAttributes, AttributeValue
from pydantic_core import from_json

from ..base.named_tuples import NamedTuple
from .conventions import Attributes

AnySpan: TypeAlias = Span
Attached: TypeAlias = Token[Context]
"""What `entered` returns."""

LONGEST: Final[Mapping[str, int]] = {"traceparent": 256, "tracestate": 512, "baggage": 4096}
"""The members of `_meta` that carry a context, and the most characters of each; a longer one is dropped."""

# Possessive, so that a peer's text takes a time that grows with its length alone.
_NAME: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE: Final = r"[!#-+\--:<-\[\]-~]*+"
_IS: Final = rf"[ \t]*+=[ \t]*+{_VALUE}"
_PAIR: Final = rf"[ \t]*+{_NAME}{_IS}(?:[ \t]*+;[ \t]*+{_NAME}(?:{_IS})?+)*+[ \t]*+"
_KEY: Final = r"[a-z][a-z0-9_\-*/]{0,255}+|[a-z0-9][a-z0-9_\-*/]{0,240}+@[a-z][a-z0-9_\-*/]{0,13}+"
_VISIBLE: Final = r"[!-+\--<>-~]++"
_STATE: Final = rf"[ \t]*+(?:{_KEY})=(?=[^,]{{1,256}}(?:,|\Z)) *+{_VISIBLE}(?: ++{_VISIBLE})*+"
WELLFORMED: Final[Mapping[str, Pattern[str]]] = {
    "baggage": re.compile(rf"{_PAIR}(?:,{_PAIR}){{0,179}}+"),
    "tracestate": re.compile(rf"{_STATE}(?:,{_STATE}){{0,31}}+"),
}
"""By W3C Baggage and Trace Context. The rest is dropped: propagators log each malformed member, and a peer could fill the log."""


class CallSpan(Span):
    """The span of the leg that a call is on: what its code sees as the current span, in all its tasks and threads.

    A call of several legs has a span for each, and its code does not know where one ends and the next begins.

    Attributes:
        leg: the span of the leg that runs, or ran last.
    """

    def __init__(self, leg: Span) -> None:
        self.leg = leg

    def end(self, end_time: int | None = None) -> None:
        """Do nothing: the leg ends with its answer."""

    def get_span_context(self) -> SpanContext:
        return self.leg.get_span_context()

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self.leg.set_attributes(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self.leg.set_attribute(key, value)

    def add_event(self, name: str, attributes: SpanAttributes = None, timestamp: int | None = None) -> None:
        self.leg.add_event(name, attributes, timestamp)

    def update_name(self, name: str) -> None:
        self.leg.update_name(name)

    def is_recording(self) -> bool:
        return self.leg.is_recording()

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self.leg.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: SpanAttributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        self.leg.record_exception(exception, attributes, timestamp, escaped)


class Origin(NamedTuple):
    """Where a request comes from.

    Attributes:
        parent: the context that its span is below; None for that of the code that runs now.
        links: the spans that have to do with it.
    """

    parent: Context | None = None
    links: Sequence[Link] = ()


HERE: Final = Origin()


class Spans:
    """Makes spans, and reads and writes their contexts."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("trio_mcp")
        self._is_idle = True

    @property
    def is_idle(self) -> bool:
        """Whether no provider is set up: there are the spans of the API, which are not recorded.

        A program may set one up after its server has started; the tracer uses it from then on.
        """
        if self._is_idle:
            self._is_idle = type(trace.get_tracer_provider()).__module__.startswith("opentelemetry.trace")
        return self._is_idle

    def start(
        self, name: str, kind: str, attributes: Attributes, origin: Origin, start_time: int | None = None
    ) -> Span:
        """Begin a span.

        Args:
            kind: the name of a `SpanKind`.
            start_time: in nanoseconds since 1970; None for now.
        """
        return self._tracer.start_span(name, origin.parent, SpanKind[kind], attributes, origin.links, start_time)

    @staticmethod
    def origin(meta: bytes, headers: Mapping[str, str]) -> Origin:
        """Return where a request comes from, by its `_meta` and its HTTP headers.

        The context in `_meta` is the parent. That of the HTTP request, which the instrumentation of an ASGI server has made
        current, or which its headers name, is a link then, and the parent of a request without one in its `_meta`.
        """
        is_sent = b'"traceparent"' in meta or b'"baggage"' in meta
        sent = extracted(from_json(meta)) if is_sent else None
        carrying = trace.get_current_span().get_span_context()
        if not carrying.is_valid and "traceparent" in headers:
            over_http = extracted(headers)
            if sent is None or not is_traced(sent):
                return Origin(sent if over_http is None else over_http)
            carrying = trace.get_current_span(over_http or Context()).get_span_context()
        if sent is None or not is_traced(sent):
            return HERE if sent is None else Origin(with_baggage_of(sent))
        return Origin(sent, [Link(carrying)] if carrying.is_valid else ())

    def origin_of_work(self, meta: bytes) -> Origin:
        """Return where the work of a task comes from: the request that has created it, which is a link too."""
        origin, creating = self.origin(meta, {}), trace.get_current_span().get_span_context()
        return Origin(origin.parent, [Link(creating)]) if creating.is_valid else origin

    @staticmethod
    def first_leg(text: str) -> SpanContext | None:
        """Return the context in a `traceparent` that `written` returned; None if it is none."""
        found = extracted({"traceparent": text})
        return None if found is None else trace.get_current_span(found).get_span_context()


def carries(meta: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a request brings a context."""
    return b'"traceparent"' in meta or b'"baggage"' in meta or "traceparent" in headers


def has_context() -> bool:
    """Return whether the code that runs now has a context to pass on."""
    return trace.get_current_span().get_span_context().is_valid or bool(baggage.get_all())


def is_traced(of: Context) -> bool:
    return trace.get_current_span(of).get_span_context().is_valid


def with_baggage_of(sent: Context) -> Context:
    """Return the current context with the baggage of another one."""
    current = context.get_current()
    for name, value in baggage.get_all(sent).items():
        current = baggage.set_baggage(name, value, current)
    return current


def extracted(carrier: Mapping[str, object]) -> Context | None:
    """Return the context in what a peer has sent; None if there is none. What is too long or malformed is dropped."""
    kept = {
        name: value
        for name, most in LONGEST.items()
        if isinstance(value := carrier.get(name), str)
        and len(value) <= most
        and (name not in WELLFORMED or WELLFORMED[name].fullmatch(value))
    }
    return propagate.extract(kept, Context()) if kept else None


def written(span: Span | None) -> dict[str, str]:
    """Return the members of `_meta` for the context of a span; None for the current one."""
    if span is None and not has_context():
        return {}
    carrier: dict[str, object] = {}
    propagate.inject(carrier, None if span is None else trace.set_span_in_context(span))
    return {
        name: value
        for name, most in LONGEST.items()
        if isinstance(value := carrier.get(name), str) and len(value) <= most
    }


def traceparent(span: Span) -> str:
    """Return the context of a span as one text."""
    of = span.get_span_context()
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


def after(origin: Origin, first: SpanContext) -> Origin:
    """Return the origin of a later leg of a call: linked to the first one, and below it if it has no other parent."""
    parent = origin.parent
    if parent is None and not trace.get_current_span().get_span_context().is_valid:
        parent = trace.set_span_in_context(trace.NonRecordingSpan(first))
    return Origin(parent, [*origin.links, Link(first)])


def entered(span: Span, origin: Origin) -> Attached:
    """Make a span the current one; return what `left` takes."""
    return context.attach(trace.set_span_in_context(span, origin.parent))


def left(token: Attached) -> None:
    """Make the span that was the current one before `entered` the current one again."""
    context.detach(token)


def mark_failed(span: Span, description: str | None) -> None:
    """Say that what a span describes has failed."""
    span.set_status(StatusCode.ERROR, description)


def log_fields() -> Mapping[str, str]:
    """Return the ids of the current span, under the names that the convention has for logs in other formats."""
    of = trace.get_current_span().get_span_context()
    if not of.is_valid:
        return {}
    return {"trace_id": f"{of.trace_id:032x}", "span_id": f"{of.span_id:016x}", "trace_flags": f"{of.trace_flags:02x}"}
