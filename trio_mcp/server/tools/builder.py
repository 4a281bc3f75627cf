"""`tool(...)`: builds a tool step by step, as a value that any server can add.

tool("book_flight")                       a `ToolBuilder`; every step returns a new one
    .description("Book a flight.")
    .parameters(Trip)
    .handoff(before=..., client=..., after=...)    a `Tool`, like those that the decorators register
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar, Unpack, cast, overload

from ...base.checks import check_callable, check_names, check_str
from ...runtime import ThreadLimiter
from ...types import JsonObject, ToolAnnotations
from ..context import Context
from ..elicit.elicits import AnyElicit
from ..options import check_not_class, on_its_loop
from ..tool_options import ToolKeywords, check_tool_name, check_tool_options
from ..values.parameters_model import ParametersModel, parameters_model
from ..values.step_results import return_hint
from .handoff import Handoff, check_phase, recorded_value, takes
from .tool import Tool, make_tool

P = TypeVar("P")
NewP = TypeVar("NewP")
V = TypeVar("V")
C = TypeVar("C")
S = TypeVar("S")

NO_THREADS = ThreadLimiter(1)
"""The threads of a tool that no server has added; each server replaces them by its own."""


class NoParameters:
    """Stands for the parameters of a tool that has none yet."""


class ToolLimits(TypedDict, total=False):
    """The limits of a tool; see `ToolKeywords`."""

    timeout: float
    max_depth: int
    token_budget: int
    max_result: int
    limit: int
    queue: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ToolBuilder(Generic[P]):
    """A tool that is being built. Every step returns a new builder, so that one can be the start of several tools.

    `P` is the type of the arguments. Make one with `tool`; `execute` or `handoff` is the last step and returns the tool.

    Raises:
        TypeError: a step was taken twice or is missing, or its argument has the wrong type. Each step checks at once.
        ValueError: an argument is not allowed.
    """

    _name: str
    _options: ToolKeywords
    _parameters: ParametersModel | None = None

    def title(self, title: str) -> ToolBuilder[P]:
        """Set the name that people see."""
        return self._with("title", title=check_str("title", title))

    def description(self, description: str) -> ToolBuilder[P]:
        """Say what the tool does, for models. The default is the docstring of the function, or of `before`."""
        return self._with("description", description=check_str("description", description))

    def parameters(self, model: type[NewP]) -> ToolBuilder[NewP]:
        """Set the type of the arguments: a pydantic model, a dataclass or a TypedDict. The function gets an instance.

        Arguments that it does not name are rejected, unless its pydantic setting `extra` is "ignore" or "allow".
        """
        if self._parameters is not None:
            raise TypeError(twice(self, "parameters"))
        # A cast, because nothing of a builder but its steps has the type of the parameters.
        return cast("ToolBuilder[NewP]", replace(self, _parameters=parameters_model(model)))

    def requires(self, *capabilities: str) -> ToolBuilder[P]:
        """Require client capabilities, such as "sampling" or "elicitation.form"."""
        return self._with("requires", requires=capabilities)

    def limits(self, **limits: Unpack[ToolLimits]) -> ToolBuilder[P]:
        """Set `timeout` (seconds), `max_depth`, `token_budget`, `max_result` (bytes), `limit` and `queue`; see `ToolKeywords`."""
        check_names(limits, ToolLimits.__optional_keys__, "limits()")
        return self._with("limits", **limits)

    def elicits(self, *questions: AnyElicit) -> ToolBuilder[P]:
        """Declare the questions that the tool may ask."""
        return self._with("elicits", elicits=questions)

    def annotations(self, annotations: ToolAnnotations | JsonObject) -> ToolBuilder[P]:
        """Set hints about what the tool does."""
        return self._with("annotations", annotations=annotations)

    def options(self, **options: Unpack[ToolKeywords]) -> ToolBuilder[P]:
        """Set options that have no step, such as `icons`, `meta` or `resume`; see `ToolKeywords`."""
        if "input_schema" in options:
            raise TypeError(f"{self!r}: parameters(...) says what the arguments are; leave input_schema out")
        return self._with("options", **options)

    def execute(self, fn: Callable[[P, Context[S]], object]) -> Tool:
        """Return the tool that calls `fn(params, ctx)`; it runs in a thread if it is not async."""
        check_callable("what execute() runs", fn)
        check_not_class("execute", fn)
        return make_tool(fn, self._options, NO_THREADS, parameters=self._given_parameters("execute"))

    @overload
    def handoff(
        self,
        *,
        before: Callable[[P, Context[S]], Awaitable[V]],
        client: Callable[[V, Context[S]], Awaitable[C]],
        after: Callable[[V, C, Context[S]], Awaitable[object]],
        on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None = None,
    ) -> Tool: ...
    @overload
    def handoff(
        self,
        *,
        before: Callable[[P, Context[S]], Awaitable[V]],
        client: Callable[[V, Context[S]], Awaitable[C]],
        after: Callable[[V, C, Context[S], P], Awaitable[object]],
        on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None = None,
    ) -> Tool: ...
    def handoff(
        self,
        *,
        before: Callable[[P, Context[S]], Awaitable[V]],
        client: Callable[[V, Context[S]], Awaitable[C]],
        after: Callable[[V, C, Context[S]], Awaitable[object]] | Callable[[V, C, Context[S], P], Awaitable[object]],
        on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None = None,
    ) -> Tool:
        """Return the tool that runs these phases; see `Server.handoff_tool`. `after` may also take the parameters."""
        parameters, name = self._given_parameters("handoff"), self._name
        check_phase(name, "before", before, "params", "ctx")
        check_phase(name, "client", client, "value", "ctx")
        if on_cancel is not None:
            check_phase(name, "on_cancel", on_cancel, "value", "ctx")
        takes_params = takes(after, "value", "answer", "ctx", "params") and not takes(after, "value", "answer", "ctx")
        check_phase(name, "after", after, "value", "answer", "ctx", *(["params"] if takes_params else []))
        begin, ask = on_its_loop(before, self._options), on_its_loop(client, self._options)
        undo = None if on_cancel is None else on_its_loop(on_cancel, self._options)
        handoff = Handoff(name, recorded_value(name, before), ask, undo)
        complete = cast("Callable[..., Awaitable[object]]", on_its_loop(after, self._options))

        async def run(params: P, ctx: Context[S]) -> object:
            more = (params,) if takes_params else ()
            return await handoff.run(
                ctx,
                lambda phase: begin(params, phase),
                lambda value, answer, phase: complete(value, answer, phase, *more),
            )

        describe(run, name, before.__doc__, return_hint(after))
        return make_tool(run, self._options, NO_THREADS, parameters=parameters, before=before)

    def _with(self, step: str, **options: Unpack[ToolKeywords]) -> ToolBuilder[P]:
        """Return a builder with more options."""
        for name in options:
            if name in self._options:
                raise TypeError(twice(self, name if name == step else f"{name} (in {step})"))
        check_tool_options(options)
        return replace(self, _options=cast("ToolKeywords", {**self._options, **options}))

    def _given_parameters(self, step: str) -> ParametersModel:
        if self._parameters is None:
            raise TypeError(
                f"{self!r}.{step}(...) comes too early: call .parameters(Model) before it, with an empty model if the tool "
                "takes no arguments"
            )
        return self._parameters

    def __repr__(self) -> str:
        return f"tool({self._name!r})"


def tool(name: str) -> ToolBuilder[NoParameters]:
    """Start to build the tool `name`: set its `parameters`, then `execute` or `handoff`, and pass it to `Server.add_tool`.

        greet = tool("greet").description("Greet someone.").parameters(Person).execute(greet_person)
        server.add_tool(greet)

    Raises:
        ValueError: the name is not one of a tool.
    """
    if not isinstance(name, str):
        raise TypeError(f"tool() takes the name of the tool, such as tool('greet'), not {name!r:.80}")
    check_tool_name(name)
    return ToolBuilder(name, {"name": name})


def twice(builder: ToolBuilder[Any], step: str) -> str:
    """Return the error for a step that was taken before."""
    return f"{builder!r}: {step} was given already; start both from the builder before it"


def describe(run: Callable[..., object], name: str, doc: str | None, returns: object) -> None:
    """Give a function that was made for a tool the name, docstring and return annotation that a listing reads."""
    run.__name__ = run.__qualname__ = name
    run.__doc__ = doc
    run.__annotations__ = {"return": returns}
