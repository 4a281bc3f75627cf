"""`run_agent`: a model that works with the tools of servers until it has an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, Unpack

from ...base.checks import check_instance, check_int, check_keywords, check_sequence, check_sync_callback
from ...client.sampling import provider_answer
from ...sampling import SamplingProvider, StreamingProvider
from ...session.event_loop import works_on_asyncio
from ...session.token_usage import MAX_ITERATIONS, Ask, TokenUsage, ToolLoop, text_of
from ...types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    ModelPreferences,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolChoice,
)
from ..agent_tools import offered
from .calls import AgentCalls, AgentClients, ModelToolsKeywords

MAX_TOKENS: Final = 4096
"""Tokens of one answer of the model."""


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


AgentPrompt: TypeAlias = str | SamplingContentBlock | Sequence[SamplingContentBlock]
"""What the user says: a text, an image, a recording, or several of them."""


@works_on_asyncio
async def run_agent(
    provider: SamplingProvider,
    prompt: AgentPrompt | None,
    clients: AgentClients,
    *,
    messages: Sequence[SamplingMessage] = (),
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
    **options: Unpack[ModelToolsKeywords],
) -> AgentResult:
    """Ask a model, run the tool calls that it makes on the servers of these clients, and return its answer.

        async with Client.connect(url) as files, Client.connect(command) as search:
            result = await run_agent(provider, "Which file is the newest?", [files, search], approve=ask_user)
            print(result.text)

    The calls of one answer run concurrently. A call that fails, that is not allowed, or that names no tool is an error result,
    which the model reads. The last request that `max_iterations` allows has no tools, so that the model answers.

    Args:
        prompt: what the user says; None continues `messages` as they are.
        clients: open clients, or groups of them. No two of their tools may have the same name; in a group they never do.
        messages: the conversation so far, such as the `messages` of an earlier result.
        only: the names of the tools that the model gets, as the client or the group lists them; `*` and `?` stand for any
            characters. Or a function that returns whether it gets a tool.
        without: the tools that it does not get, in the same way.
        approve: asked before each call, one call after the other.
        max_tokens: tokens of one answer.
        max_iterations: requests to the model.
        model_preferences, temperature, stop_sequences, metadata: of each request to the model.
        tool_choice: for the requests; `required` applies only to the first one, after which the model may choose.
        on_text: called with each piece of the model's text, or with each whole text if the provider cannot stream.
        on_message: called with each message that is appended to the conversation, when the calls of an answer have ended.
        on_progress: a plain function, called with a call and each report of its progress.
        tool_timeout: seconds that a call may take, the questions of its tool included; without a limit by default.
        list_timeout: seconds that each server may take to list its tools (60 by default).
        max_parallel: calls that run at once (16 by default); the others wait.
        max_result: bytes of a result that the model gets (4 MiB by default); a larger one is an error result.

    Raises:
        ProviderError: the model gave no answer.
        RemoteProtocolError: its answer breaks a rule, such as two calls with one id, or is not JSON.
        LimitExceeded: its answer has too many calls, or the servers have too many tools.
        ConfigurationError: two tools have the same name for the model.
        TypeError, ValueError: an argument is invalid, or `messages` breaks a rule of conversations.

    The tools are listed once, when the run begins; an error of a list ends the run. So does an exception of the program's own
    functions, handlers of the clients included, unless it is a `McpError` of a handler. A cancel ends the request to the model
    and every call; what `on_message` has received by then is a conversation that can be continued.
    """
    check_keywords(options, run_agent, "run_agent()")
    ask, calls = asking(provider, on_text), AgentCalls(**options)
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
    await calls.list_tools(clients)
    if calls.tools:
        loop.params = params.model_copy(update={"tools": offered(calls.tools), "tool_choice": tool_choice})
    answer = await loop.run()
    return AgentResult(
        text_of(answer), tuple(loop.messages), loop.usage, answer.stop_reason, loop.iterations, answer.model
    )


def asking(provider: SamplingProvider, on_text: Callable[[str], None] | None) -> Ask:
    """Return what asks the provider and shows the text of its answers.

    Raises:
        TypeError: an argument is invalid.
    """
    # pyright takes a protocol for abstract.
    check_instance("provider", provider, SamplingProvider, "a SamplingProvider")  # type: ignore[type-abstract]
    if on_text is None:
        return partial(sample, provider)
    check_sync_callback("on_text", on_text)
    if isinstance(provider, StreamingProvider):
        return partial(stream, provider, on_text)
    return partial(ask_and_show, provider, on_text)


async def sample(provider: SamplingProvider, params: CreateMessageRequestParams) -> CreateMessageResult:
    return await provider_answer(provider, provider.sample(params))


async def stream(
    provider: StreamingProvider, on_text: Callable[[str], None], params: CreateMessageRequestParams
) -> CreateMessageResult:
    return await provider_answer(provider, provider.stream(params, on_text))


async def ask_and_show(
    provider: SamplingProvider, on_text: Callable[[str], None], params: CreateMessageRequestParams
) -> CreateMessageResult:
    answer = await sample(provider, params)
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
