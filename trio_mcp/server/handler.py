"""Running an author's function for a request: with its context, in a thread when it is a plain one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from ..errors import McpError
from ..groups import leaf_exceptions
from ..runtime import Lane, ThreadLimiter, TokenBudget
from ..session import CallPort
from .branching import CallLimits, Terms
from .context import BODY, Context
from .forms import Elicit

Function: TypeAlias = Callable[..., object]

UNLIMITED = CallLimits()


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, the name of the parameter that takes the `Context`, and the threads in which plain functions run.

    Attributes:
        terms: what holds for the body of every call.
        token_budget: the tokens that the samples of one call may use; None: any number.
    """

    function: Function
    context: str | None
    threads: ThreadLimiter
    is_async: bool
    terms: Terms = BODY
    token_budget: int | None = None

    def admit(self) -> None:
        """Raise `LimitExceeded` when no thread would ever run it."""
        if not self.is_async:
            self.threads.admit()

    async def __call__(self, values: dict[str, object], call: CallPort, lane: Lane) -> object:
        """Call it and return its value. Of an exception group, raise the exception that says enough (`exception_to_report`)."""
        if self.context is not None:
            terms = self.terms
            if self.token_budget is not None:
                terms = replace(terms, budget=TokenBudget(self.token_budget))
            values = {**values, self.context: Context(call, lane, terms)}
        try:
            if self.is_async:  # here, since each coroutine more is half a kilobyte of a call that waits
                return await cast("Awaitable[object]", self.function(**values))
            return await self._in_thread(values)
        except ExceptionGroup as group:
            failure: Exception = exception_to_report(group)
        try:
            raise failure
        finally:
            del failure  # it holds this frame, and with it the context

    async def _in_thread(self, values: dict[str, object]) -> object:
        (value,) = await self.threads.run(lambda: (self.function(**values),))
        if isinstance(value, Awaitable):  # a plain decorator round an async function
            return cast("object", await value)
        return value


def make_handler(
    function: Function,
    context: str | None,
    threads: ThreadLimiter,
    elicits: Sequence[Elicit[object]] = (),
    limits: CallLimits = UNLIMITED,
) -> Handler:
    """A handler of a function.

    Raises:
        TypeError: it is a generator, which no request can be answered with.
    """
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{function.__qualname__}: offer a function or an async function, not a generator")
    terms = replace(BODY, keys=frozenset(asked.key for asked in elicits))
    if limits.max_depth is not None:
        terms = replace(terms, max_depth=limits.max_depth)
    is_async = inspect.iscoroutinefunction(function)
    return Handler(function, context, threads, is_async, terms, limits.token_budget)


def function_doc(function: Function) -> str | None:
    """What the function says of itself."""
    return inspect.getdoc(function)


def exception_to_report(group: ExceptionGroup[Exception]) -> Exception:
    """Return the one exception in a group, however deep, or the first if all are for the caller; otherwise the group."""
    found = leaf_exceptions(group)
    if len(found) == 1 or all(isinstance(leaf, McpError) for leaf in found):
        return found[0]
    return group
