"""One trace from a client program to a server program, over real transports."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from serving import IMPORTS, START, free_port

from trio_mcp import Client, accept

PROGRAM = Path(__file__).with_name("traced_server.py")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of this program, which is the client."""
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield spans
    provider.shutdown()


@asynccontextmanager
async def connected(transport: str, file: Path, mode: str) -> AsyncIterator[Client]:
    variables = {**os.environ, **IMPORTS, "SPANS": str(file)}
    options: dict[str, Any] = {"mode": mode, "on_elicit": lambda _form: accept(value="red")}
    command = [sys.executable, str(PROGRAM), transport]
    if transport == "stdio":
        async with Client.connect(command, env=variables, **options) as client:
            yield client
        return
    port = free_port()
    command = [*command, str(port)]
    if transport == "uvicorn":
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "traced_server:app",
            "--port",
            str(port),
            "--app-dir",
            str(PROGRAM.parent),
        ]
    process = await trio.lowlevel.open_process(command, env=variables)
    try:
        with trio.fail_after(START):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
        async with Client.connect(f"http://127.0.0.1:{port}/mcp", **options) as client:
            yield client
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


NETWORK = {
    "stdio": {"network.transport": "pipe"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "uvicorn": {"network.transport": "tcp", "network.protocol.name": "http"},
}


@pytest.mark.parametrize("transport", ["stdio", "http", "uvicorn"])
async def test_a_call_is_one_trace_over_two_programs(
    sent: InMemorySpanExporter, tmp_path: Path, transport: str, mode: str
) -> None:
    file = tmp_path / "spans.jsonl"
    with trio.fail_after(2 * START):
        async with connected(transport, file, mode) as client:
            sent.clear()
            assert (await client.call_tool("order")).data == "red red"
    here = [span for span in sent.get_finished_spans() if span.name == "tools/call order"]
    there = [json.loads(line) for line in file.read_text().splitlines()]
    legs = [span for span in there if span["name"] == "tools/call order"]
    assert len(here) == len(legs) == (3 if mode == "modern" else 1)
    traces = {f"0x{span.context.trace_id:032x}" for span in here if span.context is not None}
    assert traces == {span["context"]["trace_id"] for span in legs}
    assert len(traces) == 1
    asked = [span for span in there if span["name"] == "elicitation/create"]
    answered = [span for span in sent.get_finished_spans() if span.name == "elicitation/create"]
    assert len(asked) == len(answered) == 2
    assert {span["context"]["trace_id"] for span in asked} == traces
    for span in legs:
        assert span["attributes"].items() >= NETWORK[transport].items()
    for each in here:
        attributes = dict(each.attributes or {})
        assert attributes.items() >= NETWORK[transport].items()
        assert (attributes.get("server.address") == "127.0.0.1") == (transport != "stdio")
