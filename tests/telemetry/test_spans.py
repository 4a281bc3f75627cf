"""The spans of requests, in both roles: their names, kinds, attributes and errors, and how they hang together."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from exported import Exported, attributes, id_of, is_child, is_linked
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from talk import talk_to
from wire_terms import INVALID_PARAMS

from trio_mcp import Backfill, Client, Context, PeerError, RelayServer, RequestTimeout, Server, ToolError, accept, proxy
from trio_mcp.providers import ScriptedProvider
from trio_mcp.session import KeyRing, ServiceOptions

ERAS = ("legacy", "modern")
both_eras = pytest.mark.parametrize("era", ERAS)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
MANY = SpanKind.SERVER, SpanKind.CLIENT


def shop(**options: object) -> Server:
    """A server whose tools make spans of their own."""
    server = Server("shop", options=ServiceOptions(**options))  # type: ignore[arg-type]
    tracer = trace.get_tracer("shop")

    @server.tool(resume="replay")
    async def order(ctx: Context) -> str:
        with tracer.start_as_current_span("before"):
            size = (await ctx.elicit("Which size?", str)).content
        with tracer.start_as_current_span("between"):
            pass
        colour = (await ctx.elicit("Which colour?", str)).content
        with tracer.start_as_current_span("after"):
            return f"{size} {colour}"

    @server.tool
    async def compare(ctx: Context) -> str:
        async def cheap(child: Context) -> str:
            with tracer.start_as_current_span("in cheap"):
                return (await child.elicit("Cheap?", str)).content or ""

        async def good(child: Context) -> str:
            with tracer.start_as_current_span("in good"):
                return "good"

        return " ".join(await ctx.branch_all(cheap, good))

    @server.tool
    def count() -> int:
        with tracer.start_as_current_span("in the thread"):
            return 1

    @server.tool(asyncio=True)
    async def fetch() -> int:
        with tracer.start_as_current_span("on asyncio"):
            return 1

    @server.tool
    async def refuse(secret: str) -> str:
        raise ToolError("not today")

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    @server.tool(timeout=0.01)
    async def slow() -> None:
        await trio.sleep_forever()

    @server.tool(task=True)
    async def work() -> str:
        with tracer.start_as_current_span("working"):
            return "done"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("secret://{name}")
    def file(name: str) -> str:
        return name

    return server


def answer(_params: object) -> object:
    return accept(value="red")


# one call


@both_eras
async def test_a_call_with_questions_is_one_trace_from_client_to_server(exported: Exported, era: str) -> None:
    async with Client.connect(shop(), mode=era, on_elicit=answer) as client:  # type: ignore[arg-type]
        exported.clear()
        await client.call_tool("order")
    legs = exported.named("tools/call order", SpanKind.SERVER)
    assert len(legs) == (3 if era == "modern" else 1)
    # A legacy client lists the tools before, because some of them may be tasks; and the server may still get its notification.
    before = {"tools/list", "notifications/initialized"}
    assert len({id_of(span) for span in exported.all if span.name not in before}) == 1
    assert [attributes(leg)["trio_mcp.leg"] for leg in legs] == [*range(1, len(legs) + 1)]
    for sent, served in zip(exported.named("tools/call order", SpanKind.CLIENT), legs, strict=True):
        assert is_child(served, sent)
    for kind in MANY:
        first, *later = exported.named("tools/call order", kind)
        assert all(is_linked(leg, first) for leg in later)
    for name in ("before", "between", "after"):
        assert "SERVER tools/call order" in exported.above(exported.one(name))


async def test_code_stands_under_the_leg_that_runs_when_it_begins(exported: Exported) -> None:
    async with Client.connect(shop(), mode="modern", on_elicit=answer) as client:  # type: ignore[arg-type]
        await client.call_tool("order")
    legs = exported.named("tools/call order", SpanKind.SERVER)
    for name, leg in zip(("before", "between", "after"), legs, strict=True):
        assert is_child(exported.one(name), leg)
    assert attributes(legs[1])["trio_mcp.parked_seconds"] >= 0  # type: ignore[operator]


@both_eras
async def test_a_question_is_a_span_of_both_sides(exported: Exported, era: str) -> None:
    async with Client.connect(shop(), mode=era, on_elicit=answer) as client:  # type: ignore[arg-type]
        await client.call_tool("order")
    asked, answered = (exported.named("elicitation/create", kind) for kind in (SpanKind.CLIENT, SpanKind.SERVER))
    assert len(asked) == len(answered) == 2
    for asking, answering in zip(asked, answered, strict=True):
        assert is_child(answering, asking)
    # The first is asked within a span of the author.
    assert exported.above(asked[0])[0] == "INTERNAL before"


@both_eras
async def test_a_branch_is_a_span_and_its_code_stands_below_it(exported: Exported, era: str) -> None:
    async with Client.connect(shop(), mode=era, on_elicit=answer) as client:  # type: ignore[arg-type]
        await client.call_tool("compare")
    for name in ("cheap", "good"):
        (above, *_) = exported.above(exported.one(f"in {name}"))
        assert above.startswith("INTERNAL branch ")
        assert above.endswith(name)
    (asked,) = exported.named("elicitation/create", SpanKind.CLIENT)
    assert attributes(asked)["trio_mcp.branch"] == "/1"


@pytest.mark.parametrize(("tool", "span"), [("count", "in the thread"), ("fetch", "on asyncio")])
async def test_code_in_threads_and_on_asyncio_stands_below_its_call(exported: Exported, tool: str, span: str) -> None:
    async with Client.connect(shop()) as client:
        await client.call_tool(tool)
    assert exported.above(exported.one(span))[0] == f"SERVER tools/call {tool}"


async def test_a_call_that_another_process_goes_on_with_is_the_same_trace(exported: Exported) -> None:
    keys = KeyRing.random()
    async with talk_to(shop(keys=keys)) as here, talk_to(shop(keys=keys)) as there:
        asked = await here.round(here.leg("order"))
        again = await there.round(asked.retry("L", talk=there))
        await there.reply_to(again.retry("red"))
    legs = exported.named("tools/call order", SpanKind.SERVER)
    assert [attributes(leg)["trio_mcp.leg"] for leg in legs] == [1, 2, 3]
    assert len({attributes(leg)["trio_mcp.process"] for leg in legs}) == 2
    assert attributes(legs[1])["trio_mcp.replay"] is True
    assert all(is_linked(leg, legs[0]) for leg in legs[1:])
    assert len({id_of(leg) for leg in legs}) == 1


@pytest.mark.parametrize("mounted", [False, True])
async def test_a_proxy_passes_contexts_on(exported: Exported, mounted: bool) -> None:
    through = proxy(shop())
    if mounted:
        outer = Server("outer")
        outer.mount("shop", through)
    async with Client.connect(outer if mounted else through, on_elicit=answer) as client:  # type: ignore[arg-type]
        exported.clear()
        await client.call_tool("shop_order" if mounted else "order")
    assert len({id_of(span) for span in exported.all if span.name != "subscriptions/listen"}) == 1
    assert "SERVER tools/call order" in exported.above(exported.one("after"))


async def test_a_proxy_that_answers_for_a_host_does_it_below_the_question(exported: Exported) -> None:
    server = Server("asks")

    @server.tool
    async def summarize(ctx: Context) -> str:
        return (await ctx.sample("Summarize")).text

    relay = RelayServer(Client.connect(server).new_channel, Backfill(ScriptedProvider(["short"])))
    async with Client.connect(relay) as client:
        assert (await client.call_tool("summarize")).data == "short"
    answered = exported.one("sampling/createMessage", SpanKind.SERVER)
    assert exported.above(answered)[0] == "CLIENT sampling/createMessage"
    assert "SERVER tools/call summarize" in exported.above(answered)


@both_eras
async def test_the_work_of_a_task_is_linked_to_the_request_that_created_it(exported: Exported, era: str) -> None:
    async with Client.connect(shop(), mode=era) as client:
        await client.call_tool("work", task=True)
    worked = exported.one("task work")
    created = exported.named("tools/call work", SpanKind.SERVER)[0]
    assert is_linked(worked, created)
    assert id_of(worked) == id_of(created)
    assert exported.above(exported.one("working"))[0] == "INTERNAL task work"


# names, attributes and errors


async def test_prompts_and_resources_are_named_without_what_a_client_fills_in(exported: Exported) -> None:
    async with Client.connect(shop()) as client:
        exported.clear()
        await client.get_prompt("greet", {"name": "Ada Lovelace"})
        await client.read_resource("secret://diary")
    assert {span.name for span in exported.all} == {"prompts/get greet", "resources/read"}
    assert attributes(exported.one("prompts/get greet", SpanKind.SERVER))["gen_ai.prompt.name"] == "greet"
    assert "Lovelace" not in exported.text
    assert "diary" not in exported.text


async def test_content_is_shown_if_that_is_asked_for(exported: Exported) -> None:
    server = shop(telemetry_content=True)
    async with Client.connect(server, telemetry_content=True) as client:
        await client.get_prompt("greet", {"name": "Ada Lovelace"})
        await client.read_resource("secret://diary")
        await client.call_tool("refuse", {"secret": "x" * 20_000})
    for kind in MANY:
        prompt = attributes(exported.one("prompts/get greet", kind))
        assert prompt["gen_ai.prompt.variable.name"] == "Ada Lovelace"
        assert attributes(exported.one("resources/read", kind))["mcp.resource.uri"] == "secret://diary"
        called = attributes(exported.one("tools/call refuse", kind))
        assert len(str(called["gen_ai.tool.call.arguments"])) == 8192
        assert "not today" in str(called["gen_ai.tool.call.result"])


async def test_a_tool_error_is_an_error_of_both_sides(exported: Exported) -> None:
    async with Client.connect(shop()) as client:
        await client.call_tool("refuse", {"secret": "hunter2"})
    for kind in MANY:
        span = exported.one("tools/call refuse", kind)
        assert attributes(span)["error.type"] == "tool_error"
        assert span.status.status_code is StatusCode.ERROR
    assert "hunter2" not in exported.text
    assert "not today" not in exported.text


async def test_a_refusal_is_an_error_of_the_client_alone_and_names_no_unknown_tool_at_the_server(
    exported: Exported,
) -> None:
    async with Client.connect(shop()) as client:
        with pytest.raises(PeerError):
            await client.call_tool("sell")
    served = exported.one("tools/call _other", SpanKind.SERVER)
    assert attributes(served)["rpc.response.status_code"] == "-32602"
    assert attributes(served)["gen_ai.tool.name"] == "_other"
    assert "error.type" not in attributes(served)
    assert served.status.status_code is StatusCode.UNSET
    sent = exported.one("tools/call sell", SpanKind.CLIENT)
    assert attributes(sent)["error.type"] == "-32602"
    assert sent.status.status_code is StatusCode.ERROR


async def test_a_cancel_is_no_error_and_shows_its_reason(exported: Exported) -> None:
    async with Client.connect(shop()) as client:
        with trio.move_on_after(0.05):
            await client.call_tool("wait")
    assert attributes(exported.one("tools/call wait", SpanKind.SERVER))["trio_mcp.cancel_reason"] == "client"
    sent = exported.one("tools/call wait", SpanKind.CLIENT)
    assert attributes(sent)["trio_mcp.cancelled"] is True
    assert all(span.status.status_code is StatusCode.UNSET for span in exported.named("tools/call wait"))


async def test_a_request_that_times_out_is_an_error_with_the_name_of_the_exception(exported: Exported) -> None:
    async with Client.connect(shop()) as client:
        with pytest.raises(RequestTimeout):
            await client.get_prompt("greet", {"name": "x"}, timeout=0)
        await client.call_tool("slow")
    served = attributes(exported.one("tools/call slow", SpanKind.SERVER))
    assert served["trio_mcp.cancel_reason"] == "deadline"
    assert served["error.type"] == "tool_error"


async def test_a_method_that_no_revision_has_makes_no_span(exported: Exported) -> None:
    async with talk_to(shop()) as talk:
        await talk.initialize()
        talk.request("shop/buy")
        await talk.receive()
        talk.notify("notifications/shop/bought")
        talk.notify("notifications/roots/list_changed")
        await talk.reply_to(talk.request("ping"))
    names = ["initialize", "notifications/initialized", "notifications/roots/list_changed", "ping"]
    assert [span.name for span in exported.all] == names


# contexts of peers


async def served_with(exported: Exported, members: dict[str, str]) -> ReadableSpan:
    async with talk_to(shop()) as talk:
        await talk.reply_to(talk.ask("tools/call", meta=members, name="count", arguments={}))
    return exported.one("tools/call count", SpanKind.SERVER)


async def test_a_context_in_meta_is_the_parent(exported: Exported) -> None:
    span = await served_with(exported, {"traceparent": PARENT, "tracestate": "a=b"})
    assert f"{id_of(span):032x}" == TRACE
    assert span.context is not None
    assert span.context.trace_state["a"] == "b"


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        "x" * 10_000,
        PARENT.replace("00-", "ff-"),
        PARENT + "-" + "f" * 10_000,
        f"00-{'0' * 32}-{'0' * 16}-01",
        "é",
        [PARENT],
    ],
)
async def test_a_malformed_context_is_dropped(exported: Exported, traceparent: Any) -> None:
    span = await served_with(exported, {"traceparent": traceparent})
    assert span.parent is None
    assert not span.links


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tenant=blue", "tenant"),
        ("a=" + "x" * 5000, ""),
        ("a=1", "a"),
        ("a=1, b=2 ,c=%20x;p;q=1", "a b c"),
        ("a=", "a"),
    ],
)
async def test_baggage_reaches_the_code_of_a_call_is_bounded_and_is_no_attribute(
    exported: Exported, text: str, names: str
) -> None:
    server, found = Server("bag"), []

    @server.tool
    async def look() -> None:
        found.append(dict(baggage.get_all()))

    async with talk_to(server) as talk:
        members = {"baggage": text, "traceparent": PARENT}
        await talk.reply_to(talk.ask("tools/call", meta=members, name="look", arguments={}))
    (carried,) = found
    assert " ".join(sorted(carried)) == names
    assert carried.get("tenant") in ("blue", None)
    assert "blue" not in exported.text


@pytest.mark.parametrize(
    "members",
    [
        {"baggage": "x," * 2000},
        {"baggage": "a b=1," * 600},
        {"baggage": "a=é," * 600},
        {"baggage": ",".join(f"k{n}=1" for n in range(400))},
        {"baggage": "a=1;" + "=;" * 1000},
        {"baggage": "a=1,b"},
        {"baggage": "a=  ;" * 800 + "\n"},
        {"traceparent": PARENT, "tracestate": "x," * 200},
        {"traceparent": PARENT, "tracestate": "a=\n"},
        {"traceparent": PARENT, "tracestate": "A=1"},
    ],
)
async def test_a_peer_cannot_fill_the_log_with_a_malformed_baggage_or_tracestate(
    exported: Exported, caplog: pytest.LogCaptureFixture, members: dict[str, str]
) -> None:
    await served_with(exported, members)
    assert [record.name for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_a_client_sends_its_context_and_baggage(exported: Exported) -> None:
    server, found = Server("meta"), []

    @server.tool
    async def look(ctx: Context) -> None:
        found.append(ctx.request.meta)

    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        async with Client.connect(server) as client:
            await client.call_tool("look")
    finally:
        context.detach(token)
    sent = exported.one("tools/call look", SpanKind.CLIENT)
    assert sent.context is not None
    assert found[0]["traceparent"][:-3] == f"00-{id_of(sent):032x}-{sent.context.span_id:016x}"
    assert found[0]["baggage"] == "tenant=blue"


async def test_the_context_around_a_connection_is_a_link_beside_that_in_meta(exported: Exported) -> None:
    async with talk_to(shop()) as talk:
        with trace.get_tracer("http").start_as_current_span("POST") as carrying:
            await talk.reply_to(talk.ask("tools/call", meta={"traceparent": PARENT}, name="count", arguments={}))
            await talk.reply_to(talk.ask("tools/call", name="count", arguments={}))
    with_meta, without = exported.named("tools/call count", SpanKind.SERVER)
    assert f"{id_of(with_meta):032x}" == TRACE
    assert [link.context.span_id for link in with_meta.links] == [carrying.get_span_context().span_id]
    assert exported.above(without) == ["INTERNAL POST"]


# on, off, and what fails


async def test_telemetry_can_be_switched_off(exported: Exported) -> None:
    async with Client.connect(shop(telemetry=False), telemetry=False) as client:
        await client.call_tool("count")
    assert [span.name for span in exported.all] == ["in the thread"]


async def test_a_provider_that_is_set_up_after_the_start_gets_the_spans_from_then_on(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    async with Client.connect(shop()) as client:
        await client.call_tool("count")
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", exported.provider)
        await client.call_tool("count")
    assert {span.kind for span in exported.named("tools/call count")} == {SpanKind.CLIENT, SpanKind.SERVER}


async def test_a_sampler_that_drops_everything_still_passes_the_context_on(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with the API alone: no provider is set.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    server, found = Server("chain"), []
    inner = Server("inner")

    @inner.tool
    async def look(ctx: Context) -> None:
        found.append(ctx.request.meta.get("traceparent"))

    @server.tool
    async def call() -> None:
        async with Client.connect(inner) as client:
            await client.call_tool("look")

    async with talk_to(server) as talk:
        await talk.reply_to(talk.ask("tools/call", meta={"traceparent": PARENT}, name="call", arguments={}))
    assert found == [PARENT]
    assert not exported.all


class Raises(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        raise RuntimeError("no collector")


class Hangs(SpanExporter):
    def __init__(self) -> None:
        self.over = threading.Event()

    def export(self, spans: object) -> SpanExportResult:
        self.over.wait(10)
        return SpanExportResult.FAILURE


@pytest.mark.parametrize("exporter", [Raises, Hangs])
async def test_an_exporter_that_raises_or_hangs_fails_and_delays_no_call(
    exported: Exported, exporter: type[SpanExporter]
) -> None:
    failing = exporter()
    processor = BatchSpanProcessor(failing, max_queue_size=8, max_export_batch_size=2, schedule_delay_millis=1)
    exported.provider.add_span_processor(processor)
    try:
        with trio.fail_after(8):
            async with Client.connect(shop()) as client:
                for _ in range(30):
                    assert (await client.call_tool("count")).data == 1
    finally:
        if isinstance(failing, Hangs):
            failing.over.set()


async def test_what_the_program_has_set_up_may_raise_and_is_counted(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("sampler")

    async with talk_to(shop()) as talk:
        telemetry = talk.service.calls.telemetry
        assert telemetry is not None
        monkeypatch.setattr(exported.provider.sampler, "should_sample", fail)
        await talk.reply_to(talk.ask("tools/call", name="count", arguments={}))
        assert telemetry.failures == 1
    assert "telemetry failed" in caplog.text


@both_eras
async def test_a_propagator_that_raises_fails_no_task(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    class Broken(TraceContextTextMapPropagator):
        def extract(self, *_args: object, **_options: object) -> context.Context:
            raise RuntimeError("propagator")

    monkeypatch.setattr(propagate, "propagators", Broken())
    async with Client.connect(shop(), mode=era) as client:
        assert (await client.call_tool("work", task=True)).data == "done"


@pytest.mark.parametrize("value", [b"bytes", 1, None, ["list"]])
async def test_a_propagator_that_writes_no_text_fails_no_request(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    class Odd(TraceContextTextMapPropagator):
        def inject(self, carrier: Any, *_args: object, **_options: object) -> None:
            carrier["baggage"] = value

    monkeypatch.setattr(propagate, "propagators", Odd())
    async with Client.connect(shop()) as client:
        assert (await client.call_tool("count")).data == 1


async def test_a_span_that_cannot_be_renamed_fails_no_request(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("span")

    monkeypatch.setattr("opentelemetry.sdk.trace._Span.update_name", fail)
    async with talk_to(shop()) as talk:
        reply = await talk.reply_to(talk.ask("tools/call", name="sell", arguments={}))
    assert reply["error"]["code"] == INVALID_PARAMS


UNUSED = """
import sys, trio
from trio_mcp import Client, Server
server = Server("s")
@server.tool
def one() -> int: return 1
async def main():
    async with Client.connect(server) as client:
        await client.call_tool("one")
trio.run(main)
print(*(name for name in sys.modules if "opentelemetry" in name or name.startswith("trio_mcp.telemetry.")))
"""


def test_a_program_without_opentelemetry_loads_none_of_it() -> None:
    root = Path(__file__).parents[2]
    program = f"import sys; sys.path[:0] = {[str(root), str(root / 'transports')]!r}\n{UNUSED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["trio_mcp.telemetry.opening"]


async def test_an_ended_call_is_freed_at_once(exported: Exported) -> None:
    gc.collect()
    gc.disable()
    try:
        before = kept_objects()
        async with talk_to(shop()) as talk:
            asked = await talk.round(talk.leg("order"))
            again = await talk.round(asked.retry("L"))
            await talk.reply_to(again.retry("red"))
            await talk.reply_to(talk.ask("tools/call", name="refuse", arguments={"secret": "x"}))
            await trio.testing.wait_all_tasks_blocked()
            assert kept_objects() - before == Counter()
    finally:
        gc.enable()


def kept_objects() -> Counter[str]:
    """Return how many objects of calls there are, those that other tests have left behind included."""
    kinds = Counter(type(each).__name__ for each in gc.get_objects())
    return Counter({kind: kinds[kind] for kind in ("CallInRounds", "Actor", "Operation", "CallSpan")})


async def test_each_request_of_a_batch_is_a_span_with_its_outcome(exported: Exported) -> None:
    async with talk_to(shop()) as talk:
        await talk.initialize("2025-03-26")
        calls = [
            {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate([("count", {}), ("refuse", {"secret": "x"})], 10)
        ]
        talk.send_batch(*calls)
        await talk.answers()
    assert "error.type" not in attributes(exported.one("tools/call count"))
    assert attributes(exported.one("tools/call refuse"))["error.type"] == "tool_error"
