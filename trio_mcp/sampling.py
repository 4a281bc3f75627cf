"""The interface of a provider, which chooses a model and answers `sampling/createMessage` with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from . import types

SCHEMA_TOOL: Final = "__schema__"
"""The name of the tool by whose arguments a model gives a structured answer. No other tool may have it."""


@runtime_checkable
class SamplingProvider(Protocol):
    """Asks a model: the API of a vendor, a model on this machine, or a script in a test.

    A server uses one for clients that offer no model, a client to answer the servers it is connected to, and a proxy for both.
    """

    async def sample(self, request: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        """Return the model's answer.

        Tokens that the API reports are in `_meta` of the result: `{"usage": {"inputTokens": 12, "outputTokens": 3}}`.

        Raises:
            ProviderError: the model gave no answer; `kind` says why.

        A cancel ends the request to the API, and returns when its connection is closed.
        """
        ...


@runtime_checkable
class StreamingProvider(SamplingProvider, Protocol):
    """A provider that can show an answer while the model writes it."""

    async def stream(
        self, request: types.CreateMessageRequestParams, on_text: Callable[[str], None]
    ) -> types.CreateMessageResult:
        """Return the model's answer as `sample` does, and call `on_text` with each piece of its text as it arrives.

        A stream that breaks off raises `ProviderError`; what `on_text` was given by then is not an answer.
        """
        ...
