"""Providers of sampling: what asks a model for servers, clients and proxies.

`AnthropicProvider` and `OpenAIProvider` use the official clients of the two APIs, which are extras, and are loaded when the first
provider is made. `ScriptedProvider` answers from a script, for tests.
"""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
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
        },
    )
