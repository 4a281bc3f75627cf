"""The code of docs/observing.md is one program, and shows what the page says."""

from __future__ import annotations

import inspect
import json

import httpx2
import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pages import Names, Page
from peer import EVERYTHING
from serving import served
from talk import ERAS, Legacy, Talk, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, ToolError
from trio_mcp.session import CallState, Service, ServiceTree

PAGE = Page("observing")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.era)
async def test_the_branches_are_shown_as_on_the_page(page: Names, era: type[Legacy]) -> None:
    async with talk_to(page["server"], principal="alice") as talk:
        await era(talk, EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        shown = str(talk.service.tree())
    for line in (
        "branch 1 find_flights: waits for the model (sample)",
        "branch 2 choose_hotel: waits for the user (elicit)",
    ):
        assert line in shown
        assert line in PAGE.text
    assert "principal alice" in shown
    assert "Lisbon" not in shown


async def test_a_route_shows_the_tree(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with served(page["server"]) as url, httpx2.AsyncClient() as http:
            (tree,) = (await http.get(url.replace("/mcp", "/tree"))).json()
    assert (tree["name"], tree["clients"]) == ("travel", [])


async def test_the_metrics_are_numbers(page: Names) -> None:
    async with talk_to(page["server"]) as talk:
        await Legacy(Talk(talk.service), EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        metrics = page["metrics"]("travel")
    assert (metrics["travel_running"], metrics["travel_parked"], metrics["travel_open_questions"]) == (1, 0, 2)
    assert json.loads(json.dumps(metrics)) == metrics


async def test_prometheus_gets_the_numbers(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with served(page["server"]) as url, httpx2.AsyncClient() as http:
            reply = await http.get(url.replace("/mcp", "/metrics"))
    assert reply.headers["content-type"].startswith("text/plain")
    numbers = dict(line.split() for line in reply.text.splitlines())
    assert float(numbers["travel_running"]) == 0


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_call_is_a_span_below_that_of_its_client(page: Names, era: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    page["trace"].get_tracer = provider.get_tracer

    @page["server"].tool
    async def fails() -> None:
        """Fail, in a separate span."""
        with provider.get_tracer("mine").start_as_current_span("inner"):
            raise ToolError("no")

    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode=era) as client:
            await client.call_tool("fails", meta={"traceparent": PARENT})
    inner, call = exporter.get_finished_spans()
    assert (call.name, call.kind, call.status.status_code) == ("tools/call fails", SpanKind.SERVER, StatusCode.ERROR)
    assert call.attributes == {"mcp.method.name": "tools/call", "gen_ai.tool.name": "fails"}
    assert call.parent is not None
    assert f"{call.parent.trace_id:032x}" == PARENT.split("-")[1]
    assert inner.parent == call.context


def test_the_page_has_every_state_and_the_limits_of_the_code() -> None:
    assert [state for state in CallState if f"| `{state.value}` |" not in PAGE.text] == []
    for name, option in list(inspect.signature(Service.tree).parameters.items())[1:]:
        assert f"`{name}=` ({option.default})" in PAGE.text
    empty = ServiceTree("travel", "1.0", 0, 0, 0, 0, (), 9900)
    assert str(empty).splitlines()[-1].removeprefix("└─ ") in PAGE.text
