"""`Client`: a connection to one server, in either era."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Never, Self, TypeVar, Unpack, overload

import trio

from ..base.checks import check_choice, check_seconds, missing
from ..base.unawaited import unawaited
from ..errors import Disconnected
from ..protocol.codec.models import Dropped
from ..session import AnyChannel, ChannelServer
from ..session.event_loop import works_on_asyncio
from ..telemetry import open_telemetry
from ..types import (
    CallToolResult,
    ClientCapabilities,
    Completion,
    GetPromptResult,
    Implementation,
    LoggingLevel,
    ReadResourceResult,
    Reference,
    RequestParams,
    ServerCapabilities,
)
from ..types.log_levels import LOGGING_LEVELS
from .calls import Calls, CallSender
from .changes import Changes, subscription_filter
from .handlers import Handlers
from .link import Link
from .lists import ListedTools, Lists
from .options import (
    AS_GIVEN,
    OF_CLIENT,
    OF_CLIENTS,
    CallKeywords,
    ClientKeywords,
    ClientOptions,
    call_options,
    complete_params,
)
from .requester import opened_when_free, run_with_timeout
from .sampling import sampling_handler
from .target import cache_view, connectable, open_lasting_target
from .task_methods import TaskMethods, value_reader
from .tasks.calls import TaskCalls

T = TypeVar("T")

BOTH_FAILED: Final = "the block of the client and the server in this process failed"


class Client(TaskMethods):
    """A connection to an MCP server; `Client.connect` returns one.

        async with Client.connect("http://localhost:8000/mcp", on_elicit=ask_me) as client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"})

    Its tasks belong to the client and end with `aclose`, so it may be opened in one task and closed in another. If the
    connection fails, only the calls that wait for it raise `Disconnected`. If the server runs in this process, the `async with`
    block also raises what the server raises while it serves, or at the end of its lifespan.

    Every call raises `PeerError` if the server answers with an error, `RequestTimeout` if it takes longer than its
    `timeout` (seconds), and `Disconnected` if the connection ends first. Cancelling a call cancels it on the server.
    """

    # This class is the public surface and nothing else: it documents, and passes on to one of three parts. `Link` owns the
    # tasks and the session, `Lists` reads pages, `Calls` drives what may take rounds. The timeouts are here or in `Calls`, so
    # that each method has exactly one scope that limits all of it.

    def __init__(
        self,
        channel: AbstractAsyncContextManager[AnyChannel] | None = None,
        options: ClientOptions | None = None,
        **others: Never,
    ) -> None:
        # For those who expect the class to connect.
        if channel is None or not isinstance(options, ClientOptions) or others:
            raise TypeError(
                "write Client.connect(target, ...) instead of Client(...), as in `async with Client.connect(server) as client:`; "
                "the target is a URL, a command or a server, and connect() takes the options"
            )
        self._options = options
        self._target: object = None
        self._transport_options: Mapping[str, object] = {}
        self._connect: Callable[[], AbstractAsyncContextManager[AnyChannel]] | None = None
        self._link = Link(channel, options)
        tools = ListedTools(self._link.dropped)
        self._lists = Lists(self._link, options.cache, tools)
        self._tasks = TaskCalls(self._link, tools, self._lists.refresh_tools)
        self._calls = Calls(
            self._link, options, tools, CallSender(self._link, tools, self._lists.refresh_tools), self._tasks
        )

    @classmethod
    def connect(
        cls,
        target: str | os.PathLike[str] | Sequence[str] | ChannelServer,
        **options: Unpack[ClientKeywords],
    ) -> Client:
        """Return a client for a URL, a command to run, a Python file with a server, or a server object in this process.

        Args:
            target: a command is a list of arguments; a file is `FILE.py` or `FILE.py:name`, or a `Path`, and runs in a process.
            on_elicit, on_elicit_url, on_sample, on_roots: answer the server's questions. The client declares only the
                capabilities whose handler is given.
            sample_tools, sample_context: whether `on_sample` takes tools, and the context of servers; both are declared.
            sampling: asks a model to answer the server's samples, tools included, in place of `on_sample`.
            approve_sample: called with each request for `sampling` and the server's name; returns True, False or another request.
            on_log: called with each log message of `log_level`, by default "info", and above; without it none is requested.
                Like `on_change`, it is a plain function, called in the task that reads from the server.
            on_change: called with each change that the server reports. A modern server reports only those that a `listen` of this
                client requested.
            on_disconnect: a plain function, called with the reason when the connection, its session or a stream of changes was
                lost, perhaps more than once. The next request connects again, unless `reconnect` is False.
            mode: "auto", the default, detects which era the server speaks. "modern" or "legacy" chooses the newest revision of an
                era, and a revision such as "2025-06-18" exactly that one.
            name, version: of this client, for the server; "trio_mcp" and "0.1.0" by default.
            probe_timeout: seconds without a response after which the client assumes a legacy server (5 by default). The server
                then has 30 more seconds.
            cache: stores responses for as long as the server allows; several clients may share it. None, the default, caches
                nothing.
            principal: cache partition for private responses; defaults to a digest of `headers`, or to `auth` or the function
                that returns the headers.
            raise_exceptions: for tests with a server object: a call raises the unexpected exception of the server's function,
                instead of returning or raising its error.
            max_handlers: handlers that run at once (64 by default). A legacy server that asks more gets an error, a modern one
                waits.
            handler_timeout: seconds that a handler may take; then its question fails. Without a limit by default.
            reconnect: start a command again, or open a WebSocket again, when its connection breaks off and a request needs it;
                True by default.
            wait_if_busy: seconds in which a request, or the opening of a WebSocket, is tried again while the server answers 429
                or 503, after the time of its `Retry-After` or with growing delays, before it raises `ServerBusy`. The time that
                the attempts take counts. 0, the default, tries once.
            telemetry: make spans and metrics, if the program uses OpenTelemetry; True by default.
            telemetry_content: show arguments, results and the URIs of resources in spans, which may be secret.
            options: options of the transport, such as `headers` and `auth` for HTTP and `env` for a command.

        Raises:
            TypeError, ValueError: an argument is invalid; nothing was started.
        """
        found = connectable(target)
        of_transport = {name: value for name, value in options.items() if name not in OF_CLIENTS}
        made = client_options(found, options)
        connect = channel_opener(found, of_transport, options)
        client = cls(connect(), made)
        client._target, client._transport_options, client._connect = target, of_transport, connect
        return client

    def new_channel(self) -> AbstractAsyncContextManager[AnyChannel]:
        """Return a context manager that opens one more channel to the target of this client, with its transport options.

        Raises:
            TypeError: the client was not made by `Client.connect`.
        """
        if self._connect is None:
            raise TypeError("only a client that Client.connect has made knows its target")
        return self._connect()

    @property
    def target(self) -> object:
        """What it connects to, as `Client.connect` was given it; None for a client that was made of a channel."""
        return self._target

    @property
    def transport_options(self) -> Mapping[str, object]:
        """The options of its transport, as `Client.connect` was given them."""
        return self._transport_options

    @property
    def dropped(self) -> Sequence[Dropped]:
        """The items dropped from the server's lists and results because they were invalid, with kind, name and reason.

        The rest of the list or the result was returned. A tool with invalid `x-mcp-header` annotations is here too.
        """
        return tuple(self._link.dropped.members)

    # life

    @works_on_asyncio
    async def open(self) -> Self:
        """Connect, detect which era the server speaks, and return the client; `async with` calls this.

        Raises:
            PeerError, RequestTimeout, Disconnected, RemoteProtocolError: the server did not open a session.

        If the transport cannot connect, its own error is raised. A cancel closes the client.
        """
        await self._link.open()
        return self

    @works_on_asyncio
    async def aclose(self) -> None:
        """Close the connection. May be called from any task and more than once; ends in bounded time, even if cancelled.

        Raises:
            Exception: what the server raised while it served, or at the end of its lifespan, if it runs in this process.
            SystemExit: a handler of a legacy server's question has raised it; in a call to a modern server the call raises it.
        """
        await self._link.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception as failure:
            # What the block raised must not be lost, above all a cancel. `Disconnected` is how it met the failure itself.
            if error is None or isinstance(error, Disconnected):
                raise
            raise BaseExceptionGroup(BOTH_FAILED, [error, failure]) from None

    # calls

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> CallToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: type[T],
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> T: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object: ...
    @unawaited("client.call_tool")
    @works_on_asyncio
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object = None,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object:
        """Call a tool, answer the questions that it asks, and return its result.

        A tool may run as a task: the client follows it to its end, also if a request about it is lost on the way.

        Args:
            returns: the type of the value to return instead of the result, such as `list[Hit]`; validated by pydantic. For type
                checkers a union is not a type: the value of `returns=int | None` is an `object` to them, unless you write
                `returns=cast("type[int | None]", int | None)`.
            raise_on_error: raise `ToolFailed` if the result is an error, as with `returns`.
            task: with a server of 2025-11-25, run the tool as a task if it allows that. A tool that must run as one needs no
                `task=True`, and a modern server decides by itself.
            timeout: seconds for the whole call, questions included; without a limit by default.
            on_progress: a plain function, called with each report: `progress`, and `total` and `message` if they were sent.
            meta: more members for `_meta`.
            max_rounds: how many times a modern server may ask before the result (10 by default); then `LimitExceeded` is raised.
            idle_timeout: seconds without a progress report after which the call is cancelled; without a limit by default. The
                time in which this client answers a question does not count.

        Returns:
            the result; check `is_error`, then read `data`, `text` or `structured_content`. If the tool was listed, the structured
            content was validated against its output schema.

        Raises:
            RemoteProtocolError: the result does not match the output schema, or `returns`.
            ToolFailed: the result is an error; only with `returns` or `raise_on_error`.
            TaskCancelled: the task that it ran as was cancelled at the server.
            CapabilityError: with `task=True`, the tool cannot run as a task.
            TypeError: pydantic cannot validate `returns`; nothing was sent.

        A cancel or a timeout also cancels the task.
        """
        read = None if returns is None else value_reader(returns)
        result = await self._calls.tool(name, arguments, call_options("call_tool", name, options), as_task=task)
        if read is not None:
            return read(name, result.check())
        return result.check() if raise_on_error else result

    @unawaited("client.get_prompt")
    @works_on_asyncio
    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Return a prompt, after answering its questions; the keyword arguments are those of `call_tool`."""
        return await self._calls.prompt(name, arguments, call_options("get_prompt", name, options))

    @unawaited("client.read_resource")
    @works_on_asyncio
    async def read_resource(self, uri: str, **options: Unpack[CallKeywords]) -> ReadResourceResult:
        """Return the contents of a resource, after answering its questions; the keyword arguments are those of `call_tool`."""
        return await self._calls.resource(uri, call_options("read_resource", uri, options))

    @unawaited("client.complete")
    @works_on_asyncio
    async def complete(
        self,
        ref: Reference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float = math.inf,
    ) -> Completion:
        """Return the server's suggestions for an argument that the user has begun to type.

        Args:
            ref: the prompt or template that has the argument: `PromptReference(name=...)` or
                `ResourceTemplateReference(uri=...)`.
            value: the text typed so far.
            context: the values of the other arguments that are already known.
        """
        return await self._calls.completion(complete_params(ref, argument, value, context), timeout)

    @unawaited("client.ping")
    @works_on_asyncio
    async def ping(self, *, timeout: float = 30) -> None:
        """Send a request that every server answers: `ping`, or `server/discover` to a modern server."""
        check_seconds("timeout", timeout)
        await self._link.request(self._link.dialect.ping_method, RequestParams(), timeout=timeout)

    @unawaited("client.set_log_level")
    @works_on_asyncio
    async def set_log_level(self, level: LoggingLevel, *, timeout: float = math.inf) -> None:
        """Request log messages of this level and above from now on.

        A modern server receives the level with each later request. A legacy server receives a request now, and may reject it
        (`PeerError`).
        """
        check_choice("level", level, LOGGING_LEVELS)
        check_seconds("timeout", timeout)
        await self._link.dialect.set_log_level(self._link, level, timeout)

    # changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
    ) -> Changes:
        """Subscribe to changes: of the list of tools, prompts or resources, and of the content of the resources at `uris`.

            async with client.listen(tools=True) as changes:
                async for change in changes:
                    ...

        `changes.honoured` says which changes the server will report. Several tasks may listen concurrently. See `Changes`.

        Raises:
            ValueError: no list and no URI was given.
            TypeError: `uris` is one string.
        """
        # A function, because the listeners depend on the era, which is not known before the client is open.
        return Changes(lambda: self._link.dialect.listeners, subscription_filter(tools, prompts, resources, uris))

    @unawaited("client.subscribe")
    @works_on_asyncio
    async def subscribe(self, uri: str, *, timeout: float = math.inf) -> None:
        """Subscribe to changes of one resource at a legacy server; `on_change` is called with them.

        Raises:
            CapabilityError: the server is a modern one, where `listen` does this.
        """
        await run_with_timeout(timeout, uri, partial(self._link.dialect.listeners.subscribe, uri))

    @unawaited("client.unsubscribe")
    @works_on_asyncio
    async def unsubscribe(self, uri: str, *, timeout: float = math.inf) -> None:
        """End a subscription made with `subscribe`. Raises the same errors."""
        await run_with_timeout(timeout, uri, partial(self._link.dialect.listeners.unsubscribe, uri))

    def roots_changed(self) -> None:
        """Notify the server that `on_roots` would return something else now, so that it can ask again.

        Nothing is sent to a modern server, which asks whenever it needs the roots (L-ROOT-1c).
        """
        self._link.dialect.announce_changed_roots()

    # about the server

    @property
    def _opened_in(self) -> trio.lowlevel.TrioToken | None:
        """The Trio run in which it is open, and in which alone it can be used."""
        return self._link.opened_in

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent: the client was opened, was not closed, and can reach its server or connect again."""
        return self._link.is_connected

    @property
    def protocol_version(self) -> str:
        """The revision that client and server agreed on."""
        return self._link.facts.protocol_version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version of the server, or None if it did not send them."""
        return self._link.facts.info

    @property
    def server_capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declared."""
        return self._link.facts.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for the model, or None."""
        return self._link.facts.instructions

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that this client declares."""
        return self._options.handlers.capabilities

    def __repr__(self) -> str:
        return f"<Client {self._link!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise missing("Client", name, OF_CLIENT)


def client_options(target: object, given: ClientKeywords) -> ClientOptions:
    """Return the options of a client of `target`. Raises what `Client.connect` does."""
    sampling = given.get("sampling")
    observed = open_telemetry(content=given.get("telemetry_content", False)) if given.get("telemetry", True) else None
    handlers = Handlers(
        given.get("on_elicit"),
        sampling_handler(given.get("on_sample"), sampling, given.get("approve_sample")),
        given.get("on_roots"),
        given.get("on_elicit_url"),
        given.get("sample_tools", False) or sampling is not None,
        given.get("sample_context", False),
        given.get("handler_timeout", math.inf),
        observed,
    )
    headers, auth = given.get("headers"), given.get("auth")
    return ClientOptions(
        info=Implementation(name=given.get("name", "trio_mcp"), version=given.get("version", "0.1.0")),
        handlers=handlers,
        cache=cache_view(given.get("cache"), target, given.get("principal"), headers, handlers.capabilities, auth),
        telemetry=observed,
        **{name: value for name, value in given.items() if name in AS_GIVEN},  # type: ignore[arg-type]  # it checks each
    )


def channel_opener(
    target: object, of_transport: Mapping[str, object], given: ClientKeywords
) -> Callable[[], AbstractAsyncContextManager[AnyChannel]]:
    """Return a function that opens a channel to the target of a client, with these options of its transport."""
    if given.get("raise_exceptions", False):
        of_transport = {**of_transport, "raise_exceptions": True}
    # For the error of an option that no transport has.
    names = OF_CLIENTS if of_transport else ()
    reconnect, probed = given.get("reconnect", True), given.get("mode", "auto") == "auto"
    connect = partial(open_lasting_target, target, of_transport, names, reconnect=reconnect, probed=probed)
    seconds = given.get("wait_if_busy", 0.0)
    return partial(opened_when_free, connect, seconds) if seconds else connect
