"""What a test exports."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind


class Exported:
    """The spans that have ended, in the order in which they began."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def clear(self) -> None:
        self._exporter.clear()

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str, kind: SpanKind | None = None) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name and kind in (None, span.kind)]

    def one(self, name: str, kind: SpanKind | None = None) -> ReadableSpan:
        (span,) = self.named(name, kind)
        return span

    def above(self, span: ReadableSpan) -> list[str]:
        """The names of the spans above one, the nearest first."""
        by_id = {each.context.span_id: each for each in self.all if each.context is not None}
        names = []
        while span.parent is not None and span.parent.span_id in by_id:
            span = by_id[span.parent.span_id]
            names.append(f"{span.kind.name} {span.name}")
        return names

    @property
    def text(self) -> str:
        """Everything in them."""
        return "".join(span.to_json() for span in self.all)


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    assert of.context is not None
    return span.parent is not None and span.parent.span_id == of.context.span_id


def is_linked(span: ReadableSpan, to: ReadableSpan) -> bool:
    assert to.context is not None
    return to.context.span_id in [link.context.span_id for link in span.links]
