"""`Sampled`: the answer of a model; and the errors of answers that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

from typing_extensions import TypeVar

from ...errors import MalformedAnswer, RemoteProtocolError, ToolError
from ...protocol.conversation import answer_problem, blocks_of
from ...protocol.jsonrpc import INVALID_PARAMS
from ...protocol.strict_json import dumps
from ...session import TokenUsage, usage_of
from ...session.tool_loop import text_of
from ...types import (
    CreateMessageResult,
    JsonObject,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolUseContent,
)
from .exchange import SampleExchange, plain_exchange, structured_exchange

T_co = TypeVar("T_co", default=None, covariant=True)


class Structured(NamedTuple):
    """Data as a model gave it.

    Attributes:
        use: the tool use that holds it; None if it was JSON in a text.
    """

    data: JsonObject
    use: ToolUseContent | None


@dataclass(frozen=True, slots=True)
class Sampled(Generic[T_co]):
    """The answer of a model.

    Attributes:
        message: the whole result of the request.
        data: the value of the type that `returns` names; None without it.
        request: the message that was answered: the prompt, or the last of the messages.
    """

    message: CreateMessageResult
    data: T_co
    request: SamplingMessage = field(repr=False)
    _structured: Structured | None = field(default=None, repr=False)

    @property
    def content(self) -> list[SamplingContentBlock]:
        """The blocks of the answer."""
        return list(blocks_of(self.message.content))

    @property
    def text(self) -> str:
        """The text blocks of the answer, joined."""
        return text_of(self.message)

    @property
    def tool_calls(self) -> list[ToolUseContent]:
        """The tools that the model calls, each with its `id`, `name` and `input`; whatever the stop reason is."""
        return tool_uses_of(self.message)

    @property
    def model(self) -> str:
        """The name of the model that answered."""
        return self.message.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped, such as "endTurn" or "toolUse"; None if the client did not say."""
        return self.message.stop_reason

    @property
    def usage(self) -> TokenUsage:
        """The tokens that were reported: `input_tokens` and `output_tokens`, each None if it was not."""
        return usage_of(self.message)

    @property
    def reply(self) -> SamplingMessage:
        """The answer as a message of a conversation; structured data as JSON in a text.

        The tool use of `__schema__` would need a result there, and models reject a tool that a later request does not offer.
        """
        if self._structured is None or self._structured.use is None:
            return SamplingMessage(role="assistant", content=self.message.content)
        return SamplingMessage(role="assistant", content=TextContent(text=dumps(self._structured.data).decode()))

    @property
    def exchange(self) -> SampleExchange:
        """The question and the answer as messages, for another conversation or for the API of a model."""
        if self._structured is None:
            return plain_exchange(self.request, self.reply)
        return structured_exchange(self.request, *self._structured)


class SampleAttempt(NamedTuple):
    """An answer of a model that did not have the required form, and why not."""

    text: str
    reason: str


class SampleInvalid(ToolError):
    """None of a model's answers had the required form, in any attempt.

    Attributes:
        helper: which method of the context asked: "sample", "sample_schema" or "sample_tools".
        attempts: what each attempt got, and why it was refused; oldest first.
        last_result: the answer of the last attempt.
    """

    def __init__(self, helper: str, attempts: Sequence[SampleAttempt], last_result: Sampled) -> None:
        times = "attempt" if len(attempts) == 1 else "attempts"
        super().__init__(f"The model gave no valid answer in {len(attempts)} {times}: {attempts[-1].reason}")
        self.helper = helper
        self.attempts = tuple(attempts)
        self.last_result = last_result


def check_answer(answer: CreateMessageResult) -> None:
    """Check that a result can be the answer of a model.

    Raises:
        MalformedAnswer: it holds results of tools, or two tool uses with one id.
    """
    problem = answer_problem(answer.role, answer.content)
    if problem is not None:
        raise malformed_answer(problem)


def malformed_answer(problem: str) -> MalformedAnswer:
    return MalformedAnswer("its model's answer", RemoteProtocolError(problem, code=INVALID_PARAMS))


def tool_uses_of(answer: CreateMessageResult) -> list[ToolUseContent]:
    """Return the tool uses of an answer."""
    return [block for block in blocks_of(answer.content) if isinstance(block, ToolUseContent)]


def attempt_text(answer: CreateMessageResult) -> str:
    """Return what an attempt got: the text, and the tool uses as `name {...}`."""
    uses = (f"{use.name} {dumps(use.input).decode()}" for use in tool_uses_of(answer))
    return "\n".join(part for part in (text_of(answer), *uses) if part)
