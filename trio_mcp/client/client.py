"""`Client`: what a program asks of one server, in whichever era it speaks."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from ..errors import CapabilityError
from ..session import AnyChannel, ChannelServer
from ..session.idle import OnProgress
from ..types import (
    CallToolResult,
    ClientCapabilities,
    CompleteResult,
    Completion,
    GetPromptResult,
    Implementation,
    JsonObject,
    JsonValue,
    LoggingLevel,
    NotificationParams,
    Prompt,
    ReadResourceResult,
    Reference,
    RequestParams,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from .asked import a_completion, a_filter, a_prompt, a_resource, a_tool
from .cache import CacheView, ResponseCache
from .calls import Calls, Manner
from .changes import Changes, OnChange
from .checks import known_level, known_mode, plain, seconds, within
from .handlers import Handlers, OnElicit, OnElicitUrl, OnLog, OnRoots, OnSample
from .hearing import Hearing
from .link import Link, Opening
from .lists import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, Listing, Lists
from .mirrors import Mirrors
from .promises import Promises
from .rounds import MAX_ROUNDS
from .target import reached, view_for

T = TypeVar("T")

PROBE_TIMEOUT = 5.0
"""Seconds that a server may take to say which era it speaks, before it is taken to be an old one."""


class Client:
    """A connection to an MCP server; made by `Client.connect`.

        async with Client.connect("http://localhost:8000/mcp", on_elicit=ask_me) as client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"})

    Its tasks run on their own, owned by the client and ended by `aclose`, so it may be opened in one task and closed in
    another, and a failing connection raises `Disconnected` in the calls that wait for it and nowhere else.

    Every call raises `PeerError` when the server answers with an error, `RequestTimeout` when it takes longer than its
    `timeout` (seconds), and `Disconnected` when the connection ends first. A cancel withdraws the call at the server.
    """

    def __init__(
        self,
        channel: AbstractAsyncContextManager[AnyChannel],
        handlers: Handlers,
        *,
        on_log: OnLog | None,
        log_level: LoggingLevel,
        mode: str,
        info: Implementation,
        probe_timeout: float,
        on_change: OnChange | None = None,
        cache: CacheView | None = None,
    ) -> None:
        self._handlers = handlers
        level = None if on_log is None else log_level
        cache = cache or CacheView(None, None, None)
        hearing = Hearing(on_log, on_change, cache)
        self._link = Link(channel, handlers, Opening(mode, info, probe_timeout), level, hearing.notified)
        self._listening = hearing.attach(self._link)
        mirrors, promises = Mirrors(), Promises()
        self._lists = Lists(self._link, cache, mirrors, promises)
        self._calls = Calls(self._link, handlers.answerers, cache, mirrors, promises, self._lists.refresh_tools)

    @classmethod
    def connect(
        cls,
        target: str | Sequence[str] | ChannelServer,
        *,
        on_elicit: OnElicit | None = None,
        on_elicit_url: OnElicitUrl | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        on_log: OnLog | None = None,
        on_change: OnChange | None = None,
        log_level: LoggingLevel = "info",
        mode: str = "auto",
        name: str = "trio_mcp",
        version: str = "0.1.0",
        probe_timeout: float = PROBE_TIMEOUT,
        cache: ResponseCache | None = None,
        principal: str | None = None,
        **options: object,
    ) -> Client:
        """A client for a URL, for a command to run (a list of arguments), or for a server object in this process.

        Args:
            on_elicit, on_elicit_url, on_sample, on_roots: what answers the server's questions; what is missing is not
                declared to it.
            on_log: called with each log message of `log_level` and above; without it none is asked for.
            on_change: called with each change the server tells of: in the handshake era as they come, in the modern era
                those that a `listen` of this client asked for.
            mode: "auto" finds out which era the server speaks; "modern", "legacy" (the newest revision of that era) or a
                revision such as "2025-06-18" decides it.
            probe_timeout: seconds before a silent server is taken to be of the handshake era, in which it has 30 more.
            cache: keeps what the server allows to be kept; clients of one URL may share it. None: nothing is kept.
            principal: as whom this client is known to the server, for what is kept for it alone. None: as the holder of the
                `headers` it sends, or as nobody else when it sends none.
            options: the transport's own, such as `headers` for HTTP and `env` for a command.

        `on_log` and `on_change` are plain functions, called in the task that reads from the server.

        Raises:
            TypeError, ValueError: an argument is not what it should be; nothing was started.
        """
        known_mode(mode)
        known_level("log_level", log_level)
        plain(on_log=on_log, on_change=on_change)
        seconds(probe_timeout=probe_timeout)
        handlers = Handlers(on_elicit, on_sample, on_roots, on_elicit_url)
        return cls(
            reached(target, options),
            handlers,
            on_log=on_log,
            on_change=on_change,
            log_level=log_level,
            mode=mode,
            info=Implementation(name=name, version=version),
            probe_timeout=probe_timeout,
            cache=view_for(cache, target, principal, options.get("headers"), handlers.capabilities),
        )

    # life

    async def open(self) -> Self:
        """Connect and find out what the server speaks; `async with` does it.

        Raises what the transport raises when it cannot connect, and see `open_conversation`. A cancel closes the client.
        """
        await self._link.open()
        return self

    async def aclose(self) -> None:
        """Close the connection, from any task, as often as you like; bounded, also when cancelled."""
        await self._link.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # lists

    async def list_tools(self, *, timeout: float = math.inf) -> list[Tool]:
        """Every tool the server offers, through all its pages.

        Raises `PeerError` with the code -32601 when the server has no tools at all; the other lists likewise.
        """
        return await self._whole(TOOLS, timeout)

    async def list_prompts(self, *, timeout: float = math.inf) -> list[Prompt]:
        """Every prompt."""
        return await self._whole(PROMPTS, timeout)

    async def list_resources(self, *, timeout: float = math.inf) -> list[Resource]:
        """Every resource that has a fixed URI."""
        return await self._whole(RESOURCES, timeout)

    async def list_resource_templates(self, *, timeout: float = math.inf) -> list[ResourceTemplate]:
        """Every template of resources."""
        return await self._whole(RESOURCE_TEMPLATES, timeout)

    def iter_tools(self, *, timeout: float = math.inf) -> AsyncGenerator[Tool]:
        """The tools one by one. A page is asked for when those before it are used up; `timeout` is for each page."""
        return self._items(TOOLS, timeout)

    def iter_prompts(self, *, timeout: float = math.inf) -> AsyncGenerator[Prompt]:
        """The prompts one by one, as `iter_tools`."""
        return self._items(PROMPTS, timeout)

    def iter_resources(self, *, timeout: float = math.inf) -> AsyncGenerator[Resource]:
        """The resources one by one, as `iter_tools`."""
        return self._items(RESOURCES, timeout)

    def iter_resource_templates(self, *, timeout: float = math.inf) -> AsyncGenerator[ResourceTemplate]:
        """The templates one by one, as `iter_tools`."""
        return self._items(RESOURCE_TEMPLATES, timeout)

    # calls

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None = None,
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
        max_rounds: int = MAX_ROUNDS,
        idle_timeout: float = math.inf,
    ) -> CallToolResult:
        """Call a tool and answer what it asks on the way.

        Args:
            timeout: seconds for the whole call, questions included.
            on_progress: a plain function, called with each report: `progress`, and `total` and `message` where there are.
            meta: more members for `_meta`.
            max_rounds: how often a modern server may ask.
            idle_timeout: seconds without a report of progress, for which the server is asked. What is answered here meanwhile
                does not count.

        Returns:
            its result; look at `is_error`, and at `text` or `structured_content`. Of a tool that was listed, the structured
            content is what its output schema says.
        """
        params = a_tool(name, arguments, meta)
        manner = Manner(on_progress, max_rounds, idle_timeout)
        return await within(timeout, name, partial(self._calls.tool, params, manner))

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
        max_rounds: int = MAX_ROUNDS,
        idle_timeout: float = math.inf,
    ) -> GetPromptResult:
        """Render a prompt, and answer what it asks on the way; the arguments are as for `call_tool`."""
        params = a_prompt(name, arguments, meta)
        manner = Manner(on_progress, max_rounds, idle_timeout)
        return await within(timeout, name, partial(self._calls.prompt, params, manner))

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float = math.inf,
        on_progress: OnProgress | None = None,
        meta: JsonObject | None = None,
        max_rounds: int = MAX_ROUNDS,
        idle_timeout: float = math.inf,
    ) -> ReadResourceResult:
        """Read a resource, and answer what it asks on the way; the arguments are as for `call_tool`."""
        params = a_resource(uri, meta)
        manner = Manner(on_progress, max_rounds, idle_timeout)
        return await within(timeout, uri, partial(self._calls.resource, params, manner))

    async def complete(
        self,
        ref: Reference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float = math.inf,
    ) -> Completion:
        """Values that an argument may take, given what there is of it.

        Args:
            ref: whose argument it is: `PromptReference(name=...)` or `ResourceTemplateReference(uri=...)`.
            context: the arguments that are settled already.
        """
        seconds(timeout=timeout)
        params = a_completion(ref, argument, value, context)
        result = await self._link.request("completion/complete", params, timeout=timeout)
        assert isinstance(result, CompleteResult)
        return result.completion

    async def ping(self, *, timeout: float = 30) -> None:
        """Ask for a sign of life, which takes `timeout` seconds at most. In the modern era this asks what the server is."""
        seconds(timeout=timeout)
        method = "server/discover" if self._link.session.modern else "ping"
        await self._link.request(method, RequestParams(), timeout=timeout)

    async def set_log_level(self, level: LoggingLevel, *, timeout: float = math.inf) -> None:
        """Say which log messages are wanted from now on: those of this level and above.

        A modern server hears it with every request; one of the handshake era is asked now, and may refuse (`PeerError`).
        """
        known_level("level", level)
        seconds(timeout=timeout)
        await self._link.set_log_level(level, timeout)

    # changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
    ) -> Changes:
        """Hear of changes: of the list of tools, prompts or resources, and of what the resources at `uris` hold.

            async with client.listen(tools=True) as changes:
                async for change in changes:
                    ...

        `changes.honoured` says what the server agreed to. Several may listen at once. See `Changes`.

        Raises:
            ValueError: nothing was asked for.
            TypeError: `uris` is one string.
        """
        return Changes(self._listening, a_filter(tools, prompts, resources, uris))

    async def subscribe(self, uri: str, *, timeout: float = math.inf) -> None:
        """Ask a server of the handshake era to tell of changes of a resource; `on_change` hears of them.

        Raises:
            CapabilityError: the server is a modern one, where `listen` does this.
        """
        self._needs_session("subscribe")
        await within(timeout, uri, partial(self._listening.subscribe, uri))

    async def unsubscribe(self, uri: str, *, timeout: float = math.inf) -> None:
        """Take a `subscribe` back. Raises as that does."""
        self._needs_session("unsubscribe")
        await within(timeout, uri, partial(self._listening.unsubscribe, uri))

    def roots_changed(self) -> None:
        """Tell the server that `on_roots` would answer something else now; it may ask again.

        A modern server is told nothing: it asks whenever it needs to know (L-ROOT-1c).
        """
        session = self._link.session
        if not session.modern:
            session.notify("notifications/roots/list_changed", NotificationParams())

    # what is known of the server

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken."""
        return self._link.facts.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is."""
        return self._link.facts.info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """What the server offers."""
        return self._link.facts.capabilities

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._link.facts.instructions

    @property
    def capabilities(self) -> ClientCapabilities:
        """What this client declares."""
        return self._handlers.capabilities

    def __repr__(self) -> str:
        return f"<Client {self._link!r}>"

    # one step each

    def _items(self, listing: Listing[T], timeout: float) -> AsyncGenerator[T]:
        seconds(timeout=timeout)
        return self._lists.items(listing, timeout)

    async def _whole(self, listing: Listing[T], timeout: float) -> list[T]:
        return await within(timeout, listing.method, partial(self._lists.whole, listing))

    def _needs_session(self, what: str) -> None:
        if self._link.session.modern:
            version = self.protocol_version
            raise CapabilityError(f"{what} is of the handshake era; {version} has Client.listen for it", {})
