"""Conversations and tools as the APIs of models write them: OpenAI's chat completions, and Anthropic's messages API.

Of OpenAI's Responses API there are tools, calls and results.

What both sides know survives the way there and back. What differs is listed in `docs/providers.md`; a block that the other side
does not have raises `ValueError` with the index of its message and its own, as in `messages[2].content[0]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from .blocks import Dumpable, ModelMessage
    from .chat_completions import from_openai, to_openai
    from .messages_api import from_anthropic, to_anthropic
    from .requests import anthropic_request, openai_request
    from .responses_api import (
        calls_from_openai_responses,
        results_to_openai_responses,
        tools_from_openai_responses,
        tools_to_openai_responses,
    )
    from .results import anthropic_result, openai_result
    from .tools import (
        calls_from_anthropic,
        calls_from_openai,
        results_to_anthropic,
        results_to_openai,
        tools_from_anthropic,
        tools_from_openai,
        tools_to_anthropic,
        tools_to_openai,
    )
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "blocks": "Dumpable ModelMessage",
            "chat_completions": "from_openai to_openai",
            "messages_api": "from_anthropic to_anthropic",
            "requests": "anthropic_request openai_request",
            "responses_api": (
                "calls_from_openai_responses results_to_openai_responses tools_from_openai_responses "
                "tools_to_openai_responses"
            ),
            "results": "anthropic_result openai_result",
            "tools": (
                "calls_from_anthropic calls_from_openai results_to_anthropic results_to_openai tools_from_anthropic "
                "tools_from_openai tools_to_anthropic tools_to_openai"
            ),
        },
    )

__all__ = [
    "Dumpable",
    "ModelMessage",
    "anthropic_request",
    "anthropic_result",
    "calls_from_anthropic",
    "calls_from_openai",
    "calls_from_openai_responses",
    "from_anthropic",
    "from_openai",
    "openai_request",
    "openai_result",
    "results_to_anthropic",
    "results_to_openai",
    "results_to_openai_responses",
    "to_anthropic",
    "to_openai",
    "tools_from_anthropic",
    "tools_from_openai",
    "tools_from_openai_responses",
    "tools_to_anthropic",
    "tools_to_openai",
    "tools_to_openai_responses",
]
