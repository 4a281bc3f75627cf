"""Running an author's function for a request: with its context, and in a thread if it is not async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from .. import runtime
from ..base.groups import leaf_exceptions
from ..errors import McpError
from ..runtime import Actor, Lane, ThreadLimiter, check_awaited
from ..session import Call
from ..types import Model
from .branching import BODY, BranchTerms
from .context import Context
from .provide import Providers, providers_of
from .values.callables import callable_name, is_async, is_generator
from .values.schema_checks import DeferredCheck

if TYPE_CHECKING:
    from .concurrency import ConcurrencyLimit

Function: TypeAlias = Callable[..., object]
M = TypeVar("M", bound=Model)


class Handler:
    """A function, and what is the same for all its calls. Make one with `make_handler`.

    Attributes:
        context: the name of the parameter that takes the `Context`.
        in_thread: whether the function runs in one of `threads`.
        terms: the terms of the body.
        token_budget: the tokens that the samples of one call may use; None for no limit.
        admit: raises `LimitExceeded` if a call cannot run now; None if it always can.
    """

    __slots__ = ("admit", "context", "function", "in_thread", "terms", "threads", "token_budget")

    def __init__(
        self,
        function: Function,
        context: str | None,
        threads: ThreadLimiter,
        in_thread: bool,
        terms: BranchTerms,
        token_budget: int | None,
        admit: Callable[[], None] | None,
    ) -> None:
        self.function = function
        self.context = context
        self.threads = threads
        self.in_thread = in_thread
        self.terms = terms
        self.token_budget = token_budget
        self.admit = admit

    async def run(
        self,
        values: dict[str, object],
        convert: Callable[[object], M],
        call: Call,
        place: Actor | Lane,
        parent: BranchTerms | None = None,
    ) -> M:
        """Call the function and return its value, converted to a result.

        Args:
            place: the actor of a call; or the lane of a further run of the body, or of a branch that runs a resource or prompt
                for another handler.
            parent: the terms of that handler.

        Raises what the function raises; of an exception group, the exception that `exception_to_report` chooses. And
        `LocalProtocolError` if it has returned and dropped a question; see `check_awaited`.
        """
        if self.context is not None:
            ctx = self._make_context(call, place, parent)
            values, place = {**values, self.context: ctx}, ctx._lane  # noqa: SLF001  both are the handler's view of one lane
        try:
            # Awaited here and not in a method, because each coroutine more is half a kilobyte of a call that waits.
            running = (
                self._in_thread(values, call) if self.in_thread else cast("Awaitable[object]", self.function(**values))
            )
            value = await running
            # Where no context was made, nothing could ask.
            if isinstance(place, Lane) and place.unawaited:
                check_awaited(place)
            try:
                return convert(value)
            except DeferredCheck as check:
                # Its traceback holds this frame, which holds it.
                deferred: DeferredCheck[M] = check.with_traceback(None)
            return await deferred.decide(self.threads, call.actor.caller)
        except ExceptionGroup as group:
            failure: Exception = exception_to_report(group)
        # Raised after the block, so that the group is not its context: a log would show the group first.
        try:
            raise failure
        finally:
            # Its traceback holds this frame, and the frame holds the context: without this, both live until the garbage
            # collector runs.
            del failure

    def _make_context(self, call: Call, place: Actor | Lane, parent: BranchTerms | None) -> Context:
        """Return the context of a body that runs in this lane, or as the whole of this actor."""
        lane = place if isinstance(place, Lane) else Lane(place)
        if parent is not None:
            return Context(call, lane, self.terms.within(parent))
        if self.token_budget is None:
            return Context(call, lane, self.terms)
        actor = lane.actor
        # Kept by the actor, since all runs of the body share it.
        actor.budget = actor.budget or runtime.TokenBudget(self.token_budget)
        return Context(call, lane, self.terms._replace(budget=actor.budget))

    async def _in_thread(self, values: dict[str, object], call: Call) -> object:
        # In a tuple, because Trio would otherwise complain about a coroutine as the value of a thread.
        (value,) = await self.threads.run(lambda: (self.function(**values),), call.actor.caller)
        # A decorator that is a plain function may wrap an async function.
        return await cast("Awaitable[object]", value) if isinstance(value, Awaitable) else value


class ProvidingHandler(Handler):
    """A handler of a function some of whose parameters are provided.

    Args:
        context: the name of the parameter that takes the `Context`.
        inner: runs the function when all its parameters are known.
    """

    __slots__ = ("inner", "providers")

    def __init__(self, inner: Handler, context: str | None, providers: Providers) -> None:
        super().__init__(
            inner.function, context, inner.threads, inner.in_thread, inner.terms, inner.token_budget, inner.admit
        )
        self.inner = inner
        self.providers = providers

    async def run(
        self,
        values: dict[str, object],
        convert: Callable[[object], M],
        call: Call,
        place: Actor | Lane,
        parent: BranchTerms | None = None,
    ) -> M:
        ctx, seconds = self._make_context(call, place, parent), call.services.options.cancel_grace
        if self.context is not None:
            values = {**values, self.context: ctx}
        lane = ctx._lane  # noqa: SLF001
        body = lambda provided: self.inner.run({**values, **provided}, convert, call, lane, parent)  # noqa: E731
        try:
            return await self.providers.run(ctx, self.threads, seconds, body)
        except ExceptionGroup as group:
            # A nursery that a provider holds open wraps what the body raised.
            failure: Exception = exception_to_report(group)
        try:
            raise failure
        finally:
            del failure


class LimitedHandler(Handler):
    """A handler of a function of which only some calls run at once."""

    __slots__ = ("inner", "limit")

    def __init__(self, inner: Handler, limit: ConcurrencyLimit) -> None:
        admit = limit.admit if inner.admit is None else partial(limit.admit_after, inner.admit)
        super().__init__(
            inner.function, inner.context, inner.threads, inner.in_thread, inner.terms, inner.token_budget, admit
        )
        self.inner = inner
        self.limit = limit

    async def run(
        self,
        values: dict[str, object],
        convert: Callable[[object], M],
        call: Call,
        place: Actor | Lane,
        parent: BranchTerms | None = None,
    ) -> M:
        lane = place if isinstance(place, Lane) else Lane(place)
        async with self.limit.hold(lane.actor) if parent is None else self.limit.hold_nested(lane):
            return await self.inner.run(values, convert, call, place, parent)


def make_handler(
    function: Function,
    context: str | None,
    threads: ThreadLimiter,
    terms: BranchTerms = BODY,
    token_budget: int | None = None,
    limit: ConcurrencyLimit | None = None,
) -> Handler:
    """Return a handler of a function.

    Raises:
        TypeError: it is a generator; a request has one result, not a stream of them. Or a parameter cannot be provided.
    """
    if is_generator(function):
        raise TypeError(f"{callable_name(function)}: register a function or an async function, not a generator")
    in_thread = not is_async(function)
    admit = threads.admit if in_thread else None
    # What a function does not use is decided here, and costs its calls nothing.
    providers = providers_of(function)
    handler = Handler(function, None if providers else context, threads, in_thread, terms, token_budget, admit)
    if providers is not None:
        handler = ProvidingHandler(handler, context, providers)
    return handler if limit is None else LimitedHandler(handler, limit)


def exception_to_report(group: ExceptionGroup[Exception]) -> Exception:
    """Return the one exception in a group, however deep, or the first if all are for the caller; otherwise the group."""
    found = leaf_exceptions(group)
    if len(found) == 1 or all(isinstance(leaf, McpError) for leaf in found):
        return found[0]
    return group
