"""The spans and metrics of a test, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exported import Exported
from opentelemetry import trace


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """What the test exports: the provider of the process is its own."""
    spans = Exported()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    yield spans
    spans.provider.shutdown()
