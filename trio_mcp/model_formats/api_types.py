"""The types of the client libraries, for type checkers alone.

What the functions for them return has these types, so that the libraries take it. Without a library it is JSON all the same, and
nothing here is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anthropic.types import MessageParam as MessageParam
    from anthropic.types import ToolParam as ToolParam
    from openai.types.chat import ChatCompletionFunctionToolParam as ChatCompletionFunctionToolParam
    from openai.types.chat import ChatCompletionMessageParam as ChatCompletionMessageParam
    from openai.types.shared_params import FunctionDefinition as FunctionDefinition
