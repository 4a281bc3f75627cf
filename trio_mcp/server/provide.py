"""Providing the values of parameters that are marked with `Provide`: what to call is decided at registration."""

# Providers are entered one after the other, in the order of the parameters and each after those that it uses itself, so that a
# replay enters them in the same order. They are left in the reverse order when the body has ended, in one cancel scope that was
# opened before the first of them: a provider may hold a nursery open across its `yield`, and scopes have to be left in order.
#
#   state      the scope                        leaves it by
#   entering   transparent: a cancel passes     the last provider was entered, or one of them failed
#   running    transparent                      the body ended: with a value, an exception or a cancel
#   leaving    a shield, with a deadline        every provider has been left, or the deadline has passed

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncContextDecorator,
    AsyncExitStack,
    ContextDecorator,
)
from enum import Enum
from functools import partial
from types import TracebackType
from typing import TypeVar, cast, get_origin, get_type_hints

import trio

from .. import server
from ..base.checks import signature_of
from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import LimitExceeded
from ..runtime import ThreadLimiter
from ..runtime.supervisor import CANCEL_GRACE
from .context import Context
from .values.callables import plain_function
from .values.provide import check_provided_type, provide_of
from .values.signature import is_context

R = TypeVar("R")
logger = peer_logger("trio_mcp.call")


class ProviderKind(Enum):
    """How a provider makes its value."""

    ASYNC = "async"
    PLAIN = "plain"
    ASYNC_MANAGER = "async manager"
    MANAGER = "manager"


class Provider(NamedTuple):
    """One function that provides a value.

    Attributes:
        context: the name of the parameter that takes the `Context`.
        uses: the parameters that take the values of other providers, with the index of each in `order`.
    """

    function: Callable[..., object]
    kind: ProviderKind
    context: str | None
    uses: Mapping[str, int]

    async def enter(self, stack: AsyncExitStack, ctx: Context, values: list[object], threads: ThreadLimiter) -> object:
        """Return the value; a context manager is entered on the stack."""
        arguments, caller = {name: values[place] for name, place in self.uses.items()}, ctx._lane.actor.caller  # noqa: SLF001
        if self.context is not None:
            arguments[self.context] = ctx
        match self.kind:
            case ProviderKind.ASYNC:
                return await cast("Awaitable[object]", self.function(**arguments))
            case ProviderKind.PLAIN:
                # In a tuple, because Trio would otherwise complain about a coroutine as the value of a thread.
                (value,) = await threads.run(lambda: (self.function(**arguments),), caller)
                return await cast("Awaitable[object]", value) if isinstance(value, Awaitable) else value
            case ProviderKind.ASYNC_MANAGER:
                manager = cast("AbstractAsyncContextManager[object]", self.function(**arguments))
                return await stack.enter_async_context(manager)
            case ProviderKind.MANAGER:
                plain = cast("AbstractContextManager[object]", self.function(**arguments))
                return await stack.enter_async_context(ThreadedManager(plain, threads, caller))


class Providers(NamedTuple):
    """The providers of a function. Make one with `providers_of`.

    Attributes:
        order: all of them; each comes after those that it uses.
        parameters: the marked parameters of the function, with the index of each provider in `order`.
    """

    order: tuple[Provider, ...]
    parameters: Mapping[str, int]

    async def run(
        self,
        ctx: Context,
        threads: ThreadLimiter,
        exit_seconds: float,
        body: Callable[[dict[str, object]], Awaitable[R]],
    ) -> R:
        """Enter the providers, run `body` with the values of the marked parameters, and leave the providers.

        Args:
            exit_seconds: how long leaving them may take, whether or not the call was cancelled.

        Raises:
            trio.TooSlowError: the body returned, and leaving took longer.
            RuntimeError: a provider suppressed the exception of the body.
            Exception: what a provider or the body raised.
        """
        result: list[R] = []
        failure: BaseException | None = None
        try:
            with trio.CancelScope() as scope:
                async with AsyncExitStack() as stack:
                    try:
                        values: list[object] = []
                        for provider in self.order:
                            values.append(await provider.enter(stack, ctx, values, threads))
                        result.append(await body({name: values[place] for name, place in self.parameters.items()}))
                    except Exception as error:
                        failure = error
                        raise
                    finally:
                        scope.shield = True
                        scope.deadline = trio.current_time() + exit_seconds
            return await self._decide(result, failure, exit_seconds, in_time=not scope.cancelled_caught)
        finally:
            # Its traceback holds this frame.
            del failure

    async def _decide(self, result: list[R], failure: BaseException | None, seconds: float, *, in_time: bool) -> R:
        """Return the result or raise what stands in its place, when no exception came out of the providers."""
        if in_time and result:
            return result[0]
        names = ", ".join(name_of(provider.function) for provider in self.order)
        if in_time:
            # The scope of a provider may have caught its own cancel.
            raise RuntimeError(f"the body ended with an exception that a provider suppressed: {names}") from failure
        logger.error("providers were cancelled: they were not left within %g seconds: %s", seconds, names)
        # If the call was cancelled, this raises.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise failure or trio.TooSlowError(f"providers were not left within {seconds:g} seconds: {names}")


class ThreadedManager(AbstractAsyncContextManager[object]):
    """A plain context manager that is entered and left in threads of the server."""

    __slots__ = ("_caller", "_entered", "_lock", "_manager", "_threads", "_wanted")

    def __init__(
        self, manager: AbstractContextManager[object], threads: ThreadLimiter, caller: Hashable | None
    ) -> None:
        self._manager = manager
        self._caller = caller
        self._threads = threads
        self._lock = threading.Lock()
        self._entered = False
        self._wanted = True

    def _enter(self) -> object:
        """Enter the manager; called in a thread. Leave it again if its value is no longer wanted."""
        value = self._manager.__enter__()
        with self._lock:
            self._entered = True
            if self._wanted:
                return value
        self._manager.__exit__(None, None, None)
        return None

    async def __aenter__(self) -> object:
        try:
            return await self._threads.run(self._enter, self._caller)
        except BaseException:
            with self._lock:
                self._wanted = False
                entered = self._entered
            if entered:
                # Cancelled when the thread had ended already, and its value was dropped.
                await self._leave_dropped()  # noqa: ASYNC102  it is shielded and bounded itself
            raise

    async def _leave_dropped(self) -> None:
        """Leave the manager, whose value was dropped, in a thread of the server. Shielded, for `CANCEL_GRACE` seconds at most."""
        with trio.move_on_after(CANCEL_GRACE, shield=True) as scope:
            try:
                await self._threads.run(partial(self._manager.__exit__, None, None, None), self._caller)
            except LimitExceeded as error:
                # The cancel is what the caller must see.
                logger.error("a provider was not left: %s", error)
        if scope.cancelled_caught:
            logger.error("a provider was not left within %g seconds, since its call was cancelled", CANCEL_GRACE)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        leave = partial(self._manager.__exit__, kind, error, traceback)
        return await self._threads.run(leave, self._caller)  # noqa: ASYNC102  `Providers.run` shields and bounds it


def providers_of(function: Callable[..., object]) -> Providers | None:
    """Return the providers of a function's marked parameters; None if there are none.

    Raises:
        TypeError: a provider cannot be called with what it gets; the message names the function, the provider and its parameter.
    """
    order: list[Provider] = []
    places: dict[Callable[..., object], int] = {}
    try:
        marked = read_parameters(function).marked
        parameters = {name: add_provider(mark, order, places, ()) for name, mark in marked.items()}
        if hasattr(plain_function(function), "runs_on_asyncio"):
            order = [server.asyncio_bodies.provider_on_asyncio(provider) for provider in order]
    except TypeError as error:
        raise TypeError(f"{name_of(function)}: {error}") from error
    return Providers(tuple(order), parameters) if parameters else None


def add_provider(
    function: Callable[..., object],
    order: list[Provider],
    places: dict[Callable[..., object], int],
    users: tuple[Callable[..., object], ...],
) -> int:
    """Return the index of a provider in `order`, to which it is added after those that it uses.

    Args:
        places: the index of each function that was added.
        users: the providers that need this one, from the outside in.
    """
    if function in users:
        raise TypeError(f"the provider {name_of(function)} needs its own value")
    if function not in places:
        kind, read = provider_kind(function), read_parameters(function)
        if read.others:
            names = ", ".join(map(repr, read.others))
            raise TypeError(
                f"the provider {name_of(function)} has a parameter {names} that nothing fills: annotate it with Context or "
                "Provide, or give it a default"
            )
        uses = {name: add_provider(mark, order, places, (*users, function)) for name, mark in read.marked.items()}
        order.append(Provider(function, kind, read.context, uses))
        places[function] = len(order) - 1
    return places[function]


class ReadParameters(NamedTuple):
    """The parameters of a function: the one for the context, the marked ones, and others without a default."""

    context: str | None
    marked: Mapping[str, Callable[..., object]]
    others: tuple[str, ...]


def read_parameters(function: Callable[..., object]) -> ReadParameters:
    """Return what the parameters of a function take. Raises `TypeError` if an annotation cannot be evaluated."""
    parameters = signature_of(function).parameters
    if not parameters:
        return ReadParameters(None, {}, ())
    try:
        hints = get_type_hints(plain_function(function), include_extras=True)
    except NameError as error:
        raise TypeError(f"an annotation of {name_of(function)} cannot be evaluated: {error}") from error
    context, marked, others = None, dict[str, Callable[..., object]](), list[str]()
    for name, parameter in parameters.items():
        mark = provide_of(parameter, hints.get(name), f"the parameter {name!r}")
        if mark is not None:
            check_provided_type(mark.function, hints[name], f"the parameter {name!r}")
            marked[name] = mark.function
        elif name in hints and is_context(hints[name]):
            context = name
        elif parameter.default is parameter.empty and parameter.kind not in VARIABLE:
            others.append(name)
    return ReadParameters(context, marked, tuple(others))


def provider_kind(function: object) -> ProviderKind:
    """Return how a provider makes its value. Raises `TypeError` if it is not a function, or a generator without its decorator."""
    name = name_of(function)
    # A context manager of contextlib is a decorator, too, and so can be called.
    if isinstance(function, Coroutine | ContextDecorator | AsyncContextDecorator):
        made = made_by(function)
        raise TypeError(
            f"Provide takes a function and not what it returns: write Provide({made}), not Provide({made}())"
        )
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"Provide takes a function, not {name}; write one that returns the value")
    for test, decorator in GENERATORS.items():
        if test(function):
            raise TypeError(f"the provider {name} is a generator: decorate it with {decorator}")
    if inspect.iscoroutinefunction(function):
        return ProviderKind.ASYNC
    # The decorators of contextlib keep the generator that they wrap.
    wrapped = getattr(function, "__wrapped__", None)
    try:
        returns = get_type_hints(plain_function(function)).get("return")
    except NameError:
        # The type of a value need not be known here.
        returns = None
    returns = get_origin(returns) or returns
    if inspect.isasyncgenfunction(wrapped) or returns is AbstractAsyncContextManager:
        return ProviderKind.ASYNC_MANAGER
    if inspect.isgeneratorfunction(wrapped) or returns is AbstractContextManager:
        return ProviderKind.MANAGER
    return ProviderKind.PLAIN


VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
GENERATORS: Mapping[Callable[[object], bool], str] = {
    inspect.isasyncgenfunction: "@asynccontextmanager",
    inspect.isgeneratorfunction: "@contextmanager",
}


def made_by(value: object) -> str:
    """Return the name of the function that was called for a value, and close the value if it is a coroutine."""
    if isinstance(value, Coroutine):
        # The error says what a warning would.
        value.close()
    return str(getattr(value, "__name__", "") or getattr(getattr(value, "func", None), "__name__", "function"))


def name_of(function: object) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
