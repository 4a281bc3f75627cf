"""A provider that answers from a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from inspect import isawaitable
from typing import TypeAlias, cast

import trio

from ..errors import ProviderError, ProviderErrorKind
from ..scripts import Script, Step, sample_result
from ..session.event_loop import at_home
from ..types import CreateMessageRequestParams, CreateMessageResult, TextContent

MODEL = "scripted"

ProviderScript: TypeAlias = Sequence[object] | Iterator[object] | Callable[[CreateMessageRequestParams], object]
"""Answers of the model, in order, or a function that answers every request."""


class ScriptedProvider:
    """Answers the first request with the first answer of a script, the next with the next.

    An answer is one of those that `MockClient(samples=)` takes, so that tests can share a script:

    - a string, a block such as `tool_use("search", query="fado")` of `trio_mcp.testing`, or a list of blocks;
    - a dict, a model or a dataclass with the data of a structured answer;
    - a `CreateMessageResult`, returned as it is;
    - an exception, which `sample` raises;
    - a function, plain or async, of the request, which returns any of these.

    It does not check the calls of tools: the program that asked has to.

    Args:
        script: a list of answers, or a function that answers every request.

    Attributes:
        requests: what was asked, in order, including requests for which there was no answer.

    Raises:
        TypeError: the script is neither, or has something that is not an answer.
    """

    def __init__(self, script: ProviderScript) -> None:
        self._script = Script("script", list(script) if isinstance(script, Iterator) else script)
        self.requests: list[CreateMessageRequestParams] = []

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        """Return the next answer of the script.

        Raises:
            ProviderError: the script has no more answers; the text has what was asked.
            TypeError: a function of the script returned something that is not an answer.
        """
        self.requests.append(request)
        step = self._script.take()
        await trio.lowlevel.checkpoint()
        if step is None:
            text = f"{self._script}, and this is request {len(self.requests)}: {_last_message(request)}"
            raise ProviderError(text, kind=ProviderErrorKind.REJECTED)
        answer = await _resolve(step, request)
        if isinstance(answer, Exception):
            raise answer
        return sample_result(step.name, answer, request, model=MODEL)

    async def stream(self, request: CreateMessageRequestParams, on_text: Callable[[str], None]) -> CreateMessageResult:
        """Return the next answer of the script, after `on_text` was called with each text block of it."""
        result = await self.sample(request)
        for block in result.content if isinstance(result.content, list) else [result.content]:
            if isinstance(block, TextContent):
                on_text(block.text)
        return result

    def check_used_up(self) -> None:
        """Raise `AssertionError` if an answer of the script was not used; the message names it."""
        left = self._script.left
        if left:
            unused = ", ".join(f"{step.name} ({step.answer!r:.200})" for step in left)
            raise AssertionError(f"the script was not used up: {unused} is left, after {_requests(self.requests)}")

    def __repr__(self) -> str:
        return f"<ScriptedProvider: {self._script}, {_requests(self.requests)}>"


async def _resolve(step: Step, request: CreateMessageRequestParams) -> object:
    """Return an answer of the script; of a function, what it returns."""
    answer = step.answer
    while callable(answer):
        answer = cast("Callable[[CreateMessageRequestParams], object | Awaitable[object]]", answer)(request)
        if isawaitable(answer):
            answer = await at_home(answer)
    return answer


def _requests(requests: Sequence[CreateMessageRequestParams]) -> str:
    count = len(requests)
    return f"{count} request{'' if count == 1 else 's'}"


def _last_message(request: CreateMessageRequestParams) -> str:
    """Return the last message in few words, for the text of an error."""
    if not request.messages:
        return "no messages"
    message = request.messages[-1]
    blocks = message.content if isinstance(message.content, list) else [message.content]
    shown = [repr(block.text) if isinstance(block, TextContent) else block.type for block in blocks]
    return f"{message.role}: {', '.join(shown)}"[:500]
