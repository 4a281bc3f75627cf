"""Requests that may take several rounds: calling a tool, rendering a prompt, reading a resource."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ..errors import PeerError
from ..protocol.jsonrpc import HEADER_MISMATCH
from ..session import Answerer
from ..session.idle import OnProgress
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputResponseRequestParams,
    Model,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from .cache import CacheView
from .checks import plain, seconds
from .link import Link
from .mirrors import Mirrors
from .promises import Promises
from .rounds import MAX_ROUNDS, Ask, Complete, request_in_rounds

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a call is made: who hears of its progress, how many rounds it may take, and for how many seconds it may be silent."""

    on_progress: OnProgress | None = None
    max_rounds: int = MAX_ROUNDS
    idle: float = math.inf

    def __post_init__(self) -> None:
        plain(on_progress=self.on_progress)
        seconds(idle_timeout=self.idle)
        if not self.idle:
            raise ValueError("idle_timeout is more than 0 seconds (math.inf for no end)")
        if isinstance(self.max_rounds, bool) or not isinstance(self.max_rounds, int):
            raise TypeError(f"max_rounds is a whole number, not {self.max_rounds!r:.80}")
        if self.max_rounds < 0:
            raise ValueError(f"max_rounds is a whole number from 0 on, not {self.max_rounds}")


class Calls:
    """The calls of one client, through all their rounds."""

    def __init__(
        self,
        link: Link,
        answerers: Mapping[str, Answerer],
        cache: CacheView,
        mirrors: Mirrors,
        promises: Promises,
        refresh_tools: Callable[[], Awaitable[None]],
    ) -> None:
        self._link = link
        self._answerers = answerers
        self._cache = cache
        self._mirrors = mirrors
        self._promises = promises
        self._refresh_tools = refresh_tools

    async def tool(self, params: CallToolRequestParams, manner: Manner) -> CallToolResult:
        complete = await self._in_rounds(self._with_headers(params, manner), params, manner)
        result = narrowed(complete.result, CallToolResult)
        self._promises.check(params.name, result)
        return result

    async def prompt(self, params: GetPromptRequestParams, manner: Manner) -> GetPromptResult:
        complete = await self._in_rounds(self._plainly("prompts/get", manner), params, manner)
        return narrowed(complete.result, GetPromptResult)

    async def resource(self, params: ReadResourceRequestParams, manner: Manner) -> ReadResourceResult:
        """What a resource holds; what took rounds is never kept, nor what more `_meta` was asked with (M-CACHE-2c)."""
        method = "resources/read"
        found = None if params.meta else self._cache.find(method, params.uri)
        if isinstance(found, ReadResourceResult):
            return found
        ticket = self._cache.ticket()
        complete = await self._in_rounds(self._plainly(method, manner), params, manner)
        result = narrowed(complete.result, ReadResourceResult)
        if not complete.rounds and not params.meta:
            self._cache.keep(method, params.uri, result, ticket)
        return result

    async def _in_rounds(self, ask: Ask, params: InputResponseRequestParams, manner: Manner) -> Complete:
        return await request_in_rounds(self._link.session, ask, params, self._answerers, manner.max_rounds)

    def _with_headers(self, call: CallToolRequestParams, manner: Manner) -> Ask:
        """Asks with the headers that the tool wants; when they were wrong, its schema was old (M-HTTP-7c)."""
        arguments = call.arguments or {}
        heard = partial(self._link.request, "tools/call", idle=manner.idle, on_progress=manner.on_progress)

        async def ask(params: InputResponseRequestParams) -> Model:
            headers = self._mirrors.headers(call.name, arguments)
            try:
                return await heard(params, headers=headers)
            except PeerError as error:
                if error.code != HEADER_MISMATCH:
                    raise
            await self._refresh_tools()
            headers = self._mirrors.headers(call.name, arguments)
            return await heard(params, headers=headers)

        return ask

    def _plainly(self, method: str, manner: Manner) -> Ask:
        async def ask(params: InputResponseRequestParams) -> Model:
            return await self._link.request(method, params, idle=manner.idle, on_progress=manner.on_progress)

        return ask


def narrowed(result: Model, kind: type[M]) -> M:
    """The codec decodes the result of a method to its one type; this tells the type checker."""
    assert isinstance(result, kind)
    return result
