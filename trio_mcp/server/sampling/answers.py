"""`Sampled`: the answer of a model; and the errors of answers that cannot be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from typing import Final, Generic, TypeAlias

from typing_extensions import TypeVar

from ...base.checks import mistake
from ...base.named_tuples import NamedTuple
from ...errors import LocalProtocolError, MalformedAnswer, RemoteProtocolError, ToolError
from ...model_formats import to_anthropic, to_openai
from ...protocol.conversation import MAX_ID_SHOWN, answer_problem, blocks_of, conversation_problem
from ...protocol.jsonrpc import INVALID_PARAMS
from ...protocol.shown_text import shown_model
from ...protocol.strict_json import dumps
from ...sampling import SCHEMA_TOOL
from ...session import TokenUsage, usage_of
from ...session.token_usage import call_result, error_result, text_of
from ...types import (
    CallToolResult,
    ContentBlock,
    CreateMessageResult,
    JsonObject,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..branching import Messages, freeze_messages
from ..values.content import content_of
from ..values.media import FileToRead

# The conversation of a body or branch with a model: tool uses that wait for their results, and the results.

ToolOutput: TypeAlias = object
"""The result of a tool use: a text, a block or a list of them, an `Image`, JSON, a `CallToolResult`, a `ToolResultContent`, or
the exception with which the tool failed."""

MAX_IDS_SHOWN: Final = 8


class OpenUses(NamedTuple):
    """The tool uses of a message that has no results after it; `place` is the index of the message."""

    place: int
    uses: tuple[ToolUseContent, ...]


def open_uses(messages: Sequence[SamplingMessage]) -> list[OpenUses]:
    """Return the messages whose tool uses wait for results."""
    found: list[OpenUses] = []
    for index, (message, after) in enumerate(zip_longest(messages, messages[1:])):
        uses = tuple(block for block in blocks_of(message.content) if isinstance(block, ToolUseContent))
        if uses and not (after is not None and has_results(after)):
            found.append(OpenUses(index, uses))
    return found


def has_results(message: SamplingMessage) -> bool:
    """Return whether a message holds results of tools."""
    return any(isinstance(block, ToolResultContent) for block in blocks_of(message.content))


def check_conversation(messages: Sequence[SamplingMessage], *, is_history: bool) -> None:
    """Check the messages that are about to be sent to a model.

    Args:
        is_history: they are the history of a body or branch, perhaps with a prompt at its end.

    Raises:
        LocalProtocolError: they break a rule of conversations (L-SMP-3b); the text has the index and the id. If tool uses in the
            history wait for results, it has the ids of all of them.
    """
    problem = conversation_problem(messages)
    if problem is None:
        return
    if is_history and (waiting := [use.id for message in open_uses(messages) for use in message.uses]):
        problem = f"the model waits for the results of {shown(waiting)}: call add_tool_results before the next prompt"
    raise LocalProtocolError(problem)


def answered(messages: Sequence[SamplingMessage], results: Mapping[str, ToolOutput]) -> Messages:
    """Return a conversation with the results of all tool uses that wait for one, each after the message that has the use.

    Raises:
        ValueError: a tool use has no result, or a result no tool use; the message names the ids.
        TypeError: a result cannot be sent.
    """
    if not isinstance(results, Mapping):
        raise TypeError(mistake("the results", 'a mapping of ids to results, such as {call.id: "12 degrees"}', results))
    waiting = open_uses(messages)
    counts = Counter(use.id for message in waiting for use in message.uses)
    if missing := [name for name in counts if name not in results]:
        raise ValueError(f"the tool uses {shown(missing)} have no result")
    if unknown := [name for name in results if name not in counts]:
        raise ValueError(f"no tool use waits for the results {shown(unknown)}")
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"two answers of the model have the tool uses {shown(twice)}: ask in separate branches")
    # The others are frozen already: to copy a long history once more would hold up the event loop.
    by_index = {place: freeze_messages([result_message(uses, results)])[0] for place, uses in waiting}
    extended: list[SamplingMessage] = []
    for index, message in enumerate(messages):
        extended.append(message)
        if index in by_index:
            extended.append(by_index[index])
    return tuple(extended)


def result_message(uses: Sequence[ToolUseContent], results: Mapping[str, ToolOutput]) -> SamplingMessage:
    """Return the message with the results of one message's tool uses, in their order."""
    blocks: list[SamplingContentBlock] = [tool_result(use, results[use.id]) for use in uses]
    return SamplingMessage(role="user", content=blocks)


def tool_result(use: ToolUseContent, output: ToolOutput) -> ToolResultContent:
    """Return the result of a tool use as a block.

    Raises:
        ValueError: it is the block of another tool use.
        TypeError: JSON cannot hold it, or it is an `Image` or `Audio` of a file, which is not read here.
    """
    block = result_block(use, output)
    try:
        return shown_model(block)
    except ValueError as error:
        raise TypeError(f"the result for {shown([use.id])} cannot be sent: {error}") from None


def result_block(use: ToolUseContent, output: ToolOutput) -> ToolResultContent:
    match output:
        case ToolResultContent():
            if output.tool_use_id != use.id:
                raise ValueError(f"the result for {shown([use.id])} is one for {shown([output.tool_use_id])}")
            return output
        case CallToolResult():
            return call_result(use, output)
        case Exception():
            return error_result(use, str(output) or type(output).__name__)
        case _:
            return ToolResultContent(tool_use_id=use.id, content=output_content(output))


def output_content(output: object) -> list[ContentBlock]:
    try:
        return content_of(output)
    except FileToRead:
        pass
    raise TypeError("a tool result has an image or audio of a file: read it in a thread, and give its bytes as data=")


def shown(ids: Iterable[str]) -> str:
    """Return ids for an error: a peer has chosen them, and how many there are."""
    listed = list(ids)
    text = ", ".join(repr(name[:MAX_ID_SHOWN]) for name in listed[:MAX_IDS_SHOWN])
    more = len(listed) - MAX_IDS_SHOWN
    return f"{text} and {more} more" if more > 0 else text


# `SampleExchange`: a question to a model and its answer, as messages that can become a part of another conversation.
#
# plain         user: the prompt      assistant: the answer
# structured    user: the prompt      assistant: tool_use of `__schema__` with the data     user: its result, "ok"
# with tools    user: the prompt      assistant: the tool uses                              user: their results, by `close`

ACKNOWLEDGED: Final = "ok"
"""The result of the tool use that holds structured data. Short: it is read, and paid for, with each further question."""

_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class SampleExchange:
    """A question and its answer.

    Attributes:
        messages: two messages; three if the answer is structured, or if its tool uses have results.
    """

    messages: tuple[SamplingMessage, ...]

    def close(self, results: Mapping[str, ToolOutput]) -> SampleExchange:
        """Return the exchange with the results of its tool uses, by their ids.

        Args:
            results: as for `Context.add_tool_results`.

        Raises:
            ValueError: a tool use has no result, or a result no tool use; the message names the ids.
            TypeError: a result cannot be sent.
        """
        return SampleExchange(answered(self.messages, results))

    def to_openai(self) -> list[JsonObject]:
        """Return the messages as OpenAI's chat completions take them.

        Raises:
            ValueError: they have no place for one of the blocks.
        """
        return to_openai(self.messages)

    def to_anthropic(self) -> list[JsonObject]:
        """Return the messages as Anthropic's messages API takes them. Raises as `to_openai` does."""
        return to_anthropic(self.messages)


def plain_exchange(request: SamplingMessage, answer: SamplingMessage) -> SampleExchange:
    """Return a question and its answer as they are."""
    return SampleExchange(freeze_messages([request, answer]))


def structured_exchange(request: SamplingMessage, data: JsonObject, use: ToolUseContent | None) -> SampleExchange:
    """Return a question and its structured answer.

    Args:
        data: what the model gave.
        use: its tool use; None if it answered with JSON in a text.
    """
    if use is None:
        use = ToolUseContent(id=text_id(request, data), name=SCHEMA_TOOL, input=data)
    result = ToolResultContent(tool_use_id=use.id, content=[TextContent(text=ACKNOWLEDGED)])
    messages = (
        request,
        SamplingMessage(role="assistant", content=use),
        SamplingMessage(role="user", content=result),
    )
    return SampleExchange(freeze_messages(messages))


def text_id(request: SamplingMessage, data: JsonObject) -> str:
    """Return an id for a tool use that stands for an answer in text: the same in a replay, and another for another answer."""
    return f"schema_{sha256(dumps([request.wire(), data])).hexdigest()[:_DIGITS]}"


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
