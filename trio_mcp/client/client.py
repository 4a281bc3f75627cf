"""`Client`: a connection to one server, in whichever era it speaks."""

from __future__ import annotations

import contextvars
import logging
import math
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import trio
from sniffio import current_async_library

from ..errors import Disconnected, RequestTimeout
from ..session import ChannelServer, ClientSession, Envelope, find_transport
from ..session.client import OnProgress
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    Implementation,
    JsonObject,
    JsonValue,
    ListToolsResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    Model,
    PaginatedRequestParams,
    RequestParams,
    ServerCapabilities,
    Tool,
)
from .handlers import Handlers, OnElicit, OnLog, OnRoots, OnSample
from .opening import ServerFacts, ask_for_logs, open_conversation
from .rounds import MAX_ROUNDS, request_in_rounds

__all__ = ["Client"]

logger = logging.getLogger("trio_mcp.client")

PROBE_TIMEOUT = 5.0
"""Seconds that a server may take to say which era it speaks, before it is taken to be an old one."""

CLOSE_TIMEOUT = 15.0
"""Seconds that closing may take: a child process is asked to end, then told, then killed."""

MAX_PAGES = 1000
"""Pages of a list that are read before a server is taken to go on for ever."""


class Client:
    """A connection to an MCP server; made by `Client.connect`.

        async with Client.connect("http://localhost:8000/mcp", on_elicit=ask_me) as client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"})

    Its tasks run on their own, owned by the client and ended by `aclose`, so it may be opened in one task and closed in
    another, and a failing connection raises `Disconnected` in the calls that wait for it and nowhere else.
    """

    def __init__(
        self,
        channel: AbstractAsyncContextManager[trio.abc.Channel[Envelope]],
        handlers: Handlers,
        *,
        on_log: OnLog | None,
        log_level: LoggingLevel,
        mode: str,
        info: Implementation,
        probe_timeout: float,
    ) -> None:
        self._channel = channel
        self._handlers = handlers
        self._on_log = on_log
        self._log_level: LoggingLevel = log_level
        self._mode = mode
        self._info = info
        self._probe_timeout = probe_timeout
        self._session: ClientSession | None = None
        self._server: ServerFacts | None = None
        self._failure: Exception | None = None
        self._scope = trio.CancelScope()
        self._started = False
        self._ready = trio.Event()
        self._closing = trio.Event()
        self._done = trio.Event()

    @classmethod
    def connect(
        cls,
        target: str | Sequence[str] | ChannelServer,
        *,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        on_log: OnLog | None = None,
        log_level: LoggingLevel = "info",
        mode: str = "auto",
        name: str = "trio_mcp",
        version: str = "0.1.0",
        probe_timeout: float = PROBE_TIMEOUT,
        **options: object,
    ) -> Client:
        """A client for a URL, for a command to run (a list of arguments), or for a server object in this process.

        Args:
            on_elicit, on_sample, on_roots: what answers the server's questions; what is missing is not declared to it.
            on_log: called with each log message of `log_level` and above; without it none is asked for.
            mode: "auto" finds out which era the server speaks; "legacy" or a revision such as "2026-07-28" decides it.
            probe_timeout: seconds before a silent server is taken to be of the handshake era.
            options: the transport's own, such as `headers` for HTTP and `env` for a command.

        Raises:
            TypeError: the target is none of these.
        """
        transport = find_transport(transport_name(target))
        return cls(
            transport.connect(target, **options),
            Handlers(on_elicit, on_sample, on_roots),
            on_log=on_log,
            log_level=log_level,
            mode=mode,
            info=Implementation(name=name, version=version),
            probe_timeout=probe_timeout,
        )

    # life

    async def open(self) -> Self:
        """Connect and find out what the server speaks; `async with` does it.

        Raises what the transport raises when it cannot connect, and see `open_conversation`. A cancel closes the client.
        """
        if (library := current_async_library()) != "trio":
            raise RuntimeError(f"trio_mcp runs on Trio, not on {library}: start your program with trio.run")
        self._started = True
        trio.lowlevel.spawn_system_task(self._main, name=f"{self!r}", context=contextvars.copy_context())
        try:
            await self._ready.wait()
        except trio.Cancelled:
            self._scope.cancel()
            raise
        if self._failure is not None:
            await self.aclose()
            raise self._failure
        return self

    async def aclose(self) -> None:
        """Close the connection, from any task, as often as you like; bounded, also when cancelled."""
        self._closing.set()
        if self._started:
            await self._wait_closed()
        await trio.lowlevel.checkpoint()

    async def _wait_closed(self) -> None:
        with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._done.wait()
        self._scope.cancel()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # calls

    async def list_tools(self) -> list[Tool]:
        """Every tool the server offers, through all its pages."""
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._request("tools/list", PaginatedRequestParams(cursor=cursor))
            assert isinstance(page, ListToolsResult)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None = None,
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
        max_rounds: int = MAX_ROUNDS,
    ) -> CallToolResult:
        """Call a tool and answer what it asks on the way.

        Args:
            timeout: seconds for the whole call, questions included.
            on_progress: called with each progress report.
            meta: more members for `_meta`.
            max_rounds: how often a modern server may ask.

        Returns:
            its result; look at `is_error`, and at `text` or `structured_content`.

        Raises:
            PeerError: the server refused the call, for example because there is no such tool.
            RequestTimeout: it took longer than `timeout`.
            Disconnected: the connection ended first.

        A cancel cancels the call at the server.
        """
        params = CallToolRequestParams(name=name, arguments=dict(arguments or {}), meta=meta)
        session = self._connected()
        with trio.move_on_after(timeout):
            result = await request_in_rounds(
                session,
                "tools/call",
                params,
                self._handlers.answerers,
                on_progress=on_progress,
                max_rounds=max_rounds,
            )
            assert isinstance(result, CallToolResult)
            return result
        raise RequestTimeout(f"{name} did not finish within {timeout:g} seconds; it was cancelled at the server")

    async def ping(self, *, timeout: float = 30) -> None:
        """Ask for a sign of life, which takes `timeout` seconds at most. In the modern era this asks what the server is."""
        modern = bool(self._connected().stamp)
        await self._request("server/discover" if modern else "ping", RequestParams(), timeout=timeout)

    # what is known of the server

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken."""
        return self._facts().protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is."""
        return self._facts().info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self._facts().capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._facts().instructions

    @property
    def capabilities(self) -> ClientCapabilities:
        """What this client declares."""
        return self._handlers.capabilities

    def __repr__(self) -> str:
        state = "closed" if self._done.is_set() else "open" if self._ready.is_set() else "opening"
        version = f" {self._server.protocol_version}" if self._server else ""
        return f"<Client {state}{version}>"

    # one step each

    async def _request(self, method: str, params: RequestParams, *, timeout: float | None = None) -> Model:
        return await self._connected().request(method, params, timeout=timeout)

    def _connected(self) -> ClientSession:
        if self._session is None or self._closing.is_set():
            raise Disconnected("the client is not open")
        return self._session

    def _facts(self) -> ServerFacts:
        if self._server is None:
            raise Disconnected("the client is not open")
        return self._server

    def _notified(self, _method: str, params: Model) -> None:
        if isinstance(params, LoggingMessageNotificationParams) and self._on_log is not None:
            self._on_log(params)

    async def _main(self) -> None:
        """The client's own task: everything it runs is below here, and nothing but a cancel leaves it."""
        try:
            with self._scope:
                await self._serve()
        except BaseException as error:  # noqa: BLE001, ASYNC103  an exception that leaves a system task ends Trio's loop
            self._contain(error)
        finally:
            if not self._ready.is_set() and self._failure is None:
                self._failure = Disconnected("the client was closed while it opened")
            self._ready.set()
            self._done.set()

    def _contain(self, error: BaseException) -> None:
        """Keep an error for `open` to raise; send a Ctrl-C that hit one of the client's tasks on to the main task."""
        cancelled, rest = split(error, trio.Cancelled)
        interrupted, rest = split(rest, KeyboardInterrupt)
        if interrupted is not None:
            signal.raise_signal(signal.SIGINT)  # this task is protected from it, so Trio hands it to the main task
        if isinstance(rest, Exception):
            self._failure = leaf(rest)
        elif rest is not None:
            logger.error("the client ended", exc_info=rest)
        if cancelled is not None:
            raise cancelled

    async def _serve(self) -> None:
        async with self._channel as channel, trio.open_nursery() as nursery:
            session = self._session = ClientSession(channel, self._handlers.answerers, self._notified)
            nursery.start_soon(session.run, nursery)
            self._server = await open_conversation(
                session, self._mode, self._handlers.capabilities, self._info, self._probe_timeout
            )
            if self._on_log is not None:
                await ask_for_logs(session, self._server.capabilities, self._log_level)
            self._ready.set()
            await self._closing.wait()
            await session.flush()
            nursery.cancel_scope.cancel()


def transport_name(target: object) -> str:
    """Which transport reaches a target."""
    if isinstance(target, str):
        if target.startswith(("http://", "https://")):
            return "http"
        raise TypeError(f"{target!r} is not an http(s) URL; a command is a list of arguments, such as [{target!r}]")
    if isinstance(target, Sequence):
        return "stdio"
    if hasattr(target, "serve_channel"):
        return "memory"
    raise TypeError(f"connect to a URL, a list of arguments or a server, not to {type(target).__name__}")


def split(error: BaseException | None, kind: type[BaseException]) -> tuple[BaseException | None, BaseException | None]:
    """The part of an error that is of a kind, and the rest."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)
    return (error, None) if isinstance(error, kind) else (None, error)


def leaf(error: Exception) -> Exception:
    """The one exception in a group, however deep; the group when there are several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
