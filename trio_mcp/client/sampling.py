"""Answering a server's sampling requests: with a function of the program, or with a provider if the user consents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from ..base.checks import check_callable, check_instance, mistake
from ..base.late import hinting
from ..errors import CapabilityError, LocalProtocolError, MalformedQuestion, SampleRefused
from ..protocol.conversation import answer_problem, conversation_problem
from ..sampling import SamplingProvider
from ..session.event_loop import at_home
from ..types import CreateMessageRequestParams, CreateMessageResult, TextContent

# Functions of the program that may be plain or async.

T = TypeVar("T")


async def maybe_await(value: T | Awaitable[T]) -> T:
    """Return a value, or await it first if it is awaitable: a handler may be plain or async."""
    if isinstance(value, Awaitable):
        return cast("T", await at_home(value))
    return value


def provider_answer(provider: SamplingProvider, answer: Awaitable[T]) -> Awaitable[T]:
    """Return what awaits an answer where its provider runs: on Trio one of this package, the program's own at home."""
    return answer if type(provider).__module__.startswith("trio_mcp.") else at_home(answer)


OnSample: TypeAlias = Callable[
    [CreateMessageRequestParams], CreateMessageResult | str | Awaitable[CreateMessageResult | str]
]
"""A function, plain or async, that asks the model: returns its answer as text or as a `CreateMessageResult`."""

ApproveSample: TypeAlias = Callable[
    [CreateMessageRequestParams, str | None],
    bool | CreateMessageRequestParams | Awaitable[bool | CreateMessageRequestParams],
]
"""A function, plain or async, of a sampling request and the name that its server gave itself: returns whether the model may be
asked, or the request that it may be asked instead."""

METHOD = "sampling/createMessage"


def unknown_server() -> str | None:
    """Return None, which stands for a server without a name."""
    return None


@dataclass(frozen=True, slots=True)
class ProviderSampling:
    """An `on_sample` that asks a provider, after the user has consented.

    Args:
        approve: asks the user; None asks the model without asking anyone.
        server_name: returns the name of the server that is asking.
    """

    provider: SamplingProvider
    approve: ApproveSample | None = None
    server_name: Callable[[], str | None] = unknown_server

    async def __call__(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Return the model's answer.

        Raises:
            SampleRefused: the user did not consent.
            ProviderError: the model gave no answer.
        """
        if self.approve is not None:
            params = await self._approved(self.approve, params)
        return await provider_answer(self.provider, self.provider.sample(params))

    async def _approved(self, approve: ApproveSample, params: CreateMessageRequestParams) -> CreateMessageRequestParams:
        decision: object = await maybe_await(approve(params, self.server_name()))
        if isinstance(decision, CreateMessageRequestParams):
            return decision
        if not isinstance(decision, bool):
            raise TypeError(mistake("approve_sample", "a function that returns True, False or a request", decision))
        if not decision:
            raise SampleRefused
        return params


def sampling_handler(
    on_sample: OnSample | None, sampling: SamplingProvider | None, approve: ApproveSample | None
) -> OnSample | None:
    """Return what answers sampling requests.

    Raises:
        TypeError, ValueError: the arguments are invalid, or exclude each other.
    """
    if sampling is None:
        if approve is not None:
            raise ValueError("approve_sample is asked before `sampling=` is; an on_sample refuses by itself")
        return on_sample
    if on_sample is not None:
        raise ValueError("on_sample and sampling both answer sampling requests; pass one of them")
    # pyright takes a protocol for abstract.
    check_instance("sampling", sampling, SamplingProvider, "a SamplingProvider")  # type: ignore[type-abstract]
    if approve is not None:
        check_callable("approve_sample", approve)
    return ProviderSampling(sampling, approve)


def check_question(params: CreateMessageRequestParams, *, with_tools: bool) -> None:
    """Check a sampling request as it was received.

    `include_context` that was not declared is allowed: a server should not send it, and a client may ignore it (L-SMP-1).

    Args:
        with_tools: whether the client declared `sampling.tools`.

    Raises:
        CapabilityError: it has tools or a choice of tools, and they were not declared.
        MalformedQuestion: its messages break a rule (L-SMP-3b).
    """
    if not with_tools and (params.tools is not None or params.tool_choice is not None):
        raise CapabilityError(
            "the server asked for a sample with tools, which this client did not declare (sampling.tools)", {}
        )
    problem = conversation_problem(params.messages)
    if problem is not None:
        raise MalformedQuestion(METHOD, problem)


def checked_answer(answer: object) -> CreateMessageResult:
    """Return what a handler of sampling requests has returned, as it is sent.

    Raises:
        TypeError: it is neither a string nor a `CreateMessageResult`.
        LocalProtocolError: it is not an answer of a model: it has another role than the assistant, or results of tools.
    """
    if isinstance(answer, str):
        content = TextContent(text=answer)
        return CreateMessageResult(role="assistant", content=content, model="unnamed", stop_reason="endTurn")
    if not isinstance(answer, CreateMessageResult):
        raise TypeError(f"on_sample returns a string or a CreateMessageResult, not {answer!r:.80}")
    problem = answer_problem(answer.role, answer.content)
    if problem is None and answer.role != "assistant":
        problem = f"its role is {answer.role}, and must be assistant"
    if problem is not None:
        raise LocalProtocolError(f"the answer to {METHOD} was not sent: {problem}")
    return answer


if not TYPE_CHECKING:
    # FastMCP has types in a module of this name.
    __getattr__ = hinting(__name__, "SamplingMessage SamplingParams")
