"""The messages of a question to a model: prompts of text and media, and what a question adds to the last message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias, cast, runtime_checkable
from weakref import WeakKeyDictionary

import trio

from ...base.checks import mistake
from ...base.named_tuples import NamedTuple
from ...protocol.conversation import blocks_of
from ...runtime import ThreadLimiter
from ...types import (
    AudioContent,
    ImageContent,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
)
from ..options import check_function, check_named, listed_members, name_for
from ..tool_options import check_tool_name
from ..values.media import Audio, Image
from ..values.signature import Arguments, signature_arguments

PromptPart: TypeAlias = str | TextContent | ImageContent | AudioContent | Image | Audio
"""A part of a prompt: a text, a content block, or an image or audio of a file or of bytes."""

Prompt: TypeAlias = PromptPart | Sequence[PromptPart]
"""What a model is asked: a part, or a list of them."""

PARTS: Final = (str, TextContent, ImageContent, AudioContent, Image, Audio)
MAX_READERS: Final = 20
"""Threads that read the files of prompts."""

_READERS: trio.lowlevel.RunVar[ThreadLimiter] = trio.lowlevel.RunVar("files of prompts")

EXPECTED: Final = "text, a text, image or audio block, an Image or Audio, or a list of those"


def prompt_parts(prompt: Prompt) -> list[PromptPart]:
    """Return the parts of a prompt.

    Raises:
        TypeError: one is of another type.
        ValueError: there is none.
    """
    given: object = prompt
    parts: list[object] = list(given) if isinstance(given, list | tuple) else [given]
    for part in parts:
        if not isinstance(part, PARTS):
            raise TypeError(mistake("the prompt", EXPECTED, part))
    if not parts:
        raise ValueError("the prompt has no parts")
    return cast("list[PromptPart]", parts)


async def prompt_message(parts: Sequence[PromptPart]) -> SamplingMessage:
    """Return a prompt as a message of the user. Files are read in a thread; a cancel abandons a read that hangs.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is not a regular file.
        LimitExceeded: it is larger than `MAX_FILE`, or `MAX_READERS` reads hang.
    """
    if any(isinstance(part, Image | Audio) and part.path is not None for part in parts):
        try:
            readers = _READERS.get()
        except LookupError:
            readers = ThreadLimiter(MAX_READERS)
            _READERS.set(readers)
        return await readers.run(lambda: user_message(parts))
    return user_message(parts)


def user_message(parts: Sequence[PromptPart]) -> SamplingMessage:
    """Return a prompt as a message of the user; reads the files."""
    blocks = [part_block(part) for part in parts]
    return SamplingMessage(role="user", content=blocks[0] if len(blocks) == 1 else blocks)


def part_block(part: PromptPart) -> SamplingContentBlock:
    if isinstance(part, str):
        return TextContent(text=part)
    return part.block() if isinstance(part, Image | Audio) else part


def with_texts(messages: Sequence[SamplingMessage], *texts: str) -> list[SamplingMessage]:
    """Return a conversation with more text for the model at its end.

    The texts are further blocks of a copy of the last message; or a message of their own after one of the assistant, or after
    the results of tools, beside which nothing else may stand (L-SMP-3b).
    """
    added: list[SamplingContentBlock] = [TextContent(text=text) for text in texts]
    if not added:
        return list(messages)
    last = messages[-1]
    blocks = blocks_of(last.content)
    if last.role != "user" or any(isinstance(block, ToolResultContent) for block in blocks):
        return [*messages, SamplingMessage(role="user", content=added[0] if len(added) == 1 else added)]
    return [*messages[:-1], last.model_copy(update={"content": [*blocks, *added]})]


# The tools that a model is offered: functions, with the schemas of their signatures, and tools that have a description.

ToolChoiceMode: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may, must or must not call a tool."""


@runtime_checkable
class DescribedTool(Protocol):
    """A tool with a description, such as `trio_mcp.server.Tool`, which a builder makes and `Server.add_tool` returns."""

    @property
    def model(self) -> Tool:
        """What `tools/list` shows of it."""
        ...


OfferedTool: TypeAlias = Callable[..., object] | Tool | DescribedTool
"""A tool for a model: a function, a tool of a server, or a `Tool` of the protocol."""


class FunctionTool(NamedTuple):
    """A function as a tool: what a model sees of it, and how its arguments are read."""

    model: Tool
    arguments: Arguments


# Weak, because a tool may be a function that a call has made. A bound method is a new object each time, and never found here.
_KNOWN: WeakKeyDictionary[Callable[..., object], FunctionTool] = WeakKeyDictionary()


def tool_models(tools: Sequence[OfferedTool]) -> list[Tool]:
    """Return the descriptions of tools for a model.

    Raises:
        TypeError: one is not a tool, or a function whose signature is not possible for a tool.
        ValueError: two have one name; or a name is invalid or reserved.
    """
    given: object = tools
    # One tool without a list is a frequent mistake.
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(mistake("tools", "a list of functions or tools", given))
    models = [tool_model(tool) for tool in tools]
    names: set[str] = set()
    for model in models:
        check_tool_name(model.name)
        if model.name in names:
            raise ValueError(f"tools: two have the name {model.name!r}")
        names.add(model.name)
    return models


def tool_model(tool: OfferedTool) -> Tool:
    """Return the description of a tool. Raises as `tool_models` does."""
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, DescribedTool) and isinstance(tool.model, Tool):
        return tool.model
    if not callable(tool):
        expected = "a function, a types.Tool or a finished tool of a server"
        raise TypeError(mistake("each of tools", expected, tool))
    return function_tool(tool).model


def function_tool(function: Callable[..., object]) -> FunctionTool:
    """Return a function as a tool: its name, its docstring, and the schema of its signature, without a `Context`.

    Raises:
        TypeError: it is a class, or its signature is not possible for a tool.
    """
    try:
        known = _KNOWN.get(function)
    except TypeError:
        # It cannot be hashed or referred to weakly, as some callable objects.
        return make_function_tool(function)
    if known is None:
        known = _KNOWN[function] = make_function_tool(function)
    return known


def make_function_tool(function: Callable[..., object]) -> FunctionTool:
    check_function(function, "tools")
    arguments = signature_arguments(function)
    check_named(function)
    description = listed_members(function, {})["description"]
    model = Tool(name=name_for(function, {}), description=description, input_schema=arguments.schema)
    return FunctionTool(model, arguments)


def tool_names(tools: Iterable[Tool]) -> str:
    """Return the names of tools for an error."""
    return ", ".join(tool.name for tool in tools)
