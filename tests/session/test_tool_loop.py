"""The loop of a model that calls tools, without the model and without the tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
import trio
from scripted_model import check_conversation

from trio_mcp.errors import LimitExceeded, RemoteProtocolError
from trio_mcp.session.token_usage import TokenUsage, ToolLoop, call_result, error_result, text_of
from trio_mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    JsonObject,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

TOOLS = [Tool(name="look", input_schema={"type": "object"})]


def question(**more: object) -> CreateMessageRequestParams:
    messages = [SamplingMessage(role="user", content=TextContent(text="What is the weather?"))]
    return CreateMessageRequestParams(messages=messages, max_tokens=100, tools=TOOLS).model_copy(update=more)


def use(name: str) -> ToolUseContent:
    return ToolUseContent(id=name, name="look", input={})


def text(words: str) -> TextContent:
    return TextContent(text=words)


def answer(
    *blocks: SamplingContentBlock, role: str = "assistant", usage: JsonObject | None = None
) -> CreateMessageResult:
    meta: JsonObject | None = None if usage is None else {"usage": usage}
    return CreateMessageResult(role="assistant", content=list(blocks), model="m", meta=meta).model_copy(
        update={"role": role}
    )


@dataclass
class Model:
    """Gives the answers of a list, and keeps what it was asked."""

    answers: list[CreateMessageResult | Exception]
    asked: list[CreateMessageRequestParams] = field(default_factory=list)

    async def __call__(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.lowlevel.checkpoint()
        self.asked.append(params)
        given = self.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


async def run_none(calls: Sequence[ToolUseContent]) -> Sequence[ToolResultContent]:
    raise AssertionError(f"no call may be run: {calls}")


async def run_all(calls: Sequence[ToolUseContent]) -> Sequence[ToolResultContent]:
    await trio.lowlevel.checkpoint()
    return [ToolResultContent(tool_use_id=call.id, content=[text(f"result of {call.id}")]) for call in calls]


def shape(messages: Iterable[SamplingMessage]) -> list[str]:
    """The messages as the ids of their tool blocks and the words of the others."""
    return [
        " ".join(map(word, message.content if isinstance(message.content, list) else [message.content]))
        for message in messages
    ]


def word(block: SamplingContentBlock) -> str:
    match block:
        case ToolUseContent(id=name):
            return f"use:{name}"
        case ToolResultContent(tool_use_id=name, is_error=failed):
            return f"{'error' if failed else 'result'}:{name}"
        case TextContent(text=words):
            return words
        case _:
            return block.type


async def test_an_answer_without_calls_ends_the_loop() -> None:
    model = Model([answer(text("rain"))])
    loop = ToolLoop(question(), model, run_none)
    assert text_of(await loop.run()) == "rain"
    assert (loop.iterations, shape(loop.messages)) == (1, ["What is the weather?", "rain"])


async def test_the_results_of_all_calls_go_back_in_one_message_in_the_order_of_the_calls() -> None:
    model = Model([answer(text("let me see"), use("b"), use("a")), answer(text("rain"))])
    loop = ToolLoop(question(), model, run_all)
    await loop.run()
    assert shape(model.asked[1].messages) == ["What is the weather?", "let me see use:b use:a", "result:b result:a"]
    assert model.asked[1].tools == TOOLS
    check_conversation(loop.messages)


async def test_calls_are_run_whatever_the_stop_reason_says() -> None:
    stopped = answer(use("a")).model_copy(update={"stop_reason": "endTurn"})
    loop = ToolLoop(question(), Model([stopped, answer(text("rain"))]), run_all)
    assert text_of(await loop.run()) == "rain"


async def test_the_last_request_has_no_tools() -> None:
    model = Model([answer(use("a")), answer(text("rain"))])
    loop = ToolLoop(question(), model, run_all, max_iterations=2)
    await loop.run()
    assert [asked.tools for asked in model.asked] == [TOOLS, None]
    assert model.asked[1].tool_choice == ToolChoice(mode="none")
    assert loop.is_used_up


async def test_a_call_in_the_last_answer_is_not_run_and_leaves_a_conversation_that_can_be_continued() -> None:
    loop = ToolLoop(question(), Model([answer(use("a"), text("rain"))]), run_none, max_iterations=1)
    assert text_of(await loop.run()) == "rain"
    assert shape(loop.messages) == ["What is the weather?", "use:a rain", "error:a"]
    check_conversation(loop.messages)


async def test_a_required_choice_is_for_the_first_request_only() -> None:
    model = Model([answer(use("a")), answer(use("b")), answer(text("rain"))])
    await ToolLoop(question(tool_choice=ToolChoice(mode="required")), model, run_all).run()
    modes = [asked.tool_choice and asked.tool_choice.mode for asked in model.asked]
    assert modes == ["required", "auto", "auto"]


async def test_the_usage_of_all_answers_is_summed() -> None:
    used: list[JsonObject] = [{"inputTokens": 5, "outputTokens": 2}, {"inputTokens": 9, "outputTokens": 3}]
    loop = ToolLoop(question(), Model([answer(use("a"), usage=used[0]), answer(text("rain"), usage=used[1])]), run_all)
    await loop.run()
    assert loop.usage == TokenUsage(14, 5)


async def test_without_a_report_the_usage_is_unknown() -> None:
    loop = ToolLoop(question(), Model([answer(text("rain"))]), run_none)
    await loop.run()
    assert loop.usage == TokenUsage(None, None)


async def test_a_failure_of_the_model_leaves_the_conversation_up_to_the_last_complete_round() -> None:
    loop = ToolLoop(question(), Model([answer(use("a"), usage={"inputTokens": 5}), OSError("gone")]), run_all)
    with pytest.raises(OSError, match="gone"):
        await loop.run()
    assert shape(loop.messages) == ["What is the weather?", "use:a", "result:a"]
    assert (loop.iterations, loop.usage) == (1, TokenUsage(5, None))


async def test_an_exception_of_a_call_leaves_no_call_without_a_result() -> None:
    async def fail(calls: Sequence[ToolUseContent]) -> Sequence[ToolResultContent]:
        raise OSError("gone")

    loop = ToolLoop(question(), Model([answer(use("a"))]), fail)
    with pytest.raises(OSError, match="gone"):
        await loop.run()
    assert shape(loop.messages) == ["What is the weather?"]


async def test_a_cancel_leaves_no_call_without_a_result() -> None:
    async def wait(calls: Sequence[ToolUseContent]) -> Sequence[ToolResultContent]:
        scope.cancel()
        return await trio.sleep_forever()

    loop = ToolLoop(question(), Model([answer(use("a"))]), wait)
    with trio.CancelScope() as scope:
        await loop.run()
    assert scope.cancelled_caught
    check_conversation(loop.messages)


@pytest.mark.parametrize(
    "blocks", [[use("a"), use("a")], [ToolResultContent(tool_use_id="a", content=[])]], ids=["one id", "a result"]
)
async def test_an_answer_that_breaks_a_rule_ends_the_loop(blocks: list[SamplingContentBlock]) -> None:
    with pytest.raises(RemoteProtocolError):
        await ToolLoop(question(), Model([answer(*blocks)]), run_none).run()


async def test_too_many_calls_are_not_run() -> None:
    with pytest.raises(LimitExceeded, match="limit is 2"):
        await ToolLoop(question(), Model([answer(use("a"), use("b"), use("c"))]), run_none, max_calls=2).run()


def test_a_conversation_that_breaks_a_rule_is_rejected_before_the_model_is_asked() -> None:
    messages = [SamplingMessage(role="assistant", content=[use("a")])]
    with pytest.raises(ValueError, match=r"messages\[0\]"):
        ToolLoop(question(messages=messages), Model([]), run_none)


@pytest.mark.parametrize("limits", [{"max_iterations": 0}, {"max_calls": 0}])
def test_a_limit_is_at_least_one(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        ToolLoop(question(), Model([]), run_none, **limits)


async def test_an_answer_without_blocks_adds_no_message() -> None:
    loop = ToolLoop(question(), Model([answer()]), run_none)
    await loop.run()
    assert shape(loop.messages) == ["What is the weather?"]


def test_the_model_gets_the_blocks_and_the_structured_content_of_a_result() -> None:
    blocks = [text("5"), ImageContent(data="AAAA", mime_type="image/png")]
    result = call_result(use("a"), CallToolResult(content=blocks, structured_content={"n": 5}))
    assert (result.tool_use_id, result.content, result.structured_content) == ("a", blocks, {"n": 5})
    assert result.is_error is None


def test_a_result_without_structured_content_has_no_such_member() -> None:
    assert "structuredContent" not in call_result(use("a"), CallToolResult(content=[])).wire()
    assert (
        call_result(use("a"), CallToolResult(content=[], structured_content=None)).wire()["structuredContent"] is None
    )


def test_a_failed_result_is_an_error_for_the_model() -> None:
    assert call_result(use("a"), CallToolResult(content=[text("no")], is_error=True)).is_error
    assert error_result(use("a"), "no").is_error
