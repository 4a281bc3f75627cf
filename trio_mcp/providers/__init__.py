"""Providers of sampling: what asks a model for servers, clients and proxies.

`AnthropicProvider` and `OpenAIProvider` use the official clients of the two APIs, which are extras, and are loaded when the first
provider is made. `ScriptedProvider` answers from a script, for tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .anthropic import AnthropicProvider
    from .openai import OpenAIProvider
    from .scripted import ScriptedProvider

__all__ = ["AnthropicProvider", "OpenAIProvider", "ScriptedProvider"]

_MODULES = {"AnthropicProvider": "anthropic", "OpenAIProvider": "openai", "ScriptedProvider": "scripted"}


def __getattr__(name: str) -> object:
    # Loaded late, so that a script for a test does not load what makes HTTP requests.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value
