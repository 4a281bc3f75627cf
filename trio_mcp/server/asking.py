"""What a handler asks for and what it gets: the answers of a user, the words of a model."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from ..errors import CapabilityError, LimitExceeded
from ..runtime import Lane, TokenBudget
from ..session import CallPort, Question, used_tokens
from ..types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    SamplingMessage,
    TextContent,
)
from .forms import Form
from .patience import Patience

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co]):
    """The user answered; `content` is the validated value."""

    content: T_co
    action: Literal["accept"] = "accept"


@dataclass(frozen=True, slots=True)
class Declined:
    """The user said no."""

    action: Literal["decline"] = "decline"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user closed the question without choosing."""

    action: Literal["cancel"] = "cancel"


Elicited: TypeAlias = Accepted[T] | Declined | Dismissed


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the client's model answered: all blocks in `message`, its text in `text`."""

    message: CreateMessageResult

    @property
    def text(self) -> str:
        blocks = self.message.content if isinstance(self.message.content, list) else [self.message.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))

    @property
    def model(self) -> str:
        return self.message.model

    @property
    def stop_reason(self) -> str | None:
        return self.message.stop_reason


def form_question(message: str, asked: Form[object], name: str | None) -> Question[ElicitResult]:
    """The question that shows a form."""
    params = ElicitRequestFormParams(mode="form", message=message, requested_schema=asked.requested_schema)
    return Question("elicit", "elicitation/create", params, ElicitResult, ("elicitation.form",), name)


def spoken(prompt: str) -> SamplingMessage:
    """What an author says to a model, as a message."""
    return SamplingMessage(role="user", content=TextContent(text=prompt))


def ask_model(
    waits: Patience, call: CallPort, lane: Lane, params: CreateMessageRequestParams, budget: TokenBudget | None
) -> Awaitable[CreateMessageResult]:
    """Ask the client's model, within a budget where there is one; see `Patience.ask`.

    Raises:
        BranchLimit: nothing is left of the budget, and nothing was sent; or the answer was more than was left.
    """
    question = Question("sample", "sampling/createMessage", params, CreateMessageResult, ("sampling",))
    if budget is None:
        return waits.ask(call, lane, question)
    return charged(waits, call, lane, question, params, budget)


async def charged(
    waits: Patience,
    call: CallPort,
    lane: Lane,
    question: Question[CreateMessageResult],
    params: CreateMessageRequestParams,
    budget: TokenBudget,
) -> CreateMessageResult:
    """Every attempt counts: one that was in vain, or was withdrawn, for what its request is estimated at."""
    budget.check()
    estimate = call.options.estimate_tokens
    try:
        answer = await waits.ask(call, lane, question)
    except (CapabilityError, LimitExceeded):  # nothing was sent
        raise
    except BaseException:
        budget.count(used_tokens(params, None, estimate))
        raise
    budget.charge(used_tokens(params, answer, estimate))
    return answer
