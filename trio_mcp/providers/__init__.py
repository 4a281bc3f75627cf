"""Providers of sampling: what asks a model for servers, clients and proxies.

`AnthropicProvider` and `OpenAIProvider` use the official clients of the two APIs, which are extras, and are loaded when the first
provider is made. `ScriptedProvider` answers from a script, for tests. A provider for another API implements `SamplingProvider`.
The functions translate conversations and tools to the formats of the APIs, for providers and for agents.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..base.backoff import Backoff as Backoff
    from ..model_formats import (
        Dumpable as Dumpable,
        ModelMessage as ModelMessage,
        anthropic_request as anthropic_request,
        anthropic_result as anthropic_result,
        calls_from_anthropic as calls_from_anthropic,
        calls_from_openai as calls_from_openai,
        calls_from_openai_responses as calls_from_openai_responses,
        from_anthropic as from_anthropic,
        from_openai as from_openai,
        openai_request as openai_request,
        openai_result as openai_result,
        results_to_anthropic as results_to_anthropic,
        results_to_openai as results_to_openai,
        results_to_openai_responses as results_to_openai_responses,
        to_anthropic as to_anthropic,
        to_openai as to_openai,
        tools_from_anthropic as tools_from_anthropic,
        tools_from_openai as tools_from_openai,
        tools_from_openai_responses as tools_from_openai_responses,
        tools_to_anthropic as tools_to_anthropic,
        tools_to_openai as tools_to_openai,
        tools_to_openai_responses as tools_to_openai_responses,
    )
    from ..sampling import SamplingProvider as SamplingProvider
    from .anthropic import AnthropicProvider as AnthropicProvider
    from .openai import OpenAIProvider as OpenAIProvider
    from .scripted import ScriptedProvider as ScriptedProvider
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "anthropic": "AnthropicProvider",
            "openai": "OpenAIProvider",
            "scripted": "ScriptedProvider",
            "trio_mcp.base.backoff": "Backoff",
            "trio_mcp.model_formats": (
                "Dumpable ModelMessage anthropic_request anthropic_result calls_from_anthropic calls_from_openai "
                "calls_from_openai_responses from_anthropic from_openai openai_request openai_result "
                "results_to_anthropic results_to_openai results_to_openai_responses to_anthropic to_openai "
                "tools_from_anthropic tools_from_openai tools_from_openai_responses tools_to_anthropic "
                "tools_to_openai tools_to_openai_responses"
            ),
            "trio_mcp.sampling": "SamplingProvider",
        },
    )
