"""Sampling: asking the client's model."""

from typing import Literal, TypeAlias

from .base import Fraction, Integer, JsonObject, MetaModel, Model, Number
from .content import Role, SamplingContentBlock
from .messages import RequestParams
from .tools import Tool

SamplingMessageContent: TypeAlias = SamplingContentBlock | list[SamplingContentBlock]
"""One block, or (since 2025-11-25) several."""


class SamplingMessage(MetaModel):
    """One message of the conversation."""

    role: Role
    content: SamplingMessageContent


class ModelHint(Model):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Model):
    """What matters in the choice of a model, each from 0 to 1; the hints are tried in order."""

    hints: list[ModelHint] | None = None
    cost_priority: Fraction | None = None
    speed_priority: Fraction | None = None
    intelligence_priority: Fraction | None = None


class ToolChoice(Model):
    """Whether the model must, may or must not use a tool; unset means it may."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageRequestParams(RequestParams):
    """Ask for one message of at most `max_tokens` tokens."""

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


class CreateMessageResult(MetaModel):
    """What the model said. `stop_reason` is an open set: endTurn, stopSequence, maxTokens, toolUse, ..."""

    role: Role
    content: SamplingMessageContent
    model: str
    stop_reason: str | None = None


class CreateMessageRequest(Model):
    """The question, as one of the input requests of a round (2026-07-28)."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams
