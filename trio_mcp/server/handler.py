"""Running an author's function for a request: with its context, and in a thread if it is not async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar, cast

from ..errors import McpError
from ..groups import leaf_exceptions
from ..runtime import Actor, Lane, ThreadLimiter, TokenBudget
from ..session import Call
from ..types import Model
from .branching import BODY, BranchTerms
from .callables import callable_name, is_async, is_generator
from .context import Context
from .schema_checks import DearCheck

Function: TypeAlias = Callable[..., object]
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and what is the same for all its calls. Make one with `make_handler`.

    Attributes:
        context: the name of the parameter that takes the `Context`.
        in_thread: whether the function runs in one of `threads`.
        terms: the terms of the body.
        token_budget: the tokens that the samples of one call may use; None for no limit.
    """

    function: Function
    context: str | None
    threads: ThreadLimiter
    in_thread: bool
    terms: BranchTerms
    token_budget: int | None

    async def run(
        self,
        values: dict[str, object],
        convert: Callable[[object], M],
        call: Call,
        at: Actor | Lane,
        parent: BranchTerms | None = None,
    ) -> M:
        """Call the function and return its value, converted to a result.

        Args:
            at: the actor of a call, or the lane of a branch that runs a resource or prompt for another handler.
            parent: the terms of that handler.

        Raises what the function raises; of an exception group, the exception that `exception_to_report` chooses.
        """
        if self.context is not None:
            terms = self.terms
            if self.token_budget is not None:
                terms = replace(terms, budget=TokenBudget(self.token_budget))
            lane = at if isinstance(at, Lane) else Lane(at)
            terms = terms if parent is None else terms.within(parent)
            values = {**values, self.context: Context(call, lane, terms)}
        try:
            # Awaited here and not in a method, because each coroutine more is half a kilobyte of a call that waits.
            running = self._in_thread(values) if self.in_thread else cast("Awaitable[object]", self.function(**values))
            value = await running
            try:
                return convert(value)
            except DearCheck as check:
                # Its traceback holds this frame, which holds it.
                dear: DearCheck[M] = check.with_traceback(None)
            return await dear.decide()
        except ExceptionGroup as group:
            failure: Exception = exception_to_report(group)
        # Raised after the block, so that the group is not its context: a log would show the group first.
        try:
            raise failure
        finally:
            # Its traceback holds this frame, and the frame holds the context: without this, both live until the garbage
            # collector runs.
            del failure

    async def _in_thread(self, values: dict[str, object]) -> object:
        # In a tuple, because Trio would otherwise complain about a coroutine as the value of a thread.
        (value,) = await self.threads.run(lambda: (self.function(**values),))
        # A decorator that is a plain function may wrap an async function.
        return await cast("Awaitable[object]", value) if isinstance(value, Awaitable) else value


def make_handler(
    function: Function,
    context: str | None,
    threads: ThreadLimiter,
    terms: BranchTerms = BODY,
    token_budget: int | None = None,
) -> Handler:
    """Return a handler of a function.

    Raises:
        TypeError: it is a generator; a request has one result, not a stream of them.
    """
    if is_generator(function):
        raise TypeError(f"{callable_name(function)}: register a function or an async function, not a generator")
    return Handler(function, context, threads, not is_async(function), terms, token_budget)


def exception_to_report(group: ExceptionGroup[Exception]) -> Exception:
    """Return the one exception in a group, however deep, or the first if all are for the caller; otherwise the group."""
    found = leaf_exceptions(group)
    if len(found) == 1 or all(isinstance(leaf, McpError) for leaf in found):
        return found[0]
    return group
