"""docs/telemetry.md and docs/metrics.md: what they show is emitted, and what is emitted is on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pages import Page
from serving import ROOT

from trio_mcp import Client, accept
from trio_mcp.http import Metrics
from trio_mcp.telemetry.conventions import MAX_CONTENT, REFUSALS
from trio_mcp.telemetry.meters import DURATIONS, METERS
from trio_mcp.telemetry.prometheus import spelled
from trio_mcp.telemetry.spans import LONGEST

TELEMETRY, METRICS = Page("telemetry"), Page("metrics")
SOURCES = ROOT / "trio_mcp"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield spans
    provider.shutdown()


async def test_the_server_of_the_page_makes_the_spans_that_it_names(exporter: InMemorySpanExporter) -> None:
    names = TELEMETRY.run()
    async with Client.connect(names["server"], on_elicit=lambda _form: accept(value=True)) as client:
        result = await client.call_tool("book_flight", {"destination": "Lisbon"})
    assert result.data == "A flight to Lisbon is booked: 12A."
    found = {span.name for span in exporter.get_finished_spans()}
    assert {"tools/call book_flight", "elicitation/create", "look for seats"} <= found
    for name in ("tools/call book_flight", "elicitation/create", "look for seats"):
        assert f"`{name}`" in TELEMETRY.text


def test_every_attribute_of_ours_is_on_the_page() -> None:
    text = "".join(file.read_text("utf-8") for file in SOURCES.rglob("*.py"))
    written = set(re.findall(r'(?:details|shown)(?:\[|[^\n]*= \{)"(trio_mcp\.\w+)"', text))
    shown = set(re.findall(r"`(trio_mcp\.[a-z_]+)`", TELEMETRY.text)) - {"trio_mcp.telemetry"}
    assert {"trio_mcp.leg", "trio_mcp.replay", "trio_mcp.process"} <= written
    assert written == shown


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for number in (*LONGEST.values(), MAX_CONTENT):
        assert f"{number:,}" in TELEMETRY.prose
    assert sorted(REFUSALS) == [-32700, -32602, -32601, -32600, -32002]
    assert "-32700, -32600 to -32602 and -32002 are no errors" in TELEMETRY.prose


def test_every_metric_is_on_the_page() -> None:
    for name in DURATIONS:
        assert f"`{name}`" in METRICS.text
        assert f"`{spelled(name, 's')}`" in METRICS.text
    for name in METERS:
        assert f"`{name}`" in METRICS.text or f"`.{name.rpartition('.')[2]}`" in METRICS.text


def test_the_alerts_on_the_page_are_those_of_the_rules() -> None:
    rules = yaml.safe_load((ROOT / "docs" / "deploy" / "prometheus-alerts.yaml").read_text())["groups"][0]["rules"]
    assert re.findall(r"^\| `(Mcp\w+)` \|", METRICS.text, re.MULTILINE) == [rule["alert"] for rule in rules]


def test_the_picture_of_the_dashboard_has_every_panel_and_is_small() -> None:
    picture = ROOT / "docs" / "pictures" / "dashboard.svg"
    assert f"({picture.relative_to(ROOT / 'docs')})" in METRICS.text
    drawn = {"".join(each.itertext()) for each in ET.parse(picture).iter() if each.tag.endswith("}text")}
    panels = json.loads((ROOT / "docs" / "deploy" / "grafana-dashboard.json").read_text())["panels"]
    assert {panel["title"] for panel in panels} <= drawn
    assert picture.stat().st_size < 60_000


def test_the_options_on_the_page_are_those_of_the_code() -> None:
    names = METRICS.run()
    assert names["shop"].http.metrics == names["with_token"] == Metrics(token="a long random text")
    assert names["server"].http.metrics is True
