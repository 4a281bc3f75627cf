"""Calls of tools whose params and results nothing looks at: they are served without models, to the same bytes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from exported import Exported, attributes
from hypothesis import example, given, strategies as st
from opentelemetry import trace
from peer import BOUND, EVERYTHING, Json, data_of, encoded, hello, message_of, modern_meta
from talk import Talk, offering, talk_to
from wire_terms import IDEMPOTENCY_KEY, TASKS_EXTENSION
from wires import WIRES, Step, Wire, connected

from trio_mcp import CallHandler, CallRequest, CallResult, Context, Server, ToolError
from trio_mcp.server import ToolSearch
from trio_mcp.session import KeyRing, MessageFacts, make_session
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import CallToolRequestParams, CallToolResult, Model, SamplingMessage, TextContent, ToolResultContent

LONE = "\ud800"


async def echo(text: str = "nothing") -> str:
    return text


async def lone() -> str:
    return LONE


async def fail(text: str) -> str:
    raise ToolError(text)


async def nothing() -> None:
    pass


async def number(value: int) -> int:
    return value


TOOLS = (echo, lone, fail, nothing, number)


def look(_message: MessageFacts) -> None:
    """Message middleware that lets everything pass."""


async def params_of(server: Server) -> object:
    """Return the params with which a plain call would be served."""
    async with server.open_service() as service:
        session = make_session(service)
        params: Json = {"name": "echo", "arguments": {"text": "hi"}, "_meta": modern_meta(EVERYTHING)}
        message = message_of({"id": 1, "method": "tools/call", "params": params})
        return session.connection.receive(message).params


# who sees models


async def test_a_plain_call_is_served_without_a_model() -> None:
    params = await params_of(offering(echo))
    assert (params.name, params.arguments) == ("echo", {"text": "hi"})
    assert not isinstance(params, Model)
    assert isinstance(params.model, CallToolRequestParams)


def with_message_middleware(_folder: Path) -> Server:
    server = offering(echo)
    server.message_middleware(look)
    return server


def results_of(server: Server) -> list[CallResult]:
    """Let middleware keep the results of calls."""
    seen: list[CallResult] = []

    @server.middleware
    async def passing(_call: CallRequest, handler: CallHandler) -> CallResult:
        seen.append(await handler())
        return seen[-1]

    return seen


def with_call_middleware(_folder: Path) -> Server:
    server = offering(echo)
    results_of(server)
    return server


def with_tool_search(_folder: Path) -> Server:
    server = Server("tester", version="1", tool_search=ToolSearch())
    server.tool(echo)
    return server


def with_durable_store(folder: Path) -> Server:
    return offering(echo, store=f"sqlite://{folder}/calls.db", keys=KeyRing([bytes(32)]))


WATCHED = (with_message_middleware, with_call_middleware, with_tool_search, with_durable_store)


@pytest.mark.parametrize("made", WATCHED)
async def test_what_looks_at_calls_sees_the_model_of_their_params(
    made: Callable[[Path], Server], tmp_path: Path
) -> None:
    assert isinstance(await params_of(made(tmp_path)), CallToolRequestParams)


async def test_the_log_of_calls_sees_their_models(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trio_mcp.calls")
    assert isinstance(await params_of(offering(echo)), CallToolRequestParams)


async def test_middleware_sees_the_result_as_a_model() -> None:
    server = offering(echo)
    seen = results_of(server)
    assert await text_of(server, "echo") == "hi"
    assert seen == [CallToolResult(content=[TextContent(text="hi")])]


async def test_the_middleware_of_a_mounted_server_sees_the_result_as_a_model() -> None:
    inner, outer = offering(echo), Server("outer")
    seen = results_of(inner)
    outer.mount("in", inner)
    assert not isinstance(await params_of(outer), Model)
    assert await text_of(outer, "in_echo") == "hi"
    assert seen == [CallToolResult(content=[TextContent(text="hi")])]


async def test_a_result_over_the_limit_of_its_tool_becomes_a_preview() -> None:
    server = Server("tester")
    server.tool(max_result=2048)(echo)
    async with talk_to(server) as talk:
        result = await talk.result(talk.leg("echo", {"text": "x" * 5000}))
    assert [block["type"] for block in result["content"]] == ["text", "text", "resource_link"]


async def test_a_plain_call_of_a_tool_that_runs_as_a_task_becomes_one() -> None:
    server = Server("tester")
    server.tool(task=True)(echo)
    assert not isinstance(await params_of(server), Model)
    async with talk_to(server) as talk:
        # The extension is declared, so that the server decides.
        declared: Json = {"extensions": {TASKS_EXTENSION: {}}}
        result = await talk.result(talk.leg("echo", {"text": "hi"}, capabilities=declared))
    assert result["resultType"] == "task"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_tool_loop_in_a_plain_call_sees_the_results_of_its_tools_as_models(era: str) -> None:
    seen: list[SamplingMessage] = []

    async def loop(ctx: Context) -> str:
        found = await ctx.run_tool_loop("Echo.", ["echo"])
        seen.extend(found.messages)
        return found.text

    server = offering(echo, loop)
    assert not isinstance(await params_of(server), Model)
    client = MockClient(samples=[[tool_use("echo", text="hi")], "done"], era=era)
    assert (await client.call((server, "loop"))).text == "done"
    _, _, results, _ = seen
    assert results.content == [ToolResultContent(tool_use_id="echo_1", content=[TextContent(text="hi")])]


async def test_the_span_of_a_plain_call_shows_what_that_of_a_watched_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", exported.provider)
    plain, watched = [offering(echo, telemetry_content=True) for _ in "ab"]
    watched.message_middleware(look)
    assert not isinstance(await params_of(plain), Model)
    for server in (plain, watched):
        assert await text_of(server, "echo") == "hi"
    exported.provider.shutdown()
    of_plain, of_watched = [
        {name: value for name, value in attributes(span).items() if name != "trio_mcp.process"}
        for span in exported.named("tools/call echo")
    ]
    assert of_plain == of_watched
    assert of_plain["gen_ai.tool.call.arguments"] == '{"text":"hi"}'
    assert "hi" in str(of_plain["gen_ai.tool.call.result"])


async def test_the_repeat_of_a_plain_call_with_a_key_gets_its_outcome() -> None:
    calls: list[str] = []

    async def count(text: str) -> str:
        calls.append(text)
        return f"{len(calls)}"

    async with talk_to(offering(count)) as talk:
        first, second = [
            await talk.result(talk.leg("count", {"text": "hi"}, meta={IDEMPOTENCY_KEY: "k"})) for _ in "ab"
        ]
    assert first == second
    assert calls == ["hi"]


async def test_the_value_of_a_tool_that_is_no_text_after_all_is_an_error() -> None:
    async def wrong() -> str:
        return 5  # type: ignore[return-value]

    async with talk_to(offering(wrong)) as talk:
        result = await talk.result(talk.leg("wrong"))
    assert result["isError"] is True


async def text_of(server: Server, name: str) -> str:
    async with talk_to(server) as talk:
        result = await talk.result(talk.leg(name, {"text": "hi"}))
    return str(result["content"][0]["text"])


# every transport


@pytest.mark.parametrize("is_modern", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_on_each_transport_what_looks_at_calls_sees_models(wire: str, is_modern: bool) -> None:
    messages: dict[str, object] = {}
    server = offering(echo)
    server.message_middleware(lambda message: messages.update({message.method: message.params}))
    results = results_of(server)
    await heard_over(wire, server, is_modern)
    assert isinstance(messages["tools/call"], CallToolRequestParams)
    assert results == [CallToolResult(content=[TextContent(text="hi")])]


@pytest.mark.parametrize("is_modern", [False, True])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("made", WATCHED)
async def test_on_each_transport_a_watched_call_gets_what_a_plain_one_gets(
    made: Callable[[Path], Server], wire: str, is_modern: bool, tmp_path: Path
) -> None:
    plain = await heard_over(wire, offering(echo), is_modern)
    assert plain["result"]["content"] == [{"type": "text", "text": "hi"}]
    assert await heard_over(wire, made(tmp_path), is_modern) == plain


async def heard_over(wire: str, server: Server, is_modern: bool) -> Json:
    """Return the response to a call of `echo` over one of the transports."""
    call: Json = {"name": "echo", "arguments": {"text": "hi"}}
    async with connected(wire, server) as (_service, client):
        if is_modern:
            call["_meta"] = modern_meta(EVERYTHING)
        else:
            await client.send(Step(encoded({"id": 1, "method": "initialize", "params": hello()})))
            await heard_from(client)
            await client.send(Step(encoded({"method": "notifications/initialized"})))
        await client.send(Step(encoded({"id": 2, "method": "tools/call", "params": call})))
        response = await heard_from(client)
        await client.close()
    return response


async def heard_from(client: Wire) -> Json:
    """Return the one message that comes next."""
    with trio.fail_after(BOUND):
        while not (heard := client.heard()):
            await trio.testing.wait_all_tasks_blocked(0.001)
    (message,) = heard
    assert isinstance(message, dict)
    return message


# the bytes

TEXTS = st.text() | st.sampled_from(["", '"', "\\", "\x00", "\u2028", "é😀"])

NAMES = st.sampled_from([*(tool.__name__ for tool in TOOLS), "unknown", "", LONE])
ODD: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | TEXTS | st.just([]) | st.just({"a": 1})
ARGUMENTS = st.dictionaries(st.sampled_from(["text", "value", "more"]), TEXTS | ODD, max_size=3) | ODD
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | ODD,
        "arguments": ARGUMENTS,
        "task": ODD | st.just({"ttl": 5}),
        "unknown": ODD,
        "inputResponses": ODD,
        "requestState": ODD,
    },
)
PLAIN = st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS})
METAS = st.none() | ODD | st.fixed_dictionaries({}, optional={"progressToken": ODD, "k": ODD, IDEMPOTENCY_KEY: ODD})


@given(PLAIN | MEMBERS, METAS, st.booleans())
@example({"name": "echo", "arguments": {"text": "hi"}}, None, False)
@example({"name": "lone", "arguments": {}}, None, True)
@example({"name": "echo", "arguments": None}, {}, True)
@example({"name": "echo", "arguments": {}, "more": 1}, [], False)
def test_a_plain_call_gets_the_bytes_that_a_watched_one_gets(params: Json, meta: Any, modern: bool) -> None:
    if modern:
        meta = modern_meta(EVERYTHING, meta if isinstance(meta, dict) else None)
    whole = params if meta is None else {**params, "_meta": meta}
    plain, watched = [trio.run(answers_to, is_watched, whole) for is_watched in (False, True)]
    assert plain == watched


async def answers_to(is_watched: bool, params: Json) -> list[bytes]:
    """Return everything that a server sends for a call, in a session that is open."""
    server = offering(*TOOLS)
    if is_watched:
        server.message_middleware(look)
    async with talk_to(server) as talk:
        await talk.initialize()
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        talk.send_bytes(json.dumps(message).encode())
        return await all_sent(talk)


async def all_sent(talk: Talk) -> list[bytes]:
    await trio.testing.wait_all_tasks_blocked()
    return [data_of(envelope.message) for envelope in talk.outbox.take_nowait()]
