"""Sampling requests as the APIs of models take them.

`model_preferences` are for who chooses the model; `include_context` has no counterpart in either API, and is ignored.
"""

from __future__ import annotations

from typing import Final, cast

from ..types import CreateMessageRequestParams, JsonObject, JsonValue, ToolUseContent
from .blocks import blocks_of
from .chat_completions import to_openai
from .messages_api import to_anthropic
from .tools import tools_to_anthropic, tools_to_openai

ANTHROPIC_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


def anthropic_request(request: CreateMessageRequestParams, model: str) -> JsonObject:
    """Return the body of a request to Anthropic's messages API. Of `metadata` it takes `user_id`.

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
