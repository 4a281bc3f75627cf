"""A provider that answers from a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import TypeAlias

import trio

from ..errors import ProviderError, ProviderErrorKind
from ..types import CreateMessageRequestParams, CreateMessageResult, TextContent

ScriptedAnswer: TypeAlias = str | CreateMessageResult | Exception
ScriptStep: TypeAlias = (
    ScriptedAnswer | Callable[[CreateMessageRequestParams], ScriptedAnswer | Awaitable[ScriptedAnswer]]
)
"""A text, a whole result, an exception to raise, or a function of the request, plain or async, that returns one of these."""

MODEL = "scripted"


class ScriptedProvider:
    """Answers the first request with the first step of a script, the next with the next.

    Args:
        script: the answers, in order.

    Attributes:
        requests: what was asked, in order, including requests for which there was no answer.
    """

    def __init__(self, script: Iterable[ScriptStep]) -> None:
        self._script = list(script)
        self.requests: list[CreateMessageRequestParams] = []

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        """Return the next answer of the script.

        Raises:
            ProviderError: the script has no more answers; the text has what was asked.
        """
        number = len(self.requests)
        self.requests.append(request)
        await trio.lowlevel.checkpoint()
        if number >= len(self._script):
            text = f"the script has {len(self._script)} answers, and this is request {number + 1}: {_last_message(request)}"
            raise ProviderError(text, kind=ProviderErrorKind.REJECTED)
        answer = await _answer(self._script[number], request)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, CreateMessageResult):
            return answer
        content = TextContent(text=answer)
        return CreateMessageResult(role="assistant", content=content, model=MODEL, stop_reason="endTurn")

    async def stream(self, request: CreateMessageRequestParams, on_text: Callable[[str], None]) -> CreateMessageResult:
        """Return the next answer of the script, after `on_text` was called with each text block of it."""
        result = await self.sample(request)
        for block in result.content if isinstance(result.content, list) else [result.content]:
            if isinstance(block, TextContent):
                on_text(block.text)
        return result

    def __repr__(self) -> str:
        return f"<ScriptedProvider: {len(self.requests)} requests, {len(self._script)} answers>"


async def _answer(step: ScriptStep, request: CreateMessageRequestParams) -> ScriptedAnswer:
    if isinstance(step, str | CreateMessageResult | Exception):
        return step
    answer = step(request)
    return await answer if isawaitable(answer) else answer


def _last_message(request: CreateMessageRequestParams) -> str:
    """Return the last message in few words, for the text of an error."""
    if not request.messages:
        return "no messages"
    message = request.messages[-1]
    blocks = message.content if isinstance(message.content, list) else [message.content]
    shown = [repr(block.text) if isinstance(block, TextContent) else block.type for block in blocks]
    return f"{message.role}: {', '.join(shown)}"[:500]
