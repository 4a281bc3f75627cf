"""Conversations and tools as the APIs of models write them: OpenAI's chat completions, and Anthropic's messages API.

Of OpenAI's Responses API there are tools, calls and results.

What both sides know survives the way there and back. What differs is listed at
https://github.com/trio-mcp/trio-mcp/blob/main/docs/providers.md; a block that the other side does not have raises `ValueError`
with the index of its message and its own, as in `messages[2].content[0]`.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from .blocks import Dumpable as Dumpable, ModelMessage as ModelMessage
    from .chat_completions import from_openai as from_openai, to_openai as to_openai
    from .messages_api import from_anthropic as from_anthropic, to_anthropic as to_anthropic
    from .requests import (
        anthropic_request as anthropic_request,
        anthropic_result as anthropic_result,
        openai_request as openai_request,
        openai_result as openai_result,
    )
    from .responses_api import (
        calls_from_openai_responses as calls_from_openai_responses,
        results_to_openai_responses as results_to_openai_responses,
        tools_from_openai_responses as tools_from_openai_responses,
        tools_to_openai_responses as tools_to_openai_responses,
    )
    from .tools import (
        calls_from_anthropic as calls_from_anthropic,
        calls_from_openai as calls_from_openai,
        results_to_anthropic as results_to_anthropic,
        results_to_openai as results_to_openai,
        tools_from_anthropic as tools_from_anthropic,
        tools_from_openai as tools_from_openai,
        tools_to_anthropic as tools_to_anthropic,
        tools_to_openai as tools_to_openai,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "blocks": "Dumpable ModelMessage",
            "chat_completions": "from_openai to_openai",
            "messages_api": "from_anthropic to_anthropic",
            "requests": "anthropic_request anthropic_result openai_request openai_result",
            "responses_api": (
                "calls_from_openai_responses results_to_openai_responses tools_from_openai_responses "
                "tools_to_openai_responses"
            ),
            "tools": (
                "calls_from_anthropic calls_from_openai results_to_anthropic results_to_openai tools_from_anthropic "
                "tools_from_openai tools_to_anthropic tools_to_openai"
            ),
        },
    )
