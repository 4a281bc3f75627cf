"""`ElicitExchange`: a question to the user and its answer, as messages that a model can read.

A model that goes on from an answer should see what was asked. It knows such pairs as a tool call and the result of it:

    assistant   text: the question           tool_use: id, the key of the question, its arguments
    user        tool_result: the same id, and the answer as JSON text
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Literal, Never, TypeAlias

from pydantic_core import to_json
from typing_extensions import TypeVar

from ... import server
from ...base.checks import missing
from ...model_formats import to_anthropic, to_openai
from ...types import (
    JsonObject,
    JsonValue,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

C_co = TypeVar("C_co", default=None, covariant=True)

UNNAMED = "elicit"
"""The name of the tool call for a question that has no key."""


@dataclass(frozen=True, slots=True)
class ElicitExchange(Generic[C_co]):
    """A question that the user accepted, and the answer.

    Attributes:
        id: `elicit_{call}_{number}`, the same in a replay of the call. The questions of one call, with those of its branches, are
            numbered from 1.
        key: the key of its `Elicit`, or "elicit".
        message: the text that the user read.
        answer: the content of the form, as the client sent it.
        context: the context of the question; None if it has none. `messages` show it only if `with_arguments` puts it there.
        arguments: the input of the tool call in `messages`; empty unless set by `with_arguments`.
    """

    id: str
    key: str
    message: str
    answer: JsonObject
    context: C_co
    arguments: JsonObject = field(default_factory=dict[str, JsonValue])

    @property
    def request(self) -> SamplingMessage:
        """The question, as a message of the assistant."""
        call = ToolUseContent(id=self.id, name=self.key, input=self.arguments)
        # Without an empty text block, which some models reject.
        blocks: list[SamplingContentBlock] = [TextContent(text=self.message), call] if self.message else [call]
        return SamplingMessage(role="assistant", content=blocks)

    @property
    def response(self) -> SamplingMessage:
        """The answer, as a message of the user."""
        result = ToolResultContent(tool_use_id=self.id, content=[TextContent(text=self._answer_text)])
        return SamplingMessage(role="user", content=[result])

    @property
    def messages(self) -> tuple[SamplingMessage, SamplingMessage]:
        """The question and the answer, for `ctx.sample(messages=[*exchange.messages, ...])`."""
        return self.request, self.response

    def with_arguments(self, fn: Callable[[C_co], JsonObject]) -> ElicitExchange[C_co]:
        """Return a copy whose tool call has the arguments `fn(context)`: the part of the context that a model may see."""
        return replace(self, arguments=fn(self.context))

    def to_openai(self) -> list[JsonObject]:
        """Return the two messages as OpenAI's chat completions take them."""
        return to_openai(self.messages)

    def to_anthropic(self) -> list[JsonObject]:
        """Return the two messages as Anthropic's messages API takes them."""
        return to_anthropic(self.messages)

    @property
    def _answer_text(self) -> str:
        return to_json(self.answer).decode()


# The answers of a user: to a form, and to a page that was opened.

C = TypeVar("C")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co, C_co]):
    """The user answered; `content` is the validated value.

    Attributes:
        exchange: the question and the answer as messages for a model.
    """

    content: T_co
    exchange: ElicitExchange[C_co] = field(repr=False)
    action: Literal["accept"] = "accept"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise missing("Accepted", name, server.other_names.OF_ACCEPTED)

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
