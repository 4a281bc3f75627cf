"""The types of the client libraries, for type checkers alone.

What the functions for them return has these types, so that the libraries take it. Without a library it is JSON all the same, and
nothing here is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anthropic.types import MessageParam, ToolParam
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
    from openai.types.responses import FunctionToolParam, ResponseInputItemParam
    from openai.types.shared_params import FunctionDefinition

__all__ = [
    "ChatCompletionFunctionToolParam",
    "ChatCompletionMessageParam",
    "FunctionDefinition",
    "FunctionToolParam",
    "MessageParam",
    "ResponseInputItemParam",
    "ToolParam",
]
