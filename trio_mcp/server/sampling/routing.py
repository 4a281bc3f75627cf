"""Which model a question goes to: the client's, or the one of the server's provider; and asking the provider.

    Server(sampling=provider)                              the client's if it has what the question needs, else the provider's
    Server(sampling=provider, sampling_prefer="server")    the provider's
    Server()                                               the client's

A question about the context of servers (`include_context`) goes to the client in any case: only it has their context.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Literal, TypeAlias, cast

import trio

from ...checks import check_choice, mistake
from ...errors import ProviderError, ProviderErrorKind, RequestTimeout
from ...protocol.conversation import answer_problem
from ...protocol.json_limits import held_size
from ...protocol.strict_json import dumps
from ...runtime import Lane
from ...sampling import SamplingProvider
from ...session import Call
from ...session.calls.memory import CallMemory
from ...types import CreateMessageRequestParams, CreateMessageResult
from ...types.capabilities import lacks
from ..ask_timeout import AskTimeout
from .request import needed_capabilities, sampling_question

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
    provider = call.services.provider
    if provider is None:
        return None
    needs = needed_capabilities(params)
    if not PROVIDED.issuperset(needs):
        return None
    return None if not call.services.prefers_provider and client_has(call, needs) else provider


def takes_tools(call: Call) -> bool:
    """Return whether the model that a question without tools would go to can be offered tools."""
    services = call.services
    if services.provider is not None and (services.prefers_provider or not client_has(call, ("sampling",))):
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
    question = sampling_question(params)
    # The key that the question would have for the client: whichever of the two answered, a replay finds the answer.
    key, _ = lane.next_question(question.kind, question.name)
    memory = call.memory
    if memory is None:
        answer = await provider_answer(provider, params, limit)
        call.actor.keep(answer_size(provider, answer))
        return answer
    fingerprint, failed = memory.fingerprint(question), f"{key} failed"
    raise_recorded(memory, failed, fingerprint)
    known = memory.recall_answer(key, question, fingerprint)
    if known is not None:
        await trio.lowlevel.checkpoint()
        return known
    try:
        answer = await provider_answer(provider, params, limit)
        call.actor.keep(answer_size(provider, answer))
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


def answer_size(provider: SamplingProvider, answer: CreateMessageResult) -> int:
    """Return the bytes that an answer takes. Raises `ProviderError` if JSON cannot hold it, as the next question has to."""
    try:
        return held_size(dumps(answer.wire()))
    except ValueError as error:
        raise invalid_answer(provider, error) from None
