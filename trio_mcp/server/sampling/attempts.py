"""Asking a model until its answer has the required form: what is required, and what another attempt says about the last one."""

from __future__ import annotations

from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from ...protocol.conversation import blocks_of
from ...sampling import SamplingProvider
from ...session import Call
from ...types import CreateMessageRequestParams, CreateMessageResult, TextContent, Tool, ToolChoice
from .answers import SampleAttempt, Structured, attempt_text, malformed_answer, tool_uses_of
from .prompts import tool_names, with_texts
from .request import invalid_answer, provider_for, takes_tools
from .structured import AnswerForm, structured_answer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Helper: TypeAlias = Literal["sample", "sample_schema", "sample_tools"]
"""The method of the context that asked."""

REQUIRED: Final = ToolChoice(mode="required")

CUT_OFF: Final = "maxTokens"
"""The stop reason of an answer that reached `max_tokens`."""

REJECTED: Final = "Your last answer could not be used: "
AGAIN: Final = ". Answer again."
"""How the text of another attempt begins and ends; the reason is in between."""


class Requirement(Protocol[T_co]):
    """What an answer has to be."""

    def asked(self, params: CreateMessageRequestParams, call: Call) -> CreateMessageRequestParams:
        """Return the params of a request to the model of this call, with this requirement in them."""
        ...

    def read(self, answer: CreateMessageResult) -> T_co:
        """Return the value of an answer that is valid.

        Raises:
            ValueError: it is not; the message says why.
            DeferredCheck: that takes long to find out.
        """
        ...

    def source(self, answer: CreateMessageResult) -> Structured | None:
        """Return the data that the value of a valid answer was read from; None if it has no value."""
        ...


class DataRequired(Generic[T]):
    """Data of a form."""

    def __init__(self, form: AnswerForm[T]) -> None:
        self._form = form
        self._read: tuple[CreateMessageResult, Structured] | None = None

    def asked(self, params: CreateMessageRequestParams, call: Call) -> CreateMessageRequestParams:
        if takes_tools(call):
            return params.model_copy(update={"tools": [self._form.tool], "tool_choice": REQUIRED})
        return params.model_copy(update={"messages": with_texts(params.messages, self._form.instructions)})

    def read(self, answer: CreateMessageResult) -> T:
        return self._form.read(self.source(answer).data)

    def source(self, answer: CreateMessageResult) -> Structured:
        # Once: the text of an answer may be megabytes of JSON.
        if self._read is None or self._read[0] is not answer:
            self._read = answer, structured_answer(answer)
        return self._read[1]


class Unchecked:
    """Nothing: every answer is valid, and passed on with whatever tools it calls, if the model was offered any.

    Args:
        tools, choice: what the model may call, and whether it must.
    """

    def __init__(self, tools: list[Tool] | None, choice: ToolChoice | None) -> None:
        self._tools = tools
        self._choice = choice
        self._provider: SamplingProvider | None = None

    def asked(self, params: CreateMessageRequestParams, call: Call) -> CreateMessageRequestParams:
        if self._tools is None and self._choice is None:
            self._provider = provider_for(call, params)
            return params
        return params.model_copy(update={"tools": self._tools, "tool_choice": self._choice})

    def read(self, answer: CreateMessageResult) -> None:
        """Accept every answer.

        Raises:
            MalformedAnswer: it calls a tool, and the request says nothing of tools. Its author would not look for calls, whose
                results the conversation would wait for.
            ProviderError: the same, of the server's provider.
        """
        if self._tools is None and self._choice is None and (uses := tool_uses_of(answer)):
            problem = f"it calls the tool {uses[0].name[:64]!r}, and was offered none"
            raise malformed_answer(problem) if self._provider is None else invalid_answer(self._provider, problem)

    def source(self, answer: CreateMessageResult) -> None:
        """Return None: tool calls are in the answer itself."""


class CallsRequired(Unchecked):
    """Calls of tools that were offered; none too, if the model need not call one."""

    def read(self, answer: CreateMessageResult) -> None:
        tools = self._tools or []
        names, offered = [use.name for use in tool_uses_of(answer)], {tool.name for tool in tools}
        for name in names:
            if name not in offered:
                raise ValueError(f"there is no tool {name[:64]!r}; there are {tool_names(tools)}")
        if self._choice == REQUIRED and not names:
            raise ValueError(f"it calls no tool, and has to call one of {tool_names(tools)}")


def refusal(answer: CreateMessageResult, error: ValueError) -> SampleAttempt:
    """Return what an attempt got, and why it was refused."""
    reason = str(error)
    if answer.stop_reason == CUT_OFF:
        reason = f"{reason} (it was cut off at the limit of tokens)"
    return SampleAttempt(attempt_text(answer), reason)


def reason_of(params: CreateMessageRequestParams) -> str | None:
    """Return why the last answer was refused, of the params of another attempt; None of a first one."""
    block = blocks_of(params.messages[-1].content)[-1] if params.messages else None
    if not isinstance(block, TextContent) or not block.text.startswith(REJECTED):
        return None
    return block.text.removeprefix(REJECTED).removesuffix(AGAIN)


def with_reason(params: CreateMessageRequestParams, reason: str) -> CreateMessageRequestParams:
    """Return the params of another attempt."""
    text = f"{REJECTED}{reason.removesuffix('.')}{AGAIN}"
    return params.model_copy(update={"messages": with_texts(params.messages, text)})
