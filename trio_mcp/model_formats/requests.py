"""Sampling requests as the APIs of models take them.

`model_preferences` are for who chooses the model; `include_context` has no counterpart in either API, and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from ..types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    JsonValue,
    SamplingContentBlock,
    TextContent,
    ToolUseContent,
)
from .blocks import Dumpable, as_blocks, as_object, blocks_of, cannot, string
from .chat_completions import read_tool_calls, to_openai
from .messages_api import read_tool_use, to_anthropic
from .tools import tools_to_anthropic, tools_to_openai

ANTHROPIC_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


def anthropic_request(request: CreateMessageRequestParams, model: str) -> JsonObject:
    """Return the body of a request to Anthropic's messages API. Of `metadata` only `user_id` is kept.

    Raises:
        ValueError: a block has no counterpart there; the text begins with its place.
    """
    body: JsonObject = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": list[JsonValue](to_anthropic(request.messages)),
    }
    if request.system_prompt:
        body["system"] = request.system_prompt
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop_sequences"] = list[JsonValue](request.stop_sequences)
    if request.metadata and isinstance(request.metadata.get("user_id"), str):
        body["metadata"] = {"user_id": request.metadata["user_id"]}
    if request.tools:
        body["tools"] = cast("list[JsonValue]", tools_to_anthropic(request.tools))
        if (mode := _mode(request)) is not None:
            body["tool_choice"] = {"type": ANTHROPIC_CHOICES[mode]}
    elif used := _used_tools(request):
        # The API rejects a conversation with tool uses if no tool is declared. The last request of a loop is one.
        body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in used]
        body["tool_choice"] = {"type": "none"}
    return body


def openai_request(
    request: CreateMessageRequestParams, model: str, *, max_tokens_as: str = "max_completion_tokens"
) -> JsonObject:
    """Return the body of a request to OpenAI's chat completions. `metadata` is left out.

    Args:
        request: what the server asks.
        model: the name of the model.
        max_tokens_as: the member for the maximum of tokens. Newer models of OpenAI reject "max_tokens", the only one that some
            other servers know.

    Raises:
        ValueError: a block has no counterpart there; the text begins with its place.
    """
    messages: list[JsonValue] = [*to_openai(request.messages)]
    if request.system_prompt:
        messages.insert(0, {"role": "system", "content": request.system_prompt})
    body: JsonObject = {"model": model, max_tokens_as: request.max_tokens, "messages": messages}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop_sequences:
        body["stop"] = list[JsonValue](request.stop_sequences)
    if request.tools:
        body["tools"] = cast("list[JsonValue]", tools_to_openai(request.tools))
        if (mode := _mode(request)) is not None:
            body["tool_choice"] = mode
    return body


def _used_tools(request: CreateMessageRequestParams) -> list[str]:
    """Return the names of the tools that a conversation has used, each once."""
    blocks = (block for message in request.messages for block in blocks_of(message))
    return list(dict.fromkeys(block.name for block in blocks if isinstance(block, ToolUseContent)))


def _mode(request: CreateMessageRequestParams) -> str | None:
    return None if request.tool_choice is None else request.tool_choice.mode


# Answers of models as results of `sampling/createMessage`. Members that MCP does not have are left out.

ANTHROPIC_STOP_REASONS: Final = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
OPENAI_STOP_REASONS: Final = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}

THOUGHTS: Final = ("thinking", "redacted_thinking")
"""Blocks that are not part of the answer."""


def anthropic_result(message: Mapping[str, object] | Dumpable) -> CreateMessageResult:
    """Return the answer of Anthropic's messages API; the tokens it used are in `_meta`. An unknown stop reason stays as it is.

    Raises:
        ValueError: it is not an answer, or has a block that MCP does not have. Thinking is left out.
    """
    answer = as_object(message, "the answer")
    blocks: list[SamplingContentBlock] = []
    for index, block in enumerate(as_blocks(_list(answer, "content"), "content")):
        place, kind = f"content[{index}]", block.get("type")
        if kind == "text":
            blocks.append(TextContent(text=string(block, "text", place)))
        elif kind == "tool_use":
            blocks.append(read_tool_use(block, place))
        elif kind not in THOUGHTS:
            raise cannot(place, f"MCP has no {kind!r} block here")
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    cached = [_count(tokens, name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    used = _count(tokens, "input_tokens")
    return _result(
        blocks,
        string(answer, "model", "the answer"),
        _stop_reason(answer.get("stop_reason"), ANTHROPIC_STOP_REASONS),
        None if used is None else used + sum(cached),
        _count(tokens, "output_tokens"),
    )


def openai_result(completion: Mapping[str, object] | Dumpable) -> CreateMessageResult:
    """Return the first choice of a chat completion; the tokens it used are in `_meta`. An unknown stop reason stays as it is.

    A refusal is the text of the answer, with the stop reason "refusal".

    Raises:
        ValueError: it is not an answer, or has a tool call that MCP does not have.
    """
    answer = as_object(completion, "the answer")
    choices = as_blocks(_list(answer, "choices"), "choices")
    if not choices:
        raise cannot("choices", "is empty")
    message = as_object(choices[0].get("message"), "choices[0].message")
    refusal = message.get("refusal")
    texts: list[SamplingContentBlock] = [
        TextContent(text=string(part, "text", "choices[0].message.content"))
        for part in as_blocks(refusal or message.get("content"), "choices[0].message.content")
    ]
    calls = read_tool_calls(message, "choices[0].message")
    reason = _stop_reason(choices[0].get("finish_reason"), OPENAI_STOP_REASONS)
    if refusal:
        reason = "refusal"
    elif calls and reason in (None, "endTurn"):
        # Some servers of local models end every answer with "stop".
        reason = "toolUse"
    usage = answer.get("usage")
    tokens = usage if isinstance(usage, dict) else {}
    return _result(
        [*texts, *calls],
        string(answer, "model", "the answer"),
        reason,
        _count(tokens, "prompt_tokens"),
        _count(tokens, "completion_tokens"),
    )


def _result(
    blocks: list[SamplingContentBlock], model: str, reason: str | None, used: int | None, written: int | None
) -> CreateMessageResult:
    usage: JsonObject = {}
    if used is not None:
        usage["inputTokens"] = used
    if written is not None:
        usage["outputTokens"] = written
    meta: JsonObject | None = {"usage": usage} if usage else None
    return CreateMessageResult(role="assistant", content=blocks, model=model, stop_reason=reason, meta=meta)


def _stop_reason(reason: JsonValue, names: Mapping[str, str]) -> str | None:
    return names.get(reason, reason) if isinstance(reason, str) else None


def _list(source: JsonObject, name: str) -> JsonValue:
    value = source.get(name)
    if not isinstance(value, list):
        raise cannot("the answer", f"{name!r} is not a list")
    return value


def _count(source: JsonObject, name: str) -> int | None:
    value = source.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
