"""The tools of servers for a loop of the program's own, which asks a model through the library of its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack, cast

from ...base.checks import check_keywords
from ...model_formats import (
    ModelMessage,
    calls_from_anthropic,
    calls_from_openai,
    calls_from_openai_responses,
    results_to_anthropic,
    results_to_openai,
    results_to_openai_responses,
    tools_to_anthropic,
    tools_to_openai,
    tools_to_openai_responses,
)
from ...model_formats.blocks import as_object
from ...session.event_loop import works_on_asyncio
from ...types import Tool, ToolResultContent, ToolUseContent
from ..agent_tools import offered
from .calls import AgentCalls, AgentClients, ModelToolsKeywords

if TYPE_CHECKING:
    from ...model_formats.api_types import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
        FunctionToolParam,
        MessageParam,
        ResponseInputItemParam,
        ToolParam,
    )


@dataclass(frozen=True, slots=True)
class ModelTools:
    """The tools of servers, under names that the APIs of models accept, and what runs the calls of a model.

    `list_model_tools` returns one.

        tools = await list_model_tools(group)
        answer = await anthropic.messages.create(tools=tools.to_anthropic(), messages=messages, ...)
        messages += await tools.run_anthropic(answer)

    Attributes:
        tools: the tools, under these names.
    """

    tools: tuple[Tool, ...]
    _calls: AgentCalls

    def to_anthropic(self) -> list[ToolParam]:
        """Return the tools as Anthropic's messages API takes them."""
        return tools_to_anthropic(self.tools)

    def to_openai(self) -> list[ChatCompletionFunctionToolParam]:
        """Return the tools as OpenAI's chat completions take them."""
        return tools_to_openai(self.tools)

    def to_openai_responses(self) -> list[FunctionToolParam]:
        """Return the tools as OpenAI's Responses API takes them."""
        return tools_to_openai_responses(self.tools)

    @works_on_asyncio
    async def run(self, calls: Sequence[ToolUseContent]) -> list[ToolResultContent]:
        """Run the calls of one answer on their servers, concurrently, and return their results in the order of the calls.

        A call that fails, that is not allowed, or that names no tool is an error result, which the model reads.

        What a function of the program raises ends all calls, and is raised. A cancel cancels the calls on the servers.
        """
        return await self._calls.run(calls)

    async def run_anthropic(self, answer: ModelMessage) -> list[MessageParam]:
        """Run the calls of an answer of Anthropic's messages API, and return what follows in the conversation.

        Args:
            answer: a `Message` of the library `anthropic`, or the same as a dict.

        Returns:
            the answer and the message with the results of its calls; nothing if it has no calls.

        Raises:
            ValueError: a call of the answer cannot be read, or a result has a block that the API does not have.
        """
        calls = calls_from_anthropic(answer)
        if not calls:
            return []
        said = as_object(answer, "the answer")
        # The API rejects the other members of an answer, such as its id.
        asked = cast("MessageParam", {"role": "assistant", "content": said["content"]})
        return [asked, results_to_anthropic(await self.run(calls))]

    async def run_openai(self, answer: ModelMessage) -> list[ChatCompletionMessageParam]:
        """Run the calls of an answer of OpenAI's chat completions, and return what follows in the conversation.

        Args:
            answer: a `ChatCompletionMessage` of the library `openai`, or the same as a dict.

        Returns:
            the answer and the messages with the results of its calls; nothing if it has no calls.

        Raises:
            ValueError: as `run_anthropic`.
        """
        calls = calls_from_openai(answer)
        if not calls:
            return []
        said = cast("ChatCompletionMessageParam", as_object(answer, "the answer"))
        return [said, *results_to_openai(await self.run(calls))]

    async def run_openai_responses(self, response: ModelMessage) -> list[ResponseInputItemParam]:
        """Run the calls of a response of OpenAI's Responses API, and return what follows in the conversation.

        Args:
            response: a `Response` of the library `openai`, or the same as a dict.

        Returns:
            the items of the response, and those with the results of its calls; nothing if it has no calls. With
            `previous_response_id=` only the results are needed: those of the type "function_call_output".

        Raises:
            ValueError: as `run_anthropic`.
        """
        calls = calls_from_openai_responses(response)
        if not calls:
            return []
        said = cast("list[ResponseInputItemParam]", as_object(response, "the response")["output"])
        return [*said, *results_to_openai_responses(await self.run(calls))]


@works_on_asyncio
async def list_model_tools(
    clients: AgentClients,
    **options: Unpack[ModelToolsKeywords],
) -> ModelTools:
    """List the tools of servers, and return them as a model takes them. The arguments are those of `run_agent`.

    Raises:
        ConfigurationError: two tools have the same name for the model.
        LimitExceeded: the servers have too many tools.
        TypeError, ValueError: an argument is invalid.

    An error of a client that lists its tools is raised; in a group, a server whose list fails is left out.
    """
    check_keywords(options, list_model_tools, "list_model_tools()")
    calls = AgentCalls(**options)
    await calls.list_tools(clients)
    return ModelTools(tuple(offered(calls.tools)), calls)
