"""How many tokens a sample used: what the client reports, or else an estimate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import trio

from ..base.checks import check_int, check_sync_callback
from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.conversation import answer_problem, blocks_of, conversation_problem
from ..runtime.loop_turn import is_large, let_others_run
from ..types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonValue,
    SamplingMessage,
    TextContent,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

TokenEstimate: TypeAlias = Callable[[CreateMessageRequestParams, CreateMessageResult | None], int]
"""Estimates the tokens of a request for a sample and of its answer; of the request alone where there is no answer."""

TOTALS = ("totalTokens", "total_tokens")
INPUTS = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
OUTPUTS = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens that were reported for one answer of a model, or for several of them.

    Attributes:
        input_tokens, output_tokens: what the model read and wrote; None if no answer had the number.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            add_counts(self.input_tokens, other.input_tokens), add_counts(self.output_tokens, other.output_tokens)
        )


def add_counts(one: int | None, other: int | None) -> int | None:
    """Return the sum of two counts, of which one may be unknown; None if both are."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def usage_of(result: CreateMessageResult) -> TokenUsage:
    """Return the tokens that `_meta.usage` of an answer reports, in any of the usual spellings."""
    usage = (result.meta or {}).get("usage")
    if not isinstance(usage, dict):
        return TokenUsage()
    return TokenUsage(first_count(usage, INPUTS), first_count(usage, OUTPUTS))


def used_tokens(params: CreateMessageRequestParams, result: CreateMessageResult | None, estimate: TokenEstimate) -> int:
    """Return the tokens that a sample used: those that `_meta.usage` of its result reports, if complete, or else the estimate."""
    reported = None if result is None else reported_tokens((result.meta or {}).get("usage"))
    return estimate(params, result) if reported is None else reported


def reported_tokens(usage: JsonValue) -> int | None:
    """Return the tokens that a client reports. No revision defines this member: clients pass on what their provider reports."""
    if not isinstance(usage, dict):
        return None
    total = first_count(usage, TOTALS)
    if total is not None:
        return total
    inputs, outputs = first_count(usage, INPUTS), first_count(usage, OUTPUTS)
    return None if inputs is None or outputs is None else inputs + outputs


def first_count(usage: Mapping[str, JsonValue], names: tuple[str, ...]) -> int | None:
    """Return the first of these members that is a count. A negative number is none: it would give tokens back."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


# The loop of a model that calls tools: ask, run the calls of the answer, ask again with their results, until it calls none.
#
# The loop does not know who is asked and who runs the calls. A handler of a server asks the client's model and runs each call
# in a
# branch; `run_agent` asks a provider and calls servers.

# A trace, with two iterations allowed after which the model still wants to call:
#
#   request 1   user "What is the weather?"                     tools
#   answer 1    assistant tool_use a, tool_use b                run_calls([a, b])
#   request 2   ..., user tool_result a, tool_result b          no tools, toolChoice none: the last one
#   answer 2    assistant "It rains."                           returned
#
# The messages of an answer and of its results are appended together, after the last call has ended. So whenever the loop is
# interrupted, by an error or by a cancel, `messages` is a conversation that can be continued.


Ask: TypeAlias = Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult]]
"""Asks the model."""

RunCalls: TypeAlias = Callable[[Sequence[ToolUseContent]], Awaitable[Sequence[ToolResultContent]]]
"""Runs the calls of one answer, concurrently if it can, and returns their results in the order of the calls."""

MAX_ITERATIONS: Final = 20
"""Requests to the model that a loop may take, unless its caller allows more or fewer."""

MAX_CALLS: Final = 100
"""Calls of one answer that are run."""

NOT_RUN: Final = "This tool was not called, because no call was allowed any more."


@dataclass(slots=True, eq=False)
class ToolLoop:
    """One run of the loop.

        loop = ToolLoop(params, ask=provider.sample, run_calls=run_calls)
        answer = await loop.run()

    The last request that `max_iterations` allows has no tools, so that the model has to answer with what it knows. A `required`
    tool choice applies to the first request; after it the model may choose, as the loop would never end otherwise.

    Args:
        params: those of the first request, with its tools and the conversation so far.
        ask: asks the model.
        run_calls: runs the calls of one answer. A call that fails is a result with `is_error`; an exception ends the loop.
        max_iterations: requests to the model that the loop may take.
        max_calls: calls that one answer may have.
        on_message: called with each message that is appended.

    Attributes:
        messages: the conversation, which grows by each answer, together with the results of its calls.
        iterations: how many requests were answered.
        usage: the tokens of all answers.

    All three are up to date also after an exception or a cancel.

    Raises:
        ValueError: the conversation breaks a rule of sampling (L-SMP-3b), or a limit is less than 1.
    """

    params: CreateMessageRequestParams
    ask: Ask
    run_calls: RunCalls
    max_iterations: int = MAX_ITERATIONS
    max_calls: int = MAX_CALLS
    on_message: Callable[[SamplingMessage], None] | None = None
    messages: list[SamplingMessage] = field(init=False)
    iterations: int = field(init=False, default=0)
    usage: TokenUsage = field(init=False, default_factory=TokenUsage)

    def __post_init__(self) -> None:
        check_int("max_iterations", self.max_iterations, least=1)
        check_int("max_calls", self.max_calls, least=1)
        if self.on_message is not None:
            check_sync_callback("on_message", self.on_message)
        problem = conversation_problem(self.params.messages)
        if problem is not None:
            raise ValueError(problem)
        self.messages = [*self.params.messages]

    @property
    def is_used_up(self) -> bool:
        """Whether the request that may be the last one was answered."""
        return self.iterations >= self.max_iterations

    async def run(self) -> CreateMessageResult:
        """Return the first answer without calls, or the answer to the last request.

        Raises:
            RemoteProtocolError: an answer breaks a rule, such as two tool uses with one id, or is not JSON.
            LimitExceeded: an answer has more than `max_calls` calls; none of them was run.

        What `ask` and `run_calls` raise is raised unchanged.
        """
        while True:
            answer = await self.ask(self._next_params())
            # A provider may answer in spite of its cancel.
            await trio.lowlevel.checkpoint_if_cancelled()
            if is_large(answer):
                await let_others_run()
            self.iterations += 1
            self.usage += usage_of(answer)
            calls = calls_of(answer)
            if len(calls) > self.max_calls:
                raise LimitExceeded(f"the model's answer has {len(calls)} tool uses; the limit is {self.max_calls}")
            if not calls:
                self._append(answer, ())
            # Not offered any tool, it has used one. The conversation has to have results all the same.
            elif self.is_used_up:
                self._append(answer, [error_result(call, NOT_RUN) for call in calls])
            else:
                self._append(answer, await self.run_calls(calls))
                continue
            return answer

    def _next_params(self) -> CreateMessageRequestParams:
        changed: dict[str, object] = {"messages": [*self.messages]}
        if self.iterations + 1 >= self.max_iterations:
            changed.update(tools=None, tool_choice=ToolChoice(mode="none"))
        elif self.iterations and self.params.tool_choice is not None and self.params.tool_choice.mode == "required":
            changed.update(tool_choice=ToolChoice(mode="auto"))
        return self.params.model_copy(update=changed)

    def _append(self, answer: CreateMessageResult, results: Sequence[ToolResultContent]) -> None:
        appended: list[SamplingMessage] = []
        # An API rejects a message without blocks.
        if blocks_of(answer.content):
            appended.append(SamplingMessage(role="assistant", content=answer.content))
        if results:
            appended.append(SamplingMessage(role="user", content=[*results]))
        self.messages += appended
        if self.on_message is not None:
            for message in appended:
                self.on_message(message)


def calls_of(answer: CreateMessageResult) -> list[ToolUseContent]:
    """Return the tool uses of an answer, whatever its stop reason.

    Raises:
        RemoteProtocolError: the answer breaks a rule.
    """
    problem = answer_problem(answer.role, answer.content)
    if problem is not None:
        raise RemoteProtocolError(f"the model's answer is invalid: {problem}")
    try:
        answer.encode()
    except ValueError as error:
        # Every later request would have it in its messages, which could not be sent.
        raise RemoteProtocolError(f"the model's answer is invalid: it is no JSON ({error})") from None
    return [block for block in blocks_of(answer.content) if isinstance(block, ToolUseContent)]


def text_of(answer: CreateMessageResult) -> str:
    """Return the text blocks of an answer, joined."""
    return "".join(block.text for block in blocks_of(answer.content) if isinstance(block, TextContent))


def call_result(call: ToolUseContent, result: CallToolResult) -> ToolResultContent:
    """Return the result of a tool for the model that called it: the same blocks and the same structured content."""
    content = ToolResultContent(tool_use_id=call.id, content=result.content, is_error=result.is_error or None)
    if "structured_content" not in result.model_fields_set:
        return content
    return content.model_copy(update={"structured_content": result.structured_content})


def error_result(call: ToolUseContent, text: str) -> ToolResultContent:
    """Return the result of a call that failed, or was not made."""
    return ToolResultContent(tool_use_id=call.id, content=[TextContent(text=text)], is_error=True)
