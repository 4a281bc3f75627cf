"""What a sample counts: what its client says was used, if it says it whole, and an estimate otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp.session import estimate_tokens, used_tokens
from trio_mcp.session.options import TOKENS_PER_MEDIUM
from trio_mcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

PARAMS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="12345678"))], max_tokens=9
)


def answer(content: Any = None, meta: Any = None) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=content or TextContent(text="1234"), model="m", meta=meta)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"inputTokens": 5, "outputTokens": 7}, 12),
        ({"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 90}, 12),
        ({"prompt_tokens": 5, "completion_tokens": 7}, 12),
        ({"promptTokens": 5, "completionTokens": 7}, 12),
        ({"totalTokens": 20}, 20),
        ({"total_tokens": 20, "input_tokens": 5, "output_tokens": 7}, 20),
        ({"inputTokens": 0, "outputTokens": 0}, 0),
    ],
)
def test_what_the_client_says_is_taken_in_every_spelling_there_is(usage: Any, tokens: int) -> None:
    assert used_tokens(PARAMS, answer(meta={"usage": usage}), estimate_tokens) == tokens


@pytest.mark.parametrize(
    "meta",
    [
        None,
        {},
        {"usage": None},
        {"usage": "many"},
        {"usage": []},
        {"usage": {"inputTokens": 5}},
        {"usage": {"inputTokens": 5, "outputTokens": -7}},
        {"usage": {"inputTokens": True, "outputTokens": 7}},
        {"usage": {"inputTokens": "5", "outputTokens": "7"}},
        {"usage": {"totalTokens": -1}},
        {"usage": {"totalTokens": 1.5}},
    ],
)
def test_invalid_or_fractional_counts_are_estimated(meta: Any) -> None:
    assert used_tokens(PARAMS, answer(meta=meta), estimate_tokens) == 3


def test_without_an_answer_the_request_is_estimated_alone() -> None:
    assert used_tokens(PARAMS, None, estimate_tokens) == 2


def test_the_estimate_is_a_quarter_of_all_characters_rounded_up() -> None:
    params = PARAMS.model_copy(update={"system_prompt": "1"})
    assert estimate_tokens(params, None) == 3
    assert estimate_tokens(params, answer([TextContent(text="123"), TextContent(text="4")])) == 4


def test_content_other_than_text_is_estimated_too() -> None:
    image = ImageContent(data="A" * 100_000, mime_type="image/png")
    sound = AudioContent(data="A" * 100_000, mime_type="audio/wav")
    use = ToolUseContent(id="1", name="find", input={"a": 1})
    result = ToolResultContent(
        tool_use_id="1", content=[TextContent(text="12345678"), image], structured_content={"a": 1}
    )
    assert [estimate_tokens(PARAMS, answer(block)) - 2 for block in (image, sound, use, result)] == [
        TOKENS_PER_MEDIUM,
        TOKENS_PER_MEDIUM,
        3,
        TOKENS_PER_MEDIUM + 4,
    ]
