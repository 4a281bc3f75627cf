"""Sampling: a server asks the model of its client."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator

from .base import MAX_RECEIVED, Fraction, Integer, JsonObject, MetaModel, Model, Number, check_count
from .content import Role, SamplingContentBlock, no_text
from .messages import RequestParams, TaskMetadata
from .tools import Tool


def _few_blocks(content: object) -> object:
    blocks = content if isinstance(content, list) else [no_text(content)]
    nested = (
        block["content"] for block in blocks if isinstance(block, dict) and isinstance(block.get("content"), list)
    )
    check_count(len(blocks) + sum(map(len, nested)), MAX_RECEIVED)
    return content


SamplingMessageContent: TypeAlias = Annotated[
    SamplingContentBlock | list[SamplingContentBlock], BeforeValidator(_few_blocks)
]
"""One block, or several of them (since 2025-11-25); `MAX_RECEIVED` with those in them."""


class SamplingMessage(MetaModel):
    """One message of the conversation."""

    role: Role
    content: SamplingMessageContent


class ModelHint(Model):
    """The name of a model, or a part of one."""

    name: str | None = None


class ModelPreferences(Model):
    """How to choose a model: priorities from 0 to 1, and hints that are tried in order."""

    hints: list[ModelHint] | None = None
    cost_priority: Fraction | None = None
    speed_priority: Fraction | None = None
    intelligence_priority: Fraction | None = None


class ToolChoice(Model):
    """Whether the model must, may or must not use a tool; without `mode` it may."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams):
    """The params of `sampling/createMessage`. `task` exists in 2025-11-25 only."""

    messages: list[SamplingMessage]
    max_tokens: Integer
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    metadata: JsonObject | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    task: TaskMetadata | None = None


class CreateMessageResult(MetaModel):
    """The answer of the model. `stop_reason` is an open set: endTurn, stopSequence, maxTokens, toolUse, ..."""

    role: Role
    content: SamplingMessageContent
    model: str
    stop_reason: str | None = None


class CreateMessageRequest(Model):
    """A question to the model, as one of the input requests of a round (2026-07-28)."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams
