"""What an author says: `@server.tool`, `@server.resource`, `@server.prompt`, `@server.complete`, and taking things back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack, overload

from ..runtime import ThreadLimiter
from ..session.subscriptions import Change
from .completion import make_completer
from .handler import Function
from .options import check_function, check_place, options_of
from .prompts import Prompt, PromptKeywords, PromptOptions, make_prompt
from .registry import Registry
from .resources import Resource, ResourceKeywords, ResourceOptions, Template, make_resource, make_template
from .tool import Tool, ToolKeywords, ToolOptions, make_tool

F = TypeVar("F", bound=Function)


MAX_THREADS = 100
"""Plain functions that may run at once, in threads of their own limiter."""


class Authoring:
    """A registry as its author fills it, before and while it is served; every function stays as it is.

    A parameter annotated `Context` is given the call's context. A plain `def` runs in a thread.
    """

    def __init__(self) -> None:
        self._registry = Registry(self._announce)
        self._threads = ThreadLimiter(MAX_THREADS)

    def _announce(self, change: Change) -> None:
        """Something has changed; whoever serves tells the clients."""

    def _declare(self) -> None:
        """Something of a new kind may be offered; whoever serves declares it from now on."""

    # tools

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    def tool(  # type: ignore[misc]  # mypy takes `fn` for a parameter that the second form lacks
        self, fn: F | None = None, /, **options: Unpack[ToolKeywords]
    ) -> F | Callable[[F], F]:
        """Offer a function as a tool; used as `@server.tool` or `@server.tool(title="...", timeout=30)`.

        The schema of its arguments comes from the signature, its description from the docstring, its output schema from the
        return annotation. Beside that there are the options `name`, `title`, `description`, `annotations`, `icons`, `timeout`
        (seconds), `meta`, `resume`, `requires`, `elicits`, `input_schema`, `output_schema`, `max_depth` and `token_budget`;
        `trio_mcp.server.ToolKeywords` says what each is for.

        Raises:
            TypeError: the signature cannot be offered, or there is no such option.
            ValueError: the name is taken or is not one, or a schema or the value of an option is not allowed.
        """

        def add(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return add if fn is None else add(fn)

    def add_tool(self, function: Function, **options: Unpack[ToolKeywords]) -> Tool:
        """Offer a function as a tool, also while serving: clients that asked for it hear that the list has changed."""
        check_function(function, "tool")
        tool = make_tool(function, options_of(ToolOptions, options, "tool()"), self._threads)
        self._registry.tools.add(tool.name, tool)
        return tool

    def remove_tool(self, name: str) -> None:
        """Offer a tool no more; calls that run go on. Raises `LookupError` when there is none of that name."""
        self._registry.tools.remove(name)

    # prompts

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(self, **options: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    def prompt(  # type: ignore[misc]
        self, fn: F | None = None, /, **options: Unpack[PromptKeywords]
    ) -> F | Callable[[F], F]:
        """Offer a function as a prompt; used as `@server.prompt` or `@server.prompt(title="...")`.

        Its parameters are the arguments, which come as strings. It returns text, a content block or a `PromptMessage`, or a
        list of those. Beside that there are the options `name`, `title`, `description`, `icons`, `timeout` (seconds), `meta`,
        `elicits` and `resume`; `trio_mcp.server.PromptKeywords` says what each is for.

        Raises:
            TypeError: the signature cannot be offered, or there is no such option.
            ValueError: the name is taken, or the value of an option is not allowed.
        """

        def add(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return add if fn is None else add(fn)

    def add_prompt(self, function: Function, **options: Unpack[PromptKeywords]) -> Prompt:
        """Offer a function as a prompt, also while serving."""
        check_function(function, "prompt")
        prompt = make_prompt(function, options_of(PromptOptions, options, "prompt()"), self._threads)
        self._registry.prompts.add(prompt.name, prompt)
        return prompt

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no more, nor its completions. Raises `LookupError` when there is none of that name."""
        self._registry.prompts.remove(name)
        self._registry.forget_completions(name)

    # resources

    def resource(self, uri: str, **options: Unpack[ResourceKeywords]) -> Callable[[F], F]:
        """Offer what a function returns under a URI, `@server.resource("config://app")`, or under a family of them,
        `@server.resource("users://{user_id}/profile")`: then the variables of the template (RFC 6570) are its parameters.

        It returns text, bytes, anything that is JSON, or contents; it raises `ResourceNotFound(uri)` or returns None when there
        is no such thing. Beside that there are the options `name`, `title`, `description`, `mime_type`, `size` (bytes), `icons`,
        `annotations`, `ttl` (seconds), `cache_scope`, `timeout` (seconds), `meta`, `elicits` and `resume`;
        `trio_mcp.server.ResourceKeywords` says what each is for.

        Raises:
            TypeError: the parameters are not the variables, or there is no such option.
            ValueError: that is neither a URI nor a template, or it is taken, or the value of an option is not allowed.
        """

        check_place(uri)

        def add(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return add

    def add_resource(self, uri: str, function: Function, **options: Unpack[ResourceKeywords]) -> Resource | Template:
        """Offer a resource or a resource template, also while serving."""
        check_place(uri, function)
        said = options_of(ResourceOptions, options, "resource()")
        if "{" in uri:
            template = make_template(uri, function, said, self._threads)
            self._registry.templates.add(uri, template)
            return template
        resource = make_resource(uri, function, said, self._threads)
        self._registry.resources.add(uri, resource)
        return resource

    def remove_resource(self, uri: str) -> None:
        """Offer a resource, or a template with its completions, no more. Raises `LookupError` when there is none."""
        if "{" in uri:
            self._registry.templates.remove(uri)
            self._registry.forget_completions(uri)
        else:
            self._registry.resources.remove(uri)

    # completion

    @overload
    def complete(self, *, prompt: str, argument: str) -> Callable[[F], F]: ...
    @overload
    def complete(self, *, resource: str, argument: str) -> Callable[[F], F]: ...
    def complete(
        self, *unnamed: object, argument: str | None = None, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[F], F]:
        """Suggest values for an argument of a prompt, or for a variable of a resource template.

            @server.complete(prompt="review", argument="language")
            async def languages(value: str) -> list[str]:
                return [name for name in LANGUAGES if name.startswith(value)]

        The function takes the `value` typed so far, and if it likes the other `arguments` and a context. It returns the
        suggestions as strings, of which the first 100 are sent, or a `Completion`.

        Raises:
            TypeError: neither or both of `prompt` and `resource` were given, or the function takes something else.
            LookupError: there is no such prompt, template or argument; it has to be offered first.
            ValueError: it has a completion already.
        """
        if unnamed or argument is None or (prompt is None) == (resource is None):
            raise TypeError(
                "complete() takes the name of an argument, and either its prompt or its resource template: "
                "@server.complete(prompt='review', argument='language')"
            )

        def add(function: F) -> F:
            target, known = self._completed(prompt, resource)
            if argument not in known:
                raise LookupError(f"{target} has no argument {argument!r}")
            self._registry.add_completion(target, argument, make_completer(function, self._threads))
            self._declare()
            return function

        return add

    def _completed(self, prompt: str | None, resource: str | None) -> tuple[str, set[str]]:
        if prompt is not None:
            found = self._registry.prompts.get(prompt)
            if found is None:
                raise LookupError(f"there is no prompt {prompt!r}: its completions are offered after it")
            return prompt, {known.name for known in found.model.arguments or ()}
        assert resource is not None
        template = self._registry.templates.get(resource)
        if template is None:
            raise LookupError(f"there is no resource template {resource!r}: its completions are offered after it")
        return resource, set(template.pattern.variables)
