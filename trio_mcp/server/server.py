"""`Server`: what an author declares, and how it is served."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from copy import copy
from functools import partial
from typing import TypeVar, overload

import trio

from ..protocol.jsonrpc import Encoded
from ..session import Envelope, Service, ServiceOptions, find_transport, open_service, serve_channel
from ..types import Implementation, JsonObject, ServerCapabilities, ToolAnnotations, ToolsCapability
from .router import Router
from .tool import ResumePolicy, Tool, ToolFunction, ToolOptions, make_tool

F = TypeVar("F", bound=ToolFunction)

__all__ = ["Server"]

COLLECT_AFTER = 10_000
"""New objects after which the collector looks at the youngest. A call makes some sixty, nearly all of them free at its end."""

MAX_THREADS = 100
"""Sync tools that may run at once, in threads of their own limiter."""


class Server:
    """An MCP server: a name, its tools, and the ways to serve them.

        server = Server("weather", version="1.0")

        @server.tool
        async def forecast(city: str) -> str:
            "Tomorrow's weather."
            return f"Sunny in {city}."

        server.run()                         # stdio
        server.run("http", port=8000)        # Streamable HTTP at /mcp

    Args:
        name: who this server is; also part of what seals its `requestState`, so all nodes of a deployment share it.
        instructions: how a model should use the server.
        options: limits and times.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        instructions: str | None = None,
        options: ServiceOptions | None = None,
    ) -> None:
        self.identity = Implementation(name=name, version=version, title=title)
        self.instructions = instructions
        self.options = options or ServiceOptions()
        self._router = Router(Encoded(self.identity.encode()))
        self._threads = trio.CapacityLimiter(MAX_THREADS)

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        timeout: float = math.inf,
        meta: JsonObject | None = None,
        resume: ResumePolicy = "auto",
    ) -> Callable[[F], F]: ...
    def tool(  # type: ignore[misc]  # mypy takes `fn` for a parameter that the second form lacks
        self,
        fn: F | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        timeout: float = math.inf,
        meta: JsonObject | None = None,
        resume: ResumePolicy = "auto",
    ) -> F | Callable[[F], F]:
        """Offer a function as a tool; used as `@server.tool` or `@server.tool(...)`. The function itself stays as it is.

        The schema of its arguments comes from the signature, its description from the docstring, its output schema from the
        return annotation. A parameter annotated `Context` is given the call's context. A plain `def` runs in a thread.

        Args:
            timeout: seconds after which a call is cancelled and its caller told.
            resume: what becomes of a call that waits for an answer when its process is gone. "replay": the body runs again,
                and what it had asked and done in a `ctx.step` returns at once. "parked": the call is lost and its caller told.
                "auto": replay if `annotations` say that it is read-only or idempotent, else parked.

        Raises:
            TypeError: the signature cannot be offered.
            ValueError: the name is taken, or is not one.
        """
        options = ToolOptions(name, title, description, annotations, timeout, meta, resume)

        def add(function: F) -> F:
            self._router.add_tool(make_tool(function, options, self._threads))
            return function

        return add if fn is None else add(fn)

    def with_options(self, options: ServiceOptions) -> Server:
        """The same server, tools included, under other limits and times."""
        other = copy(self)
        other.options = options
        return other

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order they are listed."""
        return tuple(self._router.tools)

    def run(self, transport: str = "stdio", **options: object) -> None:
        """Serve until told to stop, in a Trio loop of its own: `run()` on stdio, `run("http", port=8000)` over HTTP.

        Options are the transport's. Raises `LookupError` for a transport that is not installed.
        """
        # What was loaded until now lives as long as the process; the collector need not look at it after every few calls.
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        trio.run(partial(self.serve, transport, **options))

    async def serve(self, transport: str = "stdio", **options: object) -> None:
        """Serve over a transport until it ends or is told to stop; a cancel stops it, with a bounded clean-up."""
        await find_transport(transport).serve(self, **options)

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        """Serve one connection; returns when it has ended and its calls are cleaned up."""
        async with self.open_service() as service:
            await serve_channel(service, channel)

    def open_service(self) -> AbstractAsyncContextManager[Service]:
        """What a transport serves its connections with; `async with server.open_service() as service`."""
        capabilities = ServerCapabilities(logging={}, tools=ToolsCapability())
        return open_service(self._router.routes, self.identity, capabilities, self.instructions, self.options)

    def __repr__(self) -> str:
        return f"<Server {self.identity.name} {self.identity.version} tools={len(self.tools)}>"
