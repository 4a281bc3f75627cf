"""The tools that a model is offered: functions, with the schemas of their signatures, and tools that have a description."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

from ...base.checks import mistake
from ...types import Tool
from ..options import check_function, check_named, listed_members, name_for
from ..tool_options import check_tool_name
from ..values.signature import Arguments, signature_arguments

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


# Weak, because a tool may be a function that a call has made. Each access creates a new bound method, which is never found here.
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
