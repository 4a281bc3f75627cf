"""Registering what a server offers: `@server.tool`, `@server.resource`, `@server.prompt`, `@server.complete`, and removing it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import FunctionType
from typing import ParamSpec, TypeVar, Unpack, overload
from weakref import ReferenceType, WeakKeyDictionary, ref

from .. import server
from ..base.checks import check_sync_callback
from ..base.shared_limits import THREADS
from ..runtime import ThreadLimiter
from ..session import MessageMiddleware
from ..session.subscriptions import Change
from .context import Context
from .data.completion import make_completer
from .handler import Function
from .options import OfferKeywords, check_function, check_not_class, check_uri_and_function, name_for, on_its_loop
from .registry import Registry
from .tool_options import ToolKeywords
from .tools.tool import Tool, make_tool
from .values.callables import is_async

# The server that a function was registered with, for tests that call the function as its tool.

# Weak on both sides: a server that is dropped takes its tools with it, and a function may be registered with many in turn.
_HOMES: WeakKeyDictionary[Callable[..., object], ReferenceType[object]] = WeakKeyDictionary()


def remember_home(function: Callable[..., object], server: object) -> None:
    """Note that a function is a tool of this server; the last one counts."""
    try:
        _HOMES[function] = ref(server)
    except TypeError:
        # It cannot be hashed or referred to weakly, as some callable objects. Then a test names its server and its tool.
        return


def home_of(function: Callable[..., object]) -> object | None:
    """Return the server that a function was last registered with; None if there is none, or it is gone."""
    try:
        home = _HOMES.get(function)
    except TypeError:  # as above
        return None
    return None if home is None else home()


F = TypeVar("F", bound=Function)
Q = ParamSpec("Q")
V = TypeVar("V")
C = TypeVar("C")
S = TypeVar("S")
OptionsT = TypeVar("OptionsT", bound=OfferKeywords)
CallMiddlewareT = TypeVar("CallMiddlewareT", bound="server.CallMiddleware")
MessageMiddlewareT = TypeVar("MessageMiddlewareT", bound=MessageMiddleware)

MAX_THREADS = THREADS.limit
"""Functions that are not async and may run at the same time; they have their own thread limiter."""


class Registration:
    """The methods of a server that register and remove tools, resources, prompts and completions, before or while it is served.

    A parameter annotated `Context` receives the call's context. A function that is not async runs in a thread.
    """

    def __init__(self, name: str) -> None:
        self._registry = Registry(self._announce, f"the server {name!r}")
        self._threads = ThreadLimiter(MAX_THREADS)
        self._middleware: list[server.CallMiddleware] = []
        self._message_middleware: list[MessageMiddleware] = []
        self._asyncio = False
        """Whether async functions run on asyncio, unless their registration says otherwise."""
        self._fulfilled: frozenset[str] = frozenset()
        """The client capabilities that tools need not require, because the server has them."""

    def _announce(self, change: Change) -> None:
        """Notify the clients of a change, if this is served; `Server` overrides it."""

    def _with_loop(self, function: Function, options: OptionsT) -> OptionsT:
        """Return the options of a function with the loop on which it runs by default."""
        return {"asyncio": True, **options} if self._asyncio and is_async(function) else options  # type: ignore[return-value]

    def _declare(self) -> None:
        """Update the declared capabilities, if this is served; `Server` overrides it."""

    # tools

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(  # type: ignore[misc]  # mypy takes `fn` for a parameter that the second form lacks
        self, fn: F | None = None, /, **options: Unpack[ToolKeywords]
    ) -> F | Callable[[F], F]:
        """Register a function as a tool: `@server.tool` or `@server.tool(title="...", timeout=30)`.

        The schema of its arguments comes from the signature, its description from the docstring, its output schema from the
        return annotation. The options are `name`, `title`, `description`, `annotations`, `icons`, `timeout` (seconds), `meta`,
        `resume`, `requires`, `elicits`, `input_schema`, `output_schema`, `max_depth`, `token_budget`, `limit`, `queue`,
        `max_result` (bytes), `tags`, `scopes`, `visible`, `heartbeat` (seconds), `task` and `asyncio`;
        `trio_mcp.server.ToolKeywords` explains each.

        Raises:
            TypeError: the function is a class or its signature is not possible for a tool, or there is no such option.
            ValueError: the name is taken or invalid, or a schema or the value of an option is not allowed.
        """
        add = decorator(partial(self.add_tool, **options))
        return add if fn is None else add(fn)

    def handoff_tool(
        self,
        *,
        client: Callable[[V, Context[S]], Awaitable[C]],
        after: Callable[[V, C, Context[S]], Awaitable[object]],
        on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None = None,
        **options: Unpack[ToolKeywords],
    ) -> Callable[[Callable[Q, Awaitable[V]]], Callable[Q, Awaitable[V]]]:
        """Register a function as the first phase, `before`, of a tool with three phases.

            @server.handoff_tool(client=pick_seat, after=book, on_cancel=release)
            async def book_flight(destination: str) -> Hold:

        The name, the description and the arguments of the tool come from `before`, its output schema from `after`. `before` and
        `after` run once per call, also if the call is replayed in another process, and cannot ask. The value of `before` is
        recorded as JSON by its return annotation.

        Args:
            client: `client(value, ctx)` asks the user and the model; a replay runs it again. `value` is that of `before`.
            after: `after(value, answer, ctx)` completes the call; `answer` is the value of `client`. It does not run if `client`
                raised or the call was cancelled.
            on_cancel: `on_cancel(value, ctx)` runs instead of `after` if the call was cancelled after `before`. It is shielded
                from the cancel for `ServiceOptions.cancel_grace` seconds. It does not run if the call may continue in another
                process.
            options: those of `tool`. `resume` is "replay" by default.

        Raises:
            TypeError: a phase is not async or takes other parameters, JSON cannot represent the value of `before`, or as `tool`.
            ValueError: as `tool`.
        """

        def add(before: Callable[Q, Awaitable[V]]) -> Callable[Q, Awaitable[V]]:
            name, given = name_for(before, options), self._with_loop(before, options)
            function = server.tools.handoff.handoff_function(
                name,
                on_its_loop(before, given),
                on_its_loop(client, given),
                on_its_loop(after, given),
                None if on_cancel is None else on_its_loop(on_cancel, given),
            )
            self.add_tool(make_tool(function, given, self._threads, before=before))
            return before

        return add

    def add_tool(self, function: Function | Tool, **options: Unpack[ToolKeywords]) -> Tool:
        """Register a function, or a tool that was built or is registered at another server. Return the registered tool.

        It can be called while serving: clients that subscribed are notified that the list has changed.

        Raises:
            TypeError: as `tool`; or a tool comes with options, or is not finished.
            ValueError: as `tool`.
        """
        tool = self._made_tool(function, options)
        self._registry.tools.add(tool.name, tool)
        remember_home(tool.function, self)
        return tool

    def _made_tool(self, function: Function | Tool, options: ToolKeywords) -> Tool:
        """Return the tool as this server has it. Raises what `add_tool` raises."""
        if isinstance(function, Tool):
            if options:
                raise TypeError(
                    f"add_tool: {function.name} has its options already, so {', '.join(options)} cannot be set"
                )
            tool = function.with_threads(self._threads)
        elif not isinstance(function, FunctionType) and isinstance(function, server.tools.builder.ToolBuilder):
            raise TypeError(
                f"add_tool: {function!r} is not finished: call .execute(...) or .handoff(...) as its last step"
            )
        else:
            check_function(function, "tool")
            tool = make_tool(function, self._with_loop(function, options), self._threads)
        return tool.without(self._fulfilled)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; running calls continue. Raises `LookupError` if there is none of that name."""
        self._registry.tools.remove(name)

    # prompts

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(self, **options: Unpack[server.PromptKeywords]) -> Callable[[F], F]: ...
    def prompt(  # type: ignore[misc]
        self, fn: F | None = None, /, **options: Unpack[server.PromptKeywords]
    ) -> F | Callable[[F], F]:
        """Register a function as a prompt: `@server.prompt` or `@server.prompt(title="...")`.

        Its parameters are the arguments, which are sent as strings. It returns text, a content block or a `PromptMessage`, or a
        list of those. The options are `name`, `title`, `description`, `icons`, `timeout` (seconds), `meta`, `elicits`,
        `resume`, `scopes`, `visible` and `asyncio`; `trio_mcp.server.PromptKeywords` explains each.

        Raises:
            TypeError: the function is a class or its signature is not possible for a prompt, or there is no such option.
            ValueError: the name is taken, or the value of an option is not allowed.
        """
        add = decorator(partial(self.add_prompt, **options))
        return add if fn is None else add(fn)

    def add_prompt(self, function: Function, **options: Unpack[server.PromptKeywords]) -> server.data.prompts.Prompt:
        """Register a function as a prompt, also while serving."""
        check_function(function, "prompt")
        prompt = server.data.prompts.make_prompt(function, self._with_loop(function, options), self._threads)
        self._registry.prompts.add(prompt.name, prompt)
        return prompt

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt and its completions. Raises `LookupError` if there is none of that name."""
        self._registry.prompts.remove(name)
        self._registry.completions.remove(name)

    # resources

    def resource(self, uri: str, **options: Unpack[server.ResourceKeywords]) -> Callable[[F], F]:
        """Register a function that reads one URI, `@server.resource("config://app")`, or all URIs that match a template,
        `@server.resource("users://{user_id}/profile")`. The variables of the template (RFC 6570) are its parameters.

        It returns text, bytes, anything that is JSON, or contents; it raises `ResourceNotFound(uri)` or returns None if the
        resource does not exist. The options are `name`, `title`, `description`, `mime_type`, `size` (bytes), `icons`,
        `annotations`, `ttl` (seconds), `cache_scope`, `timeout` (seconds), `meta`, `elicits`, `resume`, `scopes`, `visible` and
        `asyncio`; `trio_mcp.server.ResourceKeywords` explains each.

        Raises:
            TypeError: the function is a class, its parameters are not the variables, or there is no such option.
            ValueError: `uri` is neither a URI nor a template, or it is taken, or the value of an option is not allowed.
        """
        # Here too, because `@server.resource` without a URI is the decorator itself, and would fail only in its return value.
        check_uri_and_function(uri)
        return decorator(partial(self.add_resource, uri, **options))

    def add_resource(
        self, uri: str, function: Function, **options: Unpack[server.ResourceKeywords]
    ) -> server.data.resources.Resource | server.data.resources.Template:
        """Register a function as a resource or a resource template, also while serving."""
        check_uri_and_function(uri, function)
        options = self._with_loop(function, options)
        if "{" in uri:
            template = server.data.resources.make_template(uri, function, options, self._threads)
            self._registry.templates.add(uri, template)
            return template
        resource = server.data.resources.make_resource(uri, function, options, self._threads)
        self._registry.resources.add(uri, resource)
        return resource

    def remove_resource(self, uri: str) -> None:
        """Remove a resource, or a template with its completions. Raises `LookupError` if there is none of that URI."""
        if "{" in uri:
            self._registry.templates.remove(uri)
            self._registry.completions.remove(uri)
        else:
            self._registry.resources.remove(uri)

    # middleware

    @overload
    def middleware(self, fn: CallMiddlewareT, /) -> CallMiddlewareT: ...
    @overload
    def middleware(self) -> Callable[[CallMiddlewareT], CallMiddlewareT]: ...
    def middleware(  # type: ignore[misc]  # as for `tool`
        self, fn: CallMiddlewareT | None = None, /
    ) -> CallMiddlewareT | Callable[[CallMiddlewareT], CallMiddlewareT]:
        """Register an async function that runs around each call of a tool, prompt or resource: `@server.middleware`.

            @server.middleware
            async def timing(call: CallRequest, handler: CallHandler) -> CallResult:
                started = trio.current_time()
                try:
                    return await handler()
                finally:
                    print(call.name, trio.current_time() - started)

        It runs once for each call, however many requests the call takes, and again in a replay. It may call `handler()` more than
        once: each further run of the body has separate steps and questions. The first one that is registered is the outermost.

        Raises:
            TypeError: it is not an async function of a request and a handler.
            RuntimeError: the server is being served.
        """
        if fn is None:
            return self.middleware
        server.middleware.check_middleware(fn)
        self._check_not_served("middleware")
        self._middleware.append(fn)
        return fn

    @overload
    def message_middleware(self, fn: MessageMiddlewareT, /) -> MessageMiddlewareT: ...
    @overload
    def message_middleware(self) -> Callable[[MessageMiddlewareT], MessageMiddlewareT]: ...
    def message_middleware(  # type: ignore[misc]  # as for `tool`
        self, fn: MessageMiddlewareT | None = None, /
    ) -> MessageMiddlewareT | Callable[[MessageMiddlewareT], MessageMiddlewareT]:
        """Register a plain function that sees each request and notification of a client: `@server.message_middleware`.

        It must not block, and rejects the message by raising: a request is answered with the error (`ProtocolError` with its text
        and code, `LimitExceeded` as "busy", anything else as an internal error), a notification is dropped.

        Raises:
            TypeError: it is not a plain function.
            RuntimeError: the server is being served.
        """
        if fn is None:
            return self.message_middleware
        check_sync_callback("message_middleware", fn)
        self._check_not_served("message_middleware")
        self._check_not_mounted("message_middleware")
        self._message_middleware.append(fn)
        return fn

    def _check_not_served(self, what: str) -> None:
        """Raise `RuntimeError` if the server is being served; `Server` overrides it."""

    def _check_not_mounted(self, what: str) -> None:
        """Raise `RuntimeError` if the server is mounted in another one; `Composition` overrides it."""

    # completion

    @overload
    def complete(self, *, prompt: str, argument: str, asyncio: bool | None = None) -> Callable[[F], F]: ...
    @overload
    def complete(self, *, resource: str, argument: str, asyncio: bool | None = None) -> Callable[[F], F]: ...
    def complete(
        self,
        *unnamed: object,
        argument: str | None = None,
        prompt: str | None = None,
        resource: str | None = None,
        asyncio: bool | None = None,
    ) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt, or for a variable of a resource template.

            @server.complete(prompt="review", argument="language")
            async def languages(value: str) -> list[str]:
                return [name for name in LANGUAGES if name.startswith(value)]

        The function takes the `value` typed so far, and optionally the other `arguments` and a context. It returns the
        suggestions as strings, of which the first 100 are sent, or a `Completion`. With `asyncio=True` it runs on asyncio.

        Raises:
            TypeError: neither or both of `prompt` and `resource` were given, or the function has other parameters.
            LookupError: there is no such prompt, template or argument; it has to be registered first.
            ValueError: it has a completion already.
        """
        if unnamed or argument is None or (prompt is None) == (resource is None):
            raise TypeError(
                "complete() takes the name of an argument, and either its prompt or its resource template: "
                "@server.complete(prompt='review', argument='language')"
            )

        def add(function: F) -> F:
            check_not_class("complete", function)
            options: OfferKeywords = {} if asyncio is None else {"asyncio": asyncio}
            completer = make_completer(on_its_loop(function, self._with_loop(function, options)), self._threads)
            self._registry.completions.add(prompt, resource, argument, completer)
            self._declare()
            return function

        return add


def decorator(register: Callable[[F], object]) -> Callable[[F], F]:
    """Return a decorator that registers a function and returns it unchanged."""

    def add(function: F) -> F:
        register(function)
        return function

    return add
