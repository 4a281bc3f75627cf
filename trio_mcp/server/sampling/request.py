"""The params of `sampling/createMessage`, from what an author gives, and the capabilities that they need."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, TypedDict, get_args

from ... import server
from ...checks import check_choice, check_instance, check_int, check_sequence, check_str, mistake
from ...protocol.strict_json import dumps
from ...session import Question
from ...types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    ModelPreferences,
    SamplingMessage,
    Tool,
    ToolChoice,
)
from ..options import check_timeout
from .tools import OfferedTool, ToolChoiceMode, tool_models

IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]
"""Which servers' context the client adds to the request."""

MAX_TOKENS: Final = 1024
"""The default limit for an answer."""


class SampleOptions(TypedDict, total=False):
    """The options of a sample.

    messages: the complete conversation, instead of a prompt. It is sent as it is and not stored.
    max_tokens: limit for an answer (default 1,024).
    system_prompt: defaults to that of the branch.
    temperature, stop_sequences, model_preferences, metadata: see the specification; a client may ignore them.
    include_context: asks the client to add the context of "thisServer" or "allServers"; it needs `sampling.context`.
    timeout: seconds for all attempts together. By default, only the call's own timeout applies.
    """

    messages: Sequence[SamplingMessage] | None
    max_tokens: int
    system_prompt: str | None
    temperature: float | None
    stop_sequences: Sequence[str] | None
    model_preferences: ModelPreferences | None
    include_context: IncludeContext | None
    metadata: JsonObject | None
    timeout: float


def check_sample_options(options: SampleOptions, method: Callable[..., object]) -> None:
    """Raise `TypeError` or `ValueError` if an option of a sample is unknown, or has a value that is wrong or cannot be sent.

    Args:
        method: the method of `Context` that received them; its own options are known too.
    """
    if not options.keys() <= SampleOptions.__optional_keys__:
        _self, *own = inspect.signature(method).parameters.values()
        known = {each.name for each in own if each.kind is not each.VAR_KEYWORD} | SampleOptions.__optional_keys__
        server.other_names.refuse(options, known, f"ctx.{method.__name__}()", server.other_names.OF_SAMPLES)
    if "timeout" in options:
        check_timeout(options["timeout"])
    check_int("max_tokens", options.get("max_tokens", MAX_TOKENS), least=1)
    if (messages := options.get("messages")) is not None:
        expected, each = "a list of SamplingMessage", 'a SamplingMessage(role="user", content=...)'
        check_sequence("messages", messages, SamplingMessage, expected, each)
        if not messages:
            raise ValueError("messages: a sample needs at least one")
    if (stops := options.get("stop_sequences")) is not None:
        check_sequence("stop_sequences", stops, str, 'a list of strings, such as ["END"]', "a string")
        dumps([*stops], "stop_sequences")
    if (system_prompt := options.get("system_prompt")) is not None:
        dumps(check_str("system_prompt", system_prompt), "system_prompt")
    if (temperature := options.get("temperature")) is not None:
        check_temperature(temperature)
    if (metadata := options.get("metadata")) is not None:
        dumps(check_instance("metadata", metadata, dict, 'a JSON object, such as {"user_id": "7"}'), "metadata")
    if (context := options.get("include_context")) is not None:
        check_choice("include_context", context, get_args(IncludeContext))
    if (preferences := options.get("model_preferences")) is not None:
        expected = "ModelPreferences(hints=[ModelHint(name=...)])"
        check_instance("model_preferences", preferences, ModelPreferences, expected)


def check_temperature(value: object) -> None:
    """Raise `TypeError` or `ValueError` unless this is a finite number. Models have different ranges."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(mistake("temperature", "a number", value))
    if not math.isfinite(value):
        raise ValueError(mistake("temperature", "a finite number", value))


def check_tools(
    tools: Sequence[OfferedTool] | None, choice: ToolChoiceMode | None
) -> tuple[list[Tool] | None, ToolChoice | None]:
    """Return the tools and the choice to send.

    Raises:
        TypeError: one is not a tool; or the model is to choose among no tools.
        ValueError: two have the same name, a name is invalid or reserved, or there is no such choice.
    """
    models = None
    if tools is not None:
        models = tool_models(tools) or None
    if choice is None:
        return models, None
    check_choice("tool_choice", choice, get_args(ToolChoiceMode))
    # The last round of a loop may forbid tools and send none (2025-11-25, "Tool Choice Modes").
    if models is None and choice != "none":
        raise TypeError(f"tool_choice={choice!r} needs tools=")
    return models, ToolChoice(mode=choice)


def request_params(
    options: SampleOptions, messages: Sequence[SamplingMessage], system_prompt: str | None
) -> CreateMessageRequestParams:
    """Return the params of a request, without tools.

    Args:
        system_prompt: the one of the branch.

    Raises:
        ValueError: an option has a wrong value.
    """
    own, stops = options.get("system_prompt"), options.get("stop_sequences")
    return CreateMessageRequestParams(
        messages=list(messages),
        max_tokens=options.get("max_tokens", MAX_TOKENS),
        system_prompt=system_prompt if own is None else own,
        include_context=options.get("include_context"),
        temperature=options.get("temperature"),
        stop_sequences=None if stops is None else list(stops),
        model_preferences=options.get("model_preferences"),
        metadata=options.get("metadata"),
    )


def sampling_question(params: CreateMessageRequestParams) -> Question[CreateMessageResult]:
    """Return the question that asks the client's model."""
    return Question("sample", "sampling/createMessage", params, CreateMessageResult, needed_capabilities(params))


def needed_capabilities(params: CreateMessageRequestParams) -> tuple[str, ...]:
    """Return the client capabilities that a request needs (L-SMP-1)."""
    needs = ["sampling"]
    if params.tools is not None or params.tool_choice is not None:
        needs.append("sampling.tools")
    if params.include_context in ("thisServer", "allServers"):
        needs.append("sampling.context")
    return tuple(needs)
