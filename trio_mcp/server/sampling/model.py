"""Asking a model: every question to one goes through `ask_model`, and is charged here."""

from __future__ import annotations

from collections.abc import Awaitable

from ...errors import CapabilityError, LimitExceeded
from ...runtime import Lane, TokenBudget
from ...session import Call, used_tokens
from ...types import CreateMessageRequestParams, CreateMessageResult
from ..ask_timeout import AskTimeout, ask_within
from .request import sampling_question
from .routing import ask_provider, provider_for


def ask_model(
    call: Call,
    lane: Lane,
    budget: TokenBudget | None,
    params: CreateMessageRequestParams,
    limit: AskTimeout | None,
) -> Awaitable[CreateMessageResult]:
    """Ask the client's model, or that of the server's provider, and charge the tokens to a budget if there is one.

    Raises:
        BranchLimit: nothing is left of the budget, and nothing was sent; or the answer used more than was left.
        CapabilityError: the client lacks a capability that the request needs; nothing was sent.
        MalformedAnswer, QuestionRejected: see `Call.ask`.
        ProviderError: the server's provider has no answer.
        RequestTimeout: there was no answer within the limit; the request was withdrawn.
    """
    # Not `async def`, as `ask_within`.
    if budget is None:
        return ask_either(call, lane, params, limit)
    return ask_and_charge(call, lane, budget, params, limit)


def ask_either(
    call: Call, lane: Lane, params: CreateMessageRequestParams, limit: AskTimeout | None
) -> Awaitable[CreateMessageResult]:
    """Ask the model that the request goes to."""
    provider = provider_for(call, params)
    if provider is None:
        return ask_within(call, lane, sampling_question(params), limit)
    return ask_provider(call, lane, provider, params, limit)


async def ask_and_charge(
    call: Call,
    lane: Lane,
    budget: TokenBudget,
    params: CreateMessageRequestParams,
    limit: AskTimeout | None,
) -> CreateMessageResult:
    """Ask a model and charge the tokens to a budget; see `ask_model`."""
    estimate = call.services.options.estimate_tokens
    budget.check()
    try:
        result = await ask_either(call, lane, params, limit)
    except (CapabilityError, LimitExceeded):  # nothing was sent
        raise
    except BaseException:
        # The request went out, so the model may have worked for it. If a withdrawn or failed sample were free, a loop of
        # timeouts could use any number of tokens.
        budget.count(used_tokens(params, None, estimate))
        raise
    budget.charge(used_tokens(params, result, estimate))
    return result
