"""The params of `sampling/createMessage`, from what an author gives, and the capabilities that they need."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, TypeAlias, TypedDict, cast, get_args

import trio

from ... import server
from ...base.checks import check_choice, check_instance, check_int, check_sequence, check_str, mistake
from ...errors import LocalProtocolError, ProviderError, ProviderErrorKind, RequestTimeout
from ...protocol.conversation import answer_problem
from ...protocol.json_limits import held_size
from ...protocol.shown_text import CANNOT_SEND, shown_model
from ...protocol.strict_json import dumps
from ...runtime import Lane
from ...sampling import SamplingProvider
from ...session import Call, Question
from ...session.calls.memory import CallMemory
from ...types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    ModelPreferences,
    SamplingMessage,
    Tool,
    ToolChoice,
)
from ...types.capabilities import lacks
from ..options import AskTimeout, check_timeout
from .prompts import OfferedTool, ToolChoiceMode, tool_models

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
        check_str("system_prompt", system_prompt)
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


# Which model a question goes to: the client's, or the one of the server's provider; and asking the provider.
#
#     Server(sampling=provider)                              the client's if it has what the question needs, else the
# provider's
#     Server(sampling=provider, sampling_prefer="server")    the provider's
#     Server()                                               the client's
#
# A question about the context of servers (`include_context`) goes to the client in any case: only it has their context.

SamplingPreference: TypeAlias = Literal["client", "server"]
"""Whose model is asked if both the client and the server have one."""

PROVIDED: Final = frozenset({"sampling", "sampling.tools"})
"""The client capabilities that a server with a provider does not need."""


def check_provider(provider: object) -> None:
    """Raise `TypeError` unless this can be a provider. A class in place of an instance is a frequent mistake."""
    if isinstance(provider, type) or not isinstance(provider, SamplingProvider):
        expected = "a provider of sampling, such as OpenAIProvider(...), with `async def sample(self, request)`"
        raise TypeError(mistake("sampling", expected, provider))


def check_sampling(provider: object, preference: object) -> None:
    """Raise `TypeError` or `ValueError` unless these are `sampling=` and `sampling_prefer=` of a server."""
    if preference != "client":
        check_choice("sampling_prefer", preference, ("client", "server"))
        if provider is None:
            raise ValueError('sampling_prefer="server" needs a provider: pass sampling= too')
    if provider is not None:
        check_provider(provider)


def provider_for(call: Call, params: CreateMessageRequestParams) -> SamplingProvider | None:
    """Return the provider that answers a request; None if the client does, or there is none."""
    provider = call.offers.provider
    if provider is None:
        return None
    needs = needed_capabilities(params)
    if not PROVIDED.issuperset(needs):
        return None
    return None if not call.offers.prefers_provider and client_has(call, needs) else provider


def takes_tools(call: Call) -> bool:
    """Return whether the model that a question without tools would go to can be offered tools."""
    if call.offers.provider is not None and (call.offers.prefers_provider or not client_has(call, ("sampling",))):
        return True
    return client_has(call, ("sampling.tools",))


def client_has(call: Call, needs: tuple[str, ...]) -> bool:
    """Return whether the client declares all that a question needs, and its revision has a form for it."""
    facts = call.facts
    if "sampling.tools" in needs and not facts.terms.codec.revision.sampling_tools:
        return False
    return lacks(facts.client_capabilities, needs) is None


async def ask_provider(
    call: Call,
    lane: Lane,
    provider: SamplingProvider,
    params: CreateMessageRequestParams,
    limit: AskTimeout | None,
) -> CreateMessageResult:
    """Ask a provider; a replay of the call gets the recorded answer or failure. A cancel ends its request.

    Raises:
        LimitExceeded: the memory budget has no room for its answer.
        ProviderError: it has no answer, or its answer is invalid.
        RequestTimeout: there was no answer within the limit; its request was cancelled.
        TypeError: it returned something else than a result.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    params = sendable_params(params)
    question = sampling_question(params)
    # The key that the question would have for the client: whichever of the two answered, a replay finds the answer.
    key, _ = lane.next_question(question.kind, question.name)
    memory = call.memory
    if memory is None:
        answer = sendable_answer(provider, await provider_answer(provider, params, limit))
        call.actor.keep(held_size(answer.encode()))
        return answer
    fingerprint, failed = memory.fingerprint(question), f"{key} failed"
    raise_recorded(memory, failed, fingerprint)
    known = memory.recall_answer(key, question, fingerprint)
    if known is not None:
        await trio.lowlevel.checkpoint()
        return known
    try:
        answer = sendable_answer(provider, await provider_answer(provider, params, limit))
        call.actor.keep(held_size(answer.encode()))
    except ProviderError as error:
        # The body may catch it, and go another way than with an answer.
        record_failure(memory, failed, fingerprint, error)
        raise
    memory.record_answer(key, answer, fingerprint)
    return answer


def raise_recorded(memory: CallMemory, name: str, fingerprint: str) -> None:
    """Raise the `ProviderError` that an earlier run recorded for this question, if it did."""
    entry = memory.find_step(name)
    if entry is None:
        return
    asked_before, kind, status, retry_after = cast("tuple[str, str, int | None, float | None]", entry.value)
    if asked_before == fingerprint:
        text = "the provider had no answer in an earlier run of this call; the log of that time says why"
        raise ProviderError(text, kind=ProviderErrorKind(kind), status=status, retry_after=retry_after)


def record_failure(memory: CallMemory, name: str, fingerprint: str, error: ProviderError) -> None:
    """Record a failure for a replay, but not its text, which may have words of the API."""
    memory.forget_steps(lambda each: each == name)
    memory.record_step(name, [fingerprint, error.kind.value, error.status, error.retry_after])


async def provider_answer(
    provider: SamplingProvider, params: CreateMessageRequestParams, limit: AskTimeout | None
) -> CreateMessageResult:
    """Return the checked answer of a provider. Raises as `ask_provider` does."""
    if limit is None:
        return checked_answer(provider, await answer_in_time(provider, params))
    with trio.CancelScope(deadline=limit.deadline):
        return checked_answer(provider, await answer_in_time(provider, params))
    # The scope has caught its own expiry; a cancel from outside that came at the same time wins.
    await trio.lowlevel.checkpoint()
    raise RequestTimeout(f"no answer of the server's model within {limit.seconds:g} seconds; the request was cancelled")


async def answer_in_time(provider: SamplingProvider, params: CreateMessageRequestParams) -> object:
    """Ask a provider. The answer of one that is cancelled, and returns all the same, is dropped."""
    answer = await asked(provider, params)
    await trio.lowlevel.checkpoint_if_cancelled()
    return answer


def asked(provider: SamplingProvider, params: CreateMessageRequestParams) -> Awaitable[object]:
    """Ask a provider. Raises `TypeError` if its `sample` is a plain function."""
    running: object = provider.sample(params)
    if not isinstance(running, Awaitable):
        raise TypeError(f"{type(provider).__name__}.sample returned {type(running).__name__}: write `async def sample`")
    return running


def checked_answer(provider: SamplingProvider, answer: object) -> CreateMessageResult:
    """Return what a provider returned, if it is an answer of a model."""
    if not isinstance(answer, CreateMessageResult):
        name = type(provider).__name__
        raise TypeError(f"the provider {name} returned {type(answer).__name__}: return a CreateMessageResult")
    problem = answer_problem(answer.role, answer.content)
    if problem is not None:
        raise invalid_answer(provider, problem)
    return answer


def invalid_answer(provider: SamplingProvider, problem: object) -> ProviderError:
    """Return the error of an answer that no model can give."""
    text = f"the provider {type(provider).__name__} returned an invalid answer: {problem}"
    return ProviderError(text, kind=ProviderErrorKind.MALFORMED)


def sendable_params(params: CreateMessageRequestParams) -> CreateMessageRequestParams:
    """Return params that JSON can hold, as the codec makes those for a client. Raises `LocalProtocolError` if it cannot."""
    try:
        return shown_model(params, "params")
    except ValueError as error:
        raise LocalProtocolError(CANNOT_SEND.format(error)) from None


def sendable_answer(provider: SamplingProvider, answer: CreateMessageResult) -> CreateMessageResult:
    """Return an answer that JSON can hold, as the next question has to. Raises `ProviderError` if it cannot."""
    try:
        return shown_model(answer)
    except ValueError as error:
        raise invalid_answer(provider, error) from None
