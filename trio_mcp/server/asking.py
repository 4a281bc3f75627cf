"""The answers that a handler gets: a user's to a form, a model's to a sampling request, and what a sample is charged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ..errors import CapabilityError, LimitExceeded
from ..runtime import TokenBudget
from ..session import Question, TokenEstimate, used_tokens
from ..types import CreateMessageRequestParams, CreateMessageResult, SamplingMessage, TextContent
from .exchanges import ElicitExchange

C = TypeVar("C")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C_co = TypeVar("C_co", default=None, covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co, C_co]):
    """The user answered; `content` is the validated value.

    Attributes:
        exchange: the question and the answer as messages for a model.
    """

    content: T_co
    exchange: ElicitExchange[C_co] = field(repr=False)
    action: Literal["accept"] = "accept"

    @property
    def context(self) -> C_co:
        """The context that was given with the question; None if its `Elicit` has none."""
        return self.exchange.context


@dataclass(frozen=True, slots=True)
class Declined:
    """The user declined to answer."""

    action: Literal["decline"] = "decline"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user closed the question without choosing."""

    action: Literal["cancel"] = "cancel"


Elicited: TypeAlias = Accepted[T, None] | Declined | Dismissed
"""What `ctx.elicit` returns; check `.action`."""

KeyedElicited: TypeAlias = Accepted[T, C] | Declined | Dismissed
"""What `ctx.elicit` returns for an `Elicit` with a context; the parameters are the answer's type and the context's."""


@dataclass(frozen=True, slots=True)
class UrlAccepted:
    """The user opened the page and finished there; with `wait=False`, the user agreed to open it.

    Attributes:
        elicitation_id: names the visit, for `Server.complete_elicitation`.
    """

    elicitation_id: str
    action: Literal["accept"] = "accept"


UrlElicited: TypeAlias = UrlAccepted | Declined | Dismissed
"""What `ctx.elicit_url` returns; check `.action`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer of the client's model: `text` is its text, `message` the whole result."""

    message: CreateMessageResult

    @property
    def text(self) -> str:
        """The text blocks of the answer, joined."""
        # One block or a list of them: revisions before 2025-11-25 know only the single one.
        blocks = self.message.content if isinstance(self.message.content, list) else [self.message.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))

    @property
    def model(self) -> str:
        """The name of the model that answered."""
        return self.message.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped, such as "endTurn"; None if the client did not say."""
        return self.message.stop_reason


def user_message(prompt: str) -> SamplingMessage:
    """Return a prompt as a message of the user."""
    return SamplingMessage(role="user", content=TextContent(text=prompt))


def sampling_question(params: CreateMessageRequestParams) -> Question[CreateMessageResult]:
    """Return the question that asks the client's model."""
    return Question("sample", "sampling/createMessage", params, CreateMessageResult, ("sampling",))


async def charge(
    ask: Callable[[], Awaitable[CreateMessageResult]],
    params: CreateMessageRequestParams,
    budget: TokenBudget,
    estimate: TokenEstimate,
) -> CreateMessageResult:
    """Ask the client's model and charge the tokens to a budget.

    Raises:
        BranchLimit: nothing is left of the budget, and nothing was sent; or the answer used more than was left.
    """
    budget.check()
    try:
        result = await ask()
    except (CapabilityError, LimitExceeded):  # nothing was sent
        raise
    except BaseException:
        # The request went out, so the model may have worked for it. If a withdrawn or failed sample were free, a loop of
        # timeouts could use any number of tokens.
        budget.count(used_tokens(params, None, estimate))
        raise
    budget.charge(used_tokens(params, result, estimate))
    return result
