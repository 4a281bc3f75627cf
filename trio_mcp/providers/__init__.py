"""Providers of sampling: what asks a model for servers, clients and proxies.

`AnthropicProvider` and `OpenAIProvider` use the official clients of the two APIs, which are extras, and are loaded when the first
provider is made. `ScriptedProvider` answers from a script, for tests.
"""

from .anthropic import AnthropicProvider
from .openai import OpenAIProvider
from .scripted import ScriptedProvider

__all__ = ["AnthropicProvider", "OpenAIProvider", "ScriptedProvider"]
