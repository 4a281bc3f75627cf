"""`SyncClient`: the client for code without `async`."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack, cast, overload

import trio

from ..errors import Disconnected
from ..protocol.codec.models import Dropped
from ..session import ChannelServer
from ..session.event_loop import HOME
from ..types import (
    CallToolResult,
    Completion,
    GetPromptResult,
    Implementation,
    LoggingLevel,
    Prompt,
    ReadResourceResult,
    Reference,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from .client import Client
from .options import CallKeywords, ClientKeywords

T = TypeVar("T")

NOT_OPEN = "the client is not open: call it inside `with SyncClient.connect(...) as client:`"


class SyncClient:
    """A connection to an MCP server for scripts, and for other code without `async`.

        with SyncClient.connect("http://localhost:8000/mcp") as client:
            result = client.call_tool("book_flight", {"destination": "Lisbon"}, timeout=5)

    Its methods are those of `Client` and block until they have a result; several threads may call them. The client itself runs on
    Trio in a thread, where its handlers are called, too. Ctrl-C cancels the call that waits.

    Use `Client` in async code, and for tasks and for streams of changes. In a running asyncio loop, such as that of a notebook, a
    `SyncClient` blocks the loop; a server in the same loop would never answer.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: TrioThread | None = None

    @classmethod
    def connect(
        cls, target: str | os.PathLike[str] | Sequence[str] | ChannelServer, **options: Unpack[ClientKeywords]
    ) -> Self:
        """Return a client that is not open. The arguments, and what they raise, are those of `Client.connect`."""
        return cls(Client.connect(target, **options))

    # life

    def open(self) -> Self:
        """Connect, and return the client; `with` calls this. Raises what `Client.open` raises.

        Raises:
            RuntimeError: this runs on Trio, which it would block; or the client was opened before.
        """
        if trio.lowlevel.in_trio_task():
            raise RuntimeError("SyncClient would block Trio, which runs here: use Client")
        if self._thread is not None:
            raise RuntimeError("a client is opened once: make another one with SyncClient.connect")
        self._thread = TrioThread()
        try:
            self._run(self._client.open)
        except BaseException:
            self._thread.end()
            raise
        return self

    def close(self) -> None:
        """Close the connection and end the thread. Raises what `Client.aclose` raises. Idempotent."""
        self._leave(self._client.aclose)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(partial(self._client.__aexit__, kind, error, traceback))

    # calls

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> CallToolResult: ...
    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: type[T],
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> T: ...
    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object: ...
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object = None,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object:
        """Call a tool, and return its result. See `Client.call_tool`."""
        call = partial(self._client.call_tool, name, arguments, task=task, **options)
        if returns is not None:
            return self._run(partial(call, returns=returns))
        return self._run(partial(call, raise_on_error=raise_on_error))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Return a prompt. See `Client.get_prompt`."""
        return self._run(partial(self._client.get_prompt, name, arguments, **options))

    def read_resource(self, uri: str, **options: Unpack[CallKeywords]) -> ReadResourceResult:
        """Return the contents of a resource. See `Client.read_resource`."""
        return self._run(partial(self._client.read_resource, uri, **options))

    def complete(
        self,
        ref: Reference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float = math.inf,
    ) -> Completion:
        """Return suggestions for an argument. See `Client.complete`."""
        return self._run(partial(self._client.complete, ref, argument, value, context=context, timeout=timeout))

    def ping(self, *, timeout: float = 30) -> None:
        """Send a request that every server answers. See `Client.ping`."""
        self._run(partial(self._client.ping, timeout=timeout))

    def set_log_level(self, level: LoggingLevel, *, timeout: float = math.inf) -> None:
        """Request log messages of this level and above from now on. See `Client.set_log_level`."""
        self._run(partial(self._client.set_log_level, level, timeout=timeout))

    # lists

    def list_tools(self, *, timeout: float = math.inf) -> list[Tool]:
        """Return every tool. See `Client.list_tools`."""
        return self._run(partial(self._client.list_tools, timeout=timeout))

    def list_prompts(self, *, timeout: float = math.inf) -> list[Prompt]:
        """Return every prompt."""
        return self._run(partial(self._client.list_prompts, timeout=timeout))

    def list_resources(self, *, timeout: float = math.inf) -> list[Resource]:
        """Return every resource that has a fixed URI."""
        return self._run(partial(self._client.list_resources, timeout=timeout))

    def list_resource_templates(self, *, timeout: float = math.inf) -> list[ResourceTemplate]:
        """Return every resource template."""
        return self._run(partial(self._client.list_resource_templates, timeout=timeout))

    # about the server

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent. See `Client.is_open`."""
        return self._thread is not None and self._client.is_open

    @property
    def protocol_version(self) -> str:
        """The revision that client and server agreed on."""
        return self._client.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version of the server, or None if it did not send them."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declared."""
        return self._client.server_capabilities

    @property
    def dropped(self) -> Sequence[Dropped]:
        """The invalid items that were dropped from the server's lists and results. See `Client.dropped`."""
        return self._client.dropped

    @property
    def instructions(self) -> str | None:
        """The server's instructions for the model, or None."""
        return self._client.instructions

    def __repr__(self) -> str:
        return f"<SyncClient of {self._client!r}>"

    def _leave(self, leave: Callable[[], Awaitable[None]]) -> None:
        if self._thread is None or self._thread.has_ended:
            return
        try:
            self._thread.run(leave)
        finally:
            self._thread.end()

    def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        if self._thread is None:
            raise Disconnected(NOT_OPEN)
        return self._thread.run(function)


class TrioThread:
    """A Trio run in a thread, for functions that other threads wait for."""

    def __init__(self) -> None:
        self._stop = trio.Event()
        started: Future[trio.lowlevel.TrioToken] = Future()
        # A daemon, so that a script ends that has not closed its client.
        self._thread = threading.Thread(
            target=trio.run, args=(self._main, started), name="trio_mcp SyncClient", daemon=True
        )
        self._thread.start()
        self._token = started.result()

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run a function on Trio, and return what it returns. Ctrl-C in this thread cancels it, and is raised after its end.

        Raises:
            Disconnected: the thread has ended.
        """
        scope, ended = trio.CancelScope(), threading.Event()
        has_begun = False

        def cancel() -> None:
            scope.cancel()
            # The interrupt may have come before it was asked for, or its task has yet to run, and ends at once.
            if not has_begun:
                ended.set()

        async def run() -> T | None:
            nonlocal has_begun
            has_begun = True
            try:
                with scope:
                    return await function()
                return None
            finally:
                ended.set()

        context = copy_context()
        # The functions of the program have no other home than this thread.
        context.run(HOME.set, None)
        try:
            # None only if an interrupt has cancelled it, which is raised here.
            return cast("T", context.run(partial(trio.from_thread.run, run, trio_token=self._token)))
        except KeyboardInterrupt:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(cancel)
                ended.wait()
            raise
        except (trio.RunFinishedError, trio.Cancelled):
            raise Disconnected(NOT_OPEN) from None  # noqa: ASYNC104  this thread has no Trio: the run that was asked has ended

    def end(self) -> None:
        """End the run, and wait for the thread. Idempotent."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)
        self._thread.join()

    async def _main(self, started: Future[trio.lowlevel.TrioToken]) -> None:
        started.set_result(trio.lowlevel.current_trio_token())
        await self._stop.wait()
