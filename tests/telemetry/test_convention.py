"""What is emitted follows the convention, and equals what the official SDK emits for the same requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from convention import CONVENTION, mistakes, of_span
from exported import Exported, attributes
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from trio_mcp import Client, Server, accept
from trio_mcp.errors import McpError
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.session import ServiceOptions
from trio_mcp.telemetry.conventions import REFUSALS


def offering(server: Any) -> Any:
    """Let a server of either library offer the same."""

    @server.tool()
    def echo(text: str) -> str:
        return text

    @server.tool()
    def fail() -> str:
        raise ValueError("no")

    @server.prompt()
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("docs://readme")
    def readme() -> str:
        return "read me"

    return server


async def use(client: Any) -> None:
    """The requests that both libraries have."""
    await client.list_tools()
    await client.call_tool("echo", {"text": "hi"})
    await client.call_tool("fail", {})
    await client.get_prompt("greet", {"name": "Ada"})
    await client.list_resources()
    await client.read_resource("docs://readme")


@asynccontextmanager
async def ours(**options: Any) -> AsyncIterator[Client]:
    server = offering(Server("shop", options=ServiceOptions(telemetry_content=True)))
    async with Client.connect(server, on_elicit=lambda _form: accept(), **options) as client:
        yield client


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_every_span_of_a_request_has_the_attributes_of_the_convention_with_their_types(
    exported: Exported, era: str
) -> None:
    async with ours(mode=era, telemetry_content=True) as client:
        await use(client)
        with pytest.raises(McpError):
            await client.call_tool("sell", {})
    for span in exported.all:
        assert mistakes(attributes(span), of_span(span.kind.name)) == [], span.name
        method = attributes(span)["mcp.method.name"]
        target = attributes(span).get("gen_ai.tool.name") or attributes(span).get("gen_ai.prompt.name")
        assert span.name == (f"{method} {target}" if target else method)
        assert ("gen_ai.operation.name" in attributes(span)) == (method == "tools/call")
        assert ("error.type" in attributes(span)) == (span.status.status_code is StatusCode.ERROR)


def test_the_codes_that_are_no_errors_at_a_server_are_those_of_the_convention() -> None:
    assert sorted(REFUSALS) == sorted(CONVENTION["server_refusals"])


def test_the_convention_names_every_method_but_those_of_extensions() -> None:
    methods = {name for revision in REVISIONS.values() for name in revision.requests}
    assert {name for name in methods - {*CONVENTION["methods"]} if not name.startswith(("tasks/", "skills/"))} == set()


# the official SDK


@asynccontextmanager
async def official(mode: str) -> AsyncIterator[Any]:
    """A client of the official SDK with a server of it, in this process."""
    sdk = pytest.importorskip("mcp", reason="the official SDK is not installed")
    server = offering(sdk.server.MCPServer("shop", log_level="CRITICAL"))
    async with sdk.Client(server, mode=mode) as client:
        yield client


def shown(span: ReadableSpan) -> tuple[str, dict[str, object], StatusCode]:
    """What both libraries emit of a span: its name, the attributes without the ids that each counts, and its status."""
    name = span.name.removeprefix("MCP send ")
    own = {
        key: value
        for key, value in attributes(span).items()
        if not key.startswith(("trio_mcp.", "gen_ai.prompt.variable")) and key != "jsonrpc.request.id"
    }
    return name, own, span.status.status_code


# In the modern era its client sends nothing to a server in its process, and makes no spans.
@pytest.mark.parametrize(("era", "mode", "spans"), [("legacy", "legacy", 12), ("modern", "auto", 6)])
async def test_spans_equal_those_of_the_official_sdk(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, era: str, mode: str, spans: int
) -> None:
    otel = pytest.importorskip("mcp.shared._otel", reason="the official SDK is not installed")
    monkeypatch.setattr(otel, "_tracer", exported.provider.get_tracer("mcp-python-sdk"))
    async with official(mode) as client:
        exported.clear()
        await use(client)
    # That of `notifications/initialized` may begin before or after the clear.
    requests = [span for span in exported.all if not span.name.startswith("notifications/")]
    theirs = {(shown(span)[0], span.kind): span for span in requests}
    async with ours(mode=era) as client:
        exported.clear()
        await use(client)
    mine = {(shown(span)[0], span.kind): span for span in exported.all}
    assert len(theirs) == spans
    for key, span in theirs.items():
        (name, own, status), (_, of_sdk, of_sdk_status) = shown(mine[key]), shown(span)
        assert {each: own.get(each) for each in of_sdk} == of_sdk, name
        assert "jsonrpc.request.id" in attributes(mine[key])
        # A server of the SDK marks a tool that failed, its client does not; the convention wants both.
        if name != "tools/call fail" or key[1] is SpanKind.SERVER:
            assert status is of_sdk_status, name
        assert exported.above(mine[key])[:1] == ([f"CLIENT {name}"] if key[1] is SpanKind.SERVER else [])


async def test_the_span_of_a_notification_equals_that_of_the_official_sdk(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    otel = pytest.importorskip("mcp.shared._otel", reason="the official SDK is not installed")
    monkeypatch.setattr(otel, "_tracer", exported.provider.get_tracer("mcp-python-sdk"))
    async with official("legacy") as client:
        await client.list_tools()
    theirs = exported.one("notifications/initialized")
    exported.clear()
    async with ours(mode="legacy") as client:
        await client.list_tools()
    mine = exported.one("notifications/initialized")
    assert mine.kind is theirs.kind is SpanKind.SERVER
    assert shown(mine) == shown(theirs)
    assert mistakes(attributes(mine), of_span("SERVER")) == []
