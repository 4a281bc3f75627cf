"""`run_agent`: a model that works with the tools of servers until it has an answer."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import trio

from ..checks import (
    check_callable,
    check_instance,
    check_int,
    check_seconds,
    check_sequence,
    check_sync_callback,
    mistake,
)
from ..errors import McpError, ProviderError
from ..groups import unwrap
from ..sampling import SamplingProvider, StreamingProvider
from ..session.token_usage import TokenUsage
from ..session.tool_loop import MAX_ITERATIONS, Ask, ToolLoop, call_result, error_result, text_of
from ..types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    ModelPreferences,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from .agent_tools import AgentTool, list_agent_tools
from .client import Client
from .maybe_await import maybe_await

MAX_TOKENS: Final = 4096
"""Tokens of one answer of the model."""
MAX_PARALLEL: Final = 16
"""Calls of one answer that run at once."""
MAX_RESULT: Final = 4 * 1024 * 1024
"""Bytes of a tool's result that the model gets."""
LIST_TIMEOUT: Final = 60.0
"""Seconds that a server may take to list its tools."""

NOT_ALLOWED: Final = "The user did not allow this call."


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A call that a model wants to make.

    Attributes:
        client: the client of the server that has the tool.
        tool: the tool as its server lists it. Its annotations are hints of the server, which may be wrong.
        arguments: what the model passes; the server validates it.
        id: the model's id of the call.
    """

    client: Client
    tool: Tool
    arguments: JsonObject
    id: str


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What a model answered after its calls.

    Attributes:
        text: the text blocks of its last answer, joined.
        messages: the whole conversation, with the messages that it began with; `run_agent(messages=...)` continues it.
        usage: the tokens of all answers, as the provider reports them.
        stop_reason: why the model stopped, such as "endTurn" or "maxTokens"; None if the provider did not say.
        iterations: how many requests the model answered. If these are all that were allowed, it may not have finished.
        model: the name of the model that gave the last answer.
    """

    text: str
    messages: tuple[SamplingMessage, ...]
    usage: TokenUsage
    stop_reason: str | None
    iterations: int
    model: str


ApproveCall: TypeAlias = Callable[[AgentCall], bool | Awaitable[bool]]
"""A function, plain or async, that returns whether a call may be made."""

AgentPrompt: TypeAlias = str | SamplingContentBlock | Sequence[SamplingContentBlock]
"""What the user says: a text, an image, a recording, or several of them."""


async def run_agent(
    provider: SamplingProvider,
    prompt: AgentPrompt | None,
    clients: Iterable[Client],
    *,
    messages: Sequence[SamplingMessage] = (),
    approve: ApproveCall | None = None,
    system_prompt: str | None = None,
    max_tokens: int = MAX_TOKENS,
    max_iterations: int = MAX_ITERATIONS,
    model_preferences: ModelPreferences | None = None,
    temperature: float | None = None,
    stop_sequences: Sequence[str] | None = None,
    metadata: JsonObject | None = None,
    tool_choice: ToolChoice | None = None,
    on_text: Callable[[str], None] | None = None,
    on_message: Callable[[SamplingMessage], None] | None = None,
    tool_timeout: float = math.inf,
    list_timeout: float = LIST_TIMEOUT,
    max_parallel: int = MAX_PARALLEL,
    max_result: int = MAX_RESULT,
) -> AgentResult:
    """Ask a model, run the tool calls that it makes on the servers of these clients, and return its answer.

        async with Client.connect(url) as files, Client.connect(command) as search:
            result = await run_agent(provider, "Which file is the newest?", [files, search], approve=ask_user)
            print(result.text)

    The calls of one answer run concurrently. A call that fails, that is not allowed, or that names no tool is an error result,
    which the model reads. The last request that `max_iterations` allows has no tools, so that the model answers.

    Args:
        prompt: what the user says; None continues `messages` as they are.
        clients: open clients. No two of their tools may have the same name.
        messages: the conversation so far, such as the `messages` of an earlier result.
        approve: asked before each call, one call after the other.
        max_tokens: tokens of one answer.
        max_iterations: requests to the model.
        model_preferences, temperature, stop_sequences, metadata: of each request to the model.
        tool_choice: of the first request, if it is `required`; after it the model may choose.
        on_text: called with each piece of the model's text, or with each whole text if the provider cannot stream.
        on_message: called with each message that is appended to the conversation, when the calls of an answer have ended.
        tool_timeout: seconds that a call may take, the questions of its tool included.
        list_timeout: seconds that each server may take to list its tools.
        max_parallel: calls that run at once; the others wait.
        max_result: bytes of a result that the model gets; a larger one is an error result.

    Raises:
        ProviderError: the model gave no answer.
        RemoteProtocolError: its answer breaks a rule, such as two calls with one id, or is no JSON.
        LimitExceeded: its answer has too many calls, or the servers have too many tools.
        ConfigurationError: two tools have the same name for the model.
        TypeError, ValueError: an argument is invalid, or `messages` breaks a rule of conversations.

    The tools are listed once, when the run begins; an error of a list ends the run. So does an exception of the program's own
    functions, handlers of the clients included, unless it is a `McpError` of a handler. A cancel ends the request to the model
    and every call; what `on_message` has received by then is a conversation that can be continued.
    """
    ask = asking(provider, on_text)
    calls = AgentCalls(approve, tool_timeout, max_parallel, max_result)
    check_seconds("list_timeout", list_timeout, positive=True, hint="math.inf for no limit")
    params = CreateMessageRequestParams(
        messages=conversation(messages, prompt),
        max_tokens=check_int("max_tokens", max_tokens, least=1),
        system_prompt=system_prompt,
        model_preferences=model_preferences,
        temperature=temperature,
        stop_sequences=None if stop_sequences is None else [*stop_sequences],
        metadata=metadata,
    )
    loop = ToolLoop(params, ask, calls.run, max_iterations, on_message=on_message)
    calls.tools = await list_agent_tools(unique(clients), list_timeout)
    if calls.tools:
        loop.params = params.model_copy(update={"tools": offered(calls.tools), "tool_choice": tool_choice})
    answer = await loop.run()
    return AgentResult(
        text_of(answer), tuple(loop.messages), loop.usage, answer.stop_reason, loop.iterations, answer.model
    )


@dataclass(slots=True, eq=False)
class AgentCalls:
    """Runs the calls of a model.

    Args:
        timeout: seconds that a call may take.
        limit: calls that run at once.
        max_result: bytes of a result.

    Attributes:
        tools: by the names that the model gets.
    """

    _approve: ApproveCall | None
    _timeout: float
    _limit: int
    _max_result: int
    tools: Mapping[str, AgentTool] = field(default_factory=dict[str, AgentTool])

    def __post_init__(self) -> None:
        if self._approve is not None:
            check_callable("approve", self._approve)
        check_seconds("tool_timeout", self._timeout, positive=True, hint="math.inf for no limit")
        check_int("max_parallel", self._limit, least=1)
        check_int("max_result", self._max_result, least=1)

    async def run(self, calls: Sequence[ToolUseContent]) -> list[ToolResultContent]:
        """Run the calls of one answer, and return their results in its order.

        What a function of the program raises ends all of them, and is raised; several exceptions are raised as a group.
        """
        results: dict[int, ToolResultContent] = {}
        places = trio.Semaphore(self._limit)

        async def run(index: int, tool: AgentTool, call: ToolUseContent) -> None:
            results[index] = await self._result(tool, call)
            places.release()

        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                for index, call in enumerate(calls):
                    tool = self.tools.get(call.name)
                    if tool is None:
                        results[index] = error_result(call, f"There is no tool named {call.name[:128]!r}.")
                        continue
                    await places.acquire()
                    # One after the other, in the order of the answer: a user reads one question at a time.
                    if await self._is_allowed(tool, call):
                        nursery.start_soon(run, index, tool, call)
                    else:
                        results[index] = error_result(call, NOT_ALLOWED)
                        places.release()
        except BaseExceptionGroup as group:
            failure = unwrap(group)
        # Raised outside of the `except`, so that it does not show the nursery's group.
        if failure is not None:
            try:
                raise failure
            finally:
                # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
                del failure
        return [results[index] for index in range(len(calls))]

    async def _is_allowed(self, tool: AgentTool, call: ToolUseContent) -> bool:
        if self._approve is None:
            return True
        allowed: object = await maybe_await(self._approve(AgentCall(tool.client, tool.tool, call.input, call.id)))
        if not isinstance(allowed, bool):
            raise TypeError(mistake("approve", "a function that returns True or False", allowed))
        return allowed

    async def _result(self, tool: AgentTool, call: ToolUseContent) -> ToolResultContent:
        result = await self._called(tool, call)
        size = len(result.encode())
        if size > self._max_result:
            return error_result(call, f"The result has {size} bytes; the limit is max_result, {self._max_result}.")
        return result

    async def _called(self, tool: AgentTool, call: ToolUseContent) -> ToolResultContent:
        try:
            return call_result(call, await tool.client.call_tool(tool.tool.name, call.input, timeout=self._timeout))
        except ProviderError as error:
            return error_result(call, f"The call failed: {error.public_text}")
        except McpError as error:
            return error_result(call, f"The call failed: {error}")


def asking(provider: SamplingProvider, on_text: Callable[[str], None] | None) -> Ask:
    """Return what asks the provider and shows the text of its answers.

    Raises:
        TypeError: an argument is invalid.
    """
    # pyright takes a protocol for abstract.
    check_instance("provider", provider, SamplingProvider, "a SamplingProvider")  # type: ignore[type-abstract]
    if on_text is None:
        return provider.sample
    check_sync_callback("on_text", on_text)
    if isinstance(provider, StreamingProvider):
        return partial(stream, provider, on_text)
    return partial(ask_and_show, provider, on_text)


async def stream(
    provider: StreamingProvider, on_text: Callable[[str], None], params: CreateMessageRequestParams
) -> CreateMessageResult:
    return await provider.stream(params, on_text)


async def ask_and_show(
    provider: SamplingProvider, on_text: Callable[[str], None], params: CreateMessageRequestParams
) -> CreateMessageResult:
    answer = await provider.sample(params)
    text = text_of(answer)
    if text:
        on_text(text)
    return answer


def conversation(messages: Sequence[SamplingMessage], prompt: AgentPrompt | None) -> list[SamplingMessage]:
    """Return the messages of the first request.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: there is nothing to answer.
    """
    each = 'a SamplingMessage(role="user", content=...)'
    before = [*check_sequence("messages", messages, SamplingMessage, "a list of SamplingMessage", each)]
    if prompt is None:
        if not before:
            raise ValueError("there is nothing to answer: pass a prompt, or messages")
        return before
    content = TextContent(text=prompt) if isinstance(prompt, str) else prompt
    blocks = [*content] if isinstance(content, Sequence) else content
    return [*before, SamplingMessage(role="user", content=blocks)]


def unique(clients: Iterable[Client]) -> list[Client]:
    """Return the clients, each once.

    Raises:
        TypeError: it is not an iterable of clients.
    """
    if not isinstance(clients, Iterable):
        raise TypeError(mistake("clients", "a list of open clients, such as [client]", clients))
    expected = "an open Client"
    return list(dict.fromkeys(check_instance("each of the clients", client, Client, expected) for client in clients))


def offered(tools: Mapping[str, AgentTool]) -> list[Tool]:
    """Return the tools as a model gets them, with names that its API accepts."""
    return [
        listed.tool if listed.tool.name == name else listed.tool.model_copy(update={"name": name})
        for name, listed in tools.items()
    ]
