"""The scripted provider: it takes the answers that `MockClient(samples=)` takes, and checks them before anything is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from naming import naming
from pydantic import BaseModel
from wire_terms import SCHEMA_TOOL

from trio_mcp.errors import ProviderError
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import Delay, tool_use
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolUseContent,
)


class Forecast(BaseModel):
    degrees: int


@dataclass
class Sky:
    degrees: int


def request(*tools: str) -> CreateMessageRequestParams:
    offered = [Tool(name=name, input_schema={"type": "object"}) for name in tools] or None
    messages = [SamplingMessage(role="user", content=TextContent(text="How is it?"))]
    return CreateMessageRequestParams(messages=messages, max_tokens=9, tools=offered)


WHOLE = CreateMessageResult(role="assistant", content=TextContent(text="whole"), model="m")


@pytest.mark.parametrize(
    ("answer", "content", "stop_reason"),
    [
        ("hi", TextContent(text="hi"), "endTurn"),
        (tool_use("add", a=1), ToolUseContent(id="add", name="add", input={"a": 1}), "toolUse"),
        (
            [tool_use("add"), tool_use("add")],
            [ToolUseContent(id=f"add_{number}", name="add", input={}) for number in (1, 2)],
            "toolUse",
        ),
        (WHOLE, WHOLE.content, None),
        (lambda asked: f"{asked.max_tokens} tokens", TextContent(text="9 tokens"), "endTurn"),
        ({"degrees": 20}, TextContent(text='{"degrees":20}'), "endTurn"),
    ],
    ids=["text", "tool use", "tool uses", "result", "function", "data"],
)
async def test_an_answer_becomes_a_result(answer: object, content: object, stop_reason: str | None) -> None:
    result = await ScriptedProvider([answer]).sample(request())
    assert (result.content, result.stop_reason) == (content, stop_reason)


@pytest.mark.parametrize("data", [Forecast(degrees=20), Sky(degrees=20), {"degrees": 20}])
async def test_data_is_sent_by_the_schema_tool_if_it_is_offered(data: object) -> None:
    result = await ScriptedProvider([data]).sample(request(SCHEMA_TOOL))
    assert result.content == ToolUseContent(id=SCHEMA_TOOL, name=SCHEMA_TOOL, input={"degrees": 20})


async def test_an_exception_is_raised_and_a_function_may_be_async() -> None:
    async def fail(asked: CreateMessageRequestParams) -> object:
        return LookupError("no model")

    for script in ([LookupError("no model")], [fail], fail):
        with pytest.raises(LookupError, match="no model"):
            await ScriptedProvider(script).sample(request())


@pytest.mark.parametrize("script", ["hello", {"a": 1}, 3, [object()], [TextContent], [None], [Delay(1, "x")]])
def test_an_invalid_script_is_rejected_before_anything_is_asked(script: Any) -> None:
    with pytest.raises(TypeError, match="script"):
        ScriptedProvider(script)


async def test_what_a_function_returns_is_checked_when_it_is_known() -> None:
    with pytest.raises(TypeError, match="answer 1 of script"):
        await ScriptedProvider([lambda asked: None]).sample(request())


async def test_a_script_that_ran_out_counts_its_answers() -> None:
    provider = ScriptedProvider(["one"])
    await provider.sample(request())
    with pytest.raises(ProviderError, match=naming("1 answer", "request 2", "How is it?")):
        await provider.sample(request())
    assert len(provider.requests) == 2


async def test_an_answer_that_no_request_used_is_named() -> None:
    provider = ScriptedProvider(["one", "two"])
    await provider.sample(request())
    with pytest.raises(AssertionError, match="answer 2 of script"):
        provider.check_used_up()
    await provider.sample(request())
    provider.check_used_up()
