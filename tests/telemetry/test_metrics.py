"""The durations of the convention, the numbers of a running service, and the ids in log records."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trio
from convention import CONVENTION, mistakes
from exported import Exported, id_of
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, Metric, NumberDataPoint
from talk import talk_to

from trio_mcp import Client, Context, PeerError, Server, accept, configure_logging
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.session import KeyRing, Limits, ServiceOptions
from trio_mcp.telemetry.meters import DURATIONS, METERS


class Measured:
    """What a test measures."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def all(self) -> Mapping[str, Metric]:
        data = self._reader.get_metrics_data()
        found = [] if data is None else [each for one in data.resource_metrics for each in one.scope_metrics]
        return {metric.name: metric for scope in found for metric in scope.metrics}

    def durations(self, name: str) -> list[dict[str, object]]:
        """The attributes of each series of a histogram."""
        metric = self.all()[name]
        assert isinstance(metric.data, Histogram)
        return [dict(point.attributes or {}) for point in metric.data.data_points]

    def value(self, name: str, **attributes: str) -> float:
        """The one number with these attributes."""
        wanted = {f"trio_mcp.{key}": value for key, value in attributes.items()}
        points = [
            point for point in self.all()[name].data.data_points if wanted.items() <= dict(point.attributes).items()
        ]
        (point,) = points
        assert isinstance(point, NumberDataPoint)
        return point.value


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Measured]:
    made = Measured()
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", made.provider)
    yield made
    made.provider.shutdown()


def shop(**options: object) -> Server:
    server = Server("shop", options=ServiceOptions(**options))  # type: ignore[arg-type]

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Which?", str)).content or ""

    @server.tool
    async def fail() -> None:
        raise ValueError("no")

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    return server


async def test_the_durations_are_those_of_the_convention(measured: Measured, mode: str) -> None:
    async with Client.connect(shop(), mode=mode, on_elicit=lambda _form: accept(value="x")) as client:
        await client.call_tool("ask")
        await client.call_tool("fail")
        with pytest.raises(PeerError):
            await client.call_tool("sell")
    expected = {name for name in CONVENTION["metrics"] if mode == "legacy" or name != "mcp.server.session.duration"}
    assert {name for name in measured.all() if name.startswith("mcp.")} == expected
    for name in expected:
        metric, convention = measured.all()[name], CONVENTION["metrics"][name]
        assert metric.unit == convention["unit"]
        assert isinstance(metric.data, Histogram)
        for point in metric.data.data_points:
            assert list(point.explicit_bounds) == CONVENTION["buckets"]
        for attributes in measured.durations(name):
            assert attributes.keys() <= {*DURATIONS[name].attributes}
            allowed = [*convention["attributes"], *([] if "session" in name else CONVENTION["common"])]
            wrong = mistakes(attributes, allowed)
            assert wrong == (["mcp.method.name is missing"] if "session" in name else []), name
    failed = [each for each in measured.durations("mcp.server.operation.duration") if "error.type" in each]
    assert [each["error.type"] for each in failed] == ["tool_error"]


async def test_what_no_server_has_is_one_series(measured: Measured) -> None:
    async with Client.connect(shop()) as client:
        for number in range(20):
            with pytest.raises(PeerError):
                await client.call_tool(f"sell{number}")
    names = [each.get("gen_ai.tool.name") for each in measured.durations("mcp.server.operation.duration")]
    assert [name for name in names if name] == ["_other"]


async def test_the_codes_of_a_peer_that_no_specification_has_are_one_series(measured: Measured) -> None:
    server = Server("codes")

    @server.prompt
    def fail(code: str) -> str:
        raise RemoteProtocolError("no", code=int(code))

    async with Client.connect(server) as client:
        for code in ("-32000", *map(str, range(20)), "-32769"):
            with pytest.raises(PeerError):
                await client.get_prompt("fail", {"code": code})
    for side in ("server", "client"):
        failed = [each for each in measured.durations(f"mcp.{side}.operation.duration") if "error.type" in each]
        assert sorted(str(each["error.type"]) for each in failed) == ["-32000", "_OTHER"]
        assert all(each["error.type"] == each["rpc.response.status_code"] for each in failed)


async def test_the_numbers_of_a_service_are_observed_while_it_exists(measured: Measured) -> None:
    async with talk_to(shop(actors=Limits(actors=2))) as talk:
        await talk.initialize()
        talk.call("ask")
        await talk.receive()
        talk.call("wait")
        await talk.error(talk.call("wait"))
        talk.send_bytes(b'{"jsonrpc":"2.0","id":77,"result":{}}')
        assert measured.value("trio_mcp.calls", state="running") == 2
        assert measured.value("trio_mcp.questions", server="shop") == 1
        assert measured.value("trio_mcp.sessions", server="shop") == 1
        assert measured.value("trio_mcp.calls.refused", server="shop") == 1
        assert measured.value("trio_mcp.limits.refused", limit="calls that run") >= 1
        assert measured.value("trio_mcp.memory.limit", server="shop") > 0
        assert measured.value("trio_mcp.replies.dropped", kind="unknown") == 1
        units = {name: metric.unit for name, metric in measured.all().items() if name in METERS}
        assert units == {name: METERS[name].unit for name in units}
        assert units.keys() >= METERS.keys() - {"trio_mcp.threads"}


async def test_calls_are_counted_by_how_they_ended(measured: Measured) -> None:
    async with talk_to(shop()) as talk:
        await talk.initialize()
        call = talk.call("wait")
        await trio.testing.wait_all_tasks_blocked()
        talk.cancel(call)
        await talk.result(talk.call("fail"))
        assert measured.value("trio_mcp.calls.ended", outcome="cancelled", cancel_reason="client") == 1
        assert measured.value("trio_mcp.calls.ended", outcome="raised") == 1


async def test_the_time_that_a_durable_store_takes_is_measured(measured: Measured, tmp_path: Path) -> None:
    server = shop(store=str(tmp_path / "state.db"), keys=KeyRing.random())

    @server.tool(task=True)
    async def work() -> str:
        return "done"

    async with Client.connect(server) as client:
        await client.call_tool("work", task=True)
    seen = {str(each["trio_mcp.store.operation"]) for each in measured.durations("trio_mcp.store.operation.duration")}
    assert {"write", "list"} <= seen


async def test_a_reader_that_fails_fails_no_call(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    async with talk_to(shop()) as talk:
        telemetry = talk.service.calls.telemetry
        assert telemetry is not None

        def fail(*_arguments: object) -> None:
            raise RuntimeError("no metrics")

        monkeypatch.setattr(telemetry, "recorders", [fail])
        await talk.initialize()
        assert telemetry.failures == 1
        assert talk.service.statistics().telemetry_failures == 1


async def test_log_records_have_the_ids_of_their_trace(exported: Exported, root_logger: logging.Logger) -> None:
    server, lines = Server("shop"), io.StringIO()

    @server.tool
    async def note() -> None:
        logging.getLogger("shop").warning("sold out")

    configure_logging("warning", "json", stream=lines)
    async with Client.connect(server) as client:
        await client.call_tool("note")
    configure_logging("warning", "text", stream=lines)
    async with Client.connect(server) as client:
        await client.call_tool("note")
    first, second = exported.named("tools/call note")[1::2]
    in_json, in_text = lines.getvalue().splitlines()
    record = json.loads(in_json)
    assert first.context is not None
    assert (record["trace_id"], record["span_id"]) == (f"{id_of(first):032x}", f"{first.context.span_id:016x}")
    assert record["trace_flags"] in {"01", "03"}
    assert f"{id_of(second):032x}" in in_text
