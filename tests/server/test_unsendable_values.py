"""Values that JSON cannot hold. Half of a character is replaced in text that is shown, with a warning.

Anything else is an error: in a conversation with a model where it comes from, not where it is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from log_limits import new_records
from scripted_model import ScriptedModel, message, requests_of, results_in, texts_of, use

from trio_mcp import Client, Context, Server, ToolError
from trio_mcp.errors import LocalProtocolError, ProviderError, ProviderErrorKind
from trio_mcp.server import BreakToolLoop
from trio_mcp.testing import MockClient, make_context, tool_use, unchecked_tool_use
from trio_mcp.types import (
    CallToolResult,
    ClientCapabilities,
    PromptMessage,
    ResourceLink,
    TextContent,
    ToolResultContent,
)


@pytest.fixture(autouse=True)
def no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of warning is shown a few times a minute."""
    monkeypatch.setattr("trio_mcp.protocol.shown_text.records", new_records())


LONE = "\ud800"
"""A lone surrogate: Python decodes the names of files to it that are not UTF-8."""


async def list_files() -> str:
    return f"a.txt {LONE}.txt"


async def link_file() -> ResourceLink:
    return ResourceLink(uri=f"file:///{LONE}.txt", name="a file")


async def measure() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"height": float("inf")})


def leading(body: Callable[[Context], Awaitable[object]], resume: Any) -> Server:
    """A server whose tool `lead` has this body."""
    server = Server("s")
    server.add_tool(body, name="lead", resume=resume)
    return server


def looping(function: Any, resume: Any) -> Server:
    """A server whose tool lets the model call a function."""

    async def lead(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Go.", [function])).text

    return leading(lead, resume)


@pytest.mark.parametrize("resume", ["parked", "replay"])
@pytest.mark.parametrize("function", [link_file, measure])
async def test_the_result_of_a_tool_in_a_loop_is_an_error_for_the_model(function: Any, resume: Any, mode: str) -> None:
    client = MockClient(samples=[tool_use(function.__name__), "sorry"], era=mode)
    assert (await client.call((looping(function, resume), "lead"))).text == "sorry"
    (result,) = results_in(requests_of(client)[1].messages)
    assert result.is_error
    assert function.__name__ in result.content[0].text


@pytest.mark.parametrize("resume", ["parked", "replay"])
async def test_the_text_of_a_tool_in_a_loop_is_shown_to_the_model(resume: Any, mode: str) -> None:
    client = MockClient(samples=[tool_use("list_files"), "fine"], era=mode)
    assert (await client.call((looping(list_files, resume), "lead"))).text == "fine"
    assert texts_of(results_in(requests_of(client)[1].messages)) == ["a.txt \ufffd.txt"]


@pytest.mark.parametrize(
    "output",
    [[float("nan")], ToolResultContent(tool_use_id="f", content=[TextContent(text="x", meta={"x": float("inf")})])],
)
async def test_a_result_that_is_added_is_refused_at_once(output: object) -> None:
    async with make_context(samples=[unchecked_tool_use("f")]) as ctx:
        answer = await ctx.sample("Go.", tools=[list_files])
        before = ctx.messages
        with pytest.raises(TypeError, match=r"'f'|JSON"):
            ctx.add_tool_results({answer.tool_calls[0].id: output})
        assert ctx.messages == before


async def test_a_text_that_is_added_is_shown() -> None:
    async with make_context(samples=[unchecked_tool_use("f")]) as ctx:
        answer = await ctx.sample("Go.", tools=[list_files])
        ctx.add_tool_results({answer.tool_calls[0].id: LONE})
        assert texts_of(results_in(ctx.messages)) == ["\ufffd"]


def test_the_text_of_a_break_is_shown_and_its_value_has_to_be_json() -> None:
    assert str(BreakToolLoop(text=LONE)) == "\ufffd"
    with pytest.raises(ValueError, match="surrogate"):
        BreakToolLoop([LONE])


@pytest.mark.parametrize(
    "block",
    [use("f", x=LONE), use("f", x=float("nan")), TextContent(text="x", meta={"x": float("inf")})],
    ids=["argument", "number", "meta"],
)
async def test_an_answer_of_the_provider_is_malformed(block: Any, mode: str) -> None:
    server = Server("s", sampling=ScriptedModel(block))

    @server.tool(resume="replay")
    async def ask(ctx: Context) -> str:
        with pytest.raises(ProviderError) as caught:
            await ctx.sample("Go.", tools=[list_files])
        assert caught.value.kind is ProviderErrorKind.MALFORMED
        return "named"

    client = MockClient(capabilities=ClientCapabilities(), era=mode)
    assert (await client.call((server, "ask"))).text == "named"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"temperature": float("nan")}, ValueError),
        ({"temperature": float("inf")}, ValueError),
        ({"temperature": True}, TypeError),
        ({"temperature": "hot"}, TypeError),
        ({"metadata": [1]}, TypeError),
        ({"metadata": {"x": float("inf")}}, ValueError),
        ({"metadata": {"x": object()}}, ValueError),
        ({"stop_sequences": [LONE]}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "1"}, TypeError),
    ],
)
async def test_an_option_is_refused_by_the_call_itself(options: Any, error: type[Exception]) -> None:
    async with make_context(samples=[]) as ctx:
        asks: list[Any] = [ctx.sample, partial(ctx.run_tool_loop, tools=[])]
        for ask in asks:
            with pytest.raises(error, match=next(iter(options))):
                ask("Go.", **options)


ASKS: list[Callable[[Context], Awaitable[object]]] = [
    lambda ctx: ctx.sample([TextContent(text="x", meta={"x": float("inf")}), "Go."]),
    lambda ctx: ctx.sample(messages=[message("user", TextContent(text="x", meta={"x": float("inf")}))]),
    lambda ctx: ctx.sample("Go.", metadata={"x": float("nan")}),
    lambda ctx: ctx.run_tool_loop("Go.", [], metadata={"x": float("inf")}),
]


@pytest.mark.parametrize("resume", ["parked", "replay"])
@pytest.mark.parametrize("ask", ASKS)
async def test_a_question_is_an_error_in_the_body_that_asks_and_its_siblings_go_on(
    ask: Any, resume: Any, mode: str
) -> None:
    async def fail(branch: Context) -> str:
        with pytest.raises((LocalProtocolError, ValueError), match=r"inf|NaN|nan|JSON"):
            await ask(branch)
        return (await branch.sample("And then?")).text

    async def other(branch: Context) -> str:
        return (await branch.sample("Who?")).text

    async def lead(ctx: Context) -> str:
        return " ".join(await ctx.branch_all(fail, other))

    client = MockClient(samples=["fine", "fine"], era=mode)
    assert (await client.call((leading(lead, resume), "lead"))).text == "fine fine"


SHOWN: list[tuple[str, Callable[[Context], Awaitable[object]]]] = [
    ("sample", lambda ctx: ctx.sample(LONE)),
    ("sample", lambda ctx: ctx.sample([TextContent(text=LONE), "Go."])),
    ("sample", lambda ctx: ctx.sample("Go.", system_prompt=LONE)),
    ("sample", lambda ctx: ctx.run_tool_loop(LONE, [])),
    ("elicit", lambda ctx: ctx.elicit(LONE, str)),
]


@pytest.mark.parametrize("resume", ["parked", "replay"])
@pytest.mark.parametrize(("kind", "ask"), SHOWN)
async def test_the_text_of_a_question_is_shown(
    kind: str, ask: Any, resume: Any, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def lead(ctx: Context) -> str:
        await ask(ctx)
        return "asked"

    client = MockClient(samples=["fine"] * (kind == "sample"), elicits=["fine"] * (kind == "elicit"), era=mode)
    assert (await client.call((leading(lead, resume), "lead"))).text == "asked"
    assert "\ufffd" in str(client.questions[0].params)
    assert "surrogate" in caplog.text


async def test_a_model_of_the_server_gets_and_gives_text_that_is_shown() -> None:
    model = ScriptedModel(LONE)
    server = Server("s", sampling=model)

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample(LONE)).text

    client = MockClient(capabilities=ClientCapabilities())
    assert (await client.call((server, "ask"))).text == "\ufffd"
    assert "\ufffd" in str(model.asked[0].messages)


def shown_server() -> Server:
    server = Server("s")
    server.tool(list_files)

    @server.tool
    async def list_names() -> list[str]:
        return [LONE]

    @server.tool
    async def describe() -> dict[str, object]:
        return {"name": LONE}

    @server.tool(max_result=2048)
    async def export() -> str:
        return LONE * 5000

    @server.tool
    async def fail() -> str:
        raise ToolError(LONE)

    @server.resource("file:///list")
    async def listing() -> str:
        return LONE

    @server.prompt
    async def review() -> list[PromptMessage]:
        return [PromptMessage(role="user", content=TextContent(text=LONE))]

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, message=LONE)
        await ctx.warning(LONE)
        return "worked"

    return server


@pytest.mark.parametrize(
    ("tool", "data"), [("list_files", "a.txt \ufffd.txt"), ("list_names", ["\ufffd"]), ("describe", {"name": "\ufffd"})]
)
async def test_half_of_a_character_in_a_result_is_replaced_with_a_warning(
    tool: str, data: object, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await MockClient(era=mode).call((shown_server(), tool))).data == data
    assert "surrogate" in caplog.text


async def test_half_of_a_character_costs_no_call_anything_else() -> None:
    async with Client.connect(shown_server()) as client:
        assert (await client.read_resource("file:///list")).text == "\ufffd"
        assert "\ufffd" in str((await client.get_prompt("review")).messages)
        assert (await client.call_tool("fail")).text == "\ufffd"
        assert (await client.call_tool("export")).text.startswith("\ufffd" * 100)
        messages: list[str | None] = []
        result = await client.call_tool("work", on_progress=lambda progress: messages.append(progress.message))
        assert (result.text, messages) == ("worked", ["\ufffd"])


async def test_half_of_a_character_in_the_uri_of_a_block_is_an_error_of_its_tool(mode: Any) -> None:
    server = Server("s")
    server.tool(link_file)
    result = await MockClient(era=mode).call((server, "link_file"))
    assert result.is_error
    assert "content[0].uri" in result.text


async def test_half_of_a_character_in_an_argument_is_an_error_of_the_call() -> None:
    async with Client.connect(shown_server()) as client:
        for arguments in ({"a": LONE}, {"a": {"b": [LONE]}}):
            with pytest.raises(LocalProtocolError, match=r"arguments.*surrogate"):
                await client.call_tool("list_files", arguments)
