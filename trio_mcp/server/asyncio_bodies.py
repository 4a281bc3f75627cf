"""Functions of an author that run on asyncio: `asyncio=True`."""

# A body is a task of an asyncio loop; the Trio task of its call, branch or step waits for it. What the body awaits of its context
# runs as a Trio task in a nursery that the waiting task holds open: in the same lane, with the same deadlines.
#
#   Trio task of the lane                asyncio task                       Trio task in the nursery
#   opens the nursery, starts the body
#   waits for it                         awaits ctx.elicit(...)
#                                        waits                              asks in the lane: the leg may end, the call is parked
#                                        goes on                            has the answer
#   closes the nursery                   returns
#
# While the body awaits asyncio its lane is busy, so that no leg ends early.

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar, cast

import trio

from .. import to_asyncio
from ..base.groups import UnwrappedErrors
from ..base.unawaited import Unawaited
from ..bridge import Host, TrioCall, current_host
from .context import BranchGroup, Context
from .elicit.elicitation import Elicitation
from .provide import Provider, ProviderKind
from .values.callables import callable_name, is_async, plain_function

if TYPE_CHECKING:
    from .branching import Messages

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Function = Callable[..., object]


def on_asyncio(function: Function) -> Function:
    """Return a function for Trio, with the same signature, that runs an async function as a task of an asyncio loop.

    A `Context` among its arguments is awaited on asyncio, too.

    Raises:
        TypeError: the function is not async.
    """
    if isinstance(function, partial):
        return partial(on_asyncio(function.func), *function.args, **function.keywords)
    if not is_async(function):
        raise TypeError(
            f"{callable_name(function)}: asyncio=True is for an async function; a plain one runs in a thread"
        )
    body = cast("Callable[..., Awaitable[object]]", function)

    @wraps(plain_function(function))
    async def run(*args: object, **options: object) -> object:
        if not any(isinstance(value, Context) for value in (*args, *options.values())):
            return await to_asyncio.run(partial(body, *args, **options))
        # Not in a context manager made of a generator, which on CPython 3.13 leaves an error in a cycle with its frames.
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                home = Home(current_host(), nursery)
                result = await to_asyncio.run(partial(body, *map(home.moved, args), **home.moved_options(options)))
                home.check_awaited(args, options)
                # What it has not awaited of its context ends with it.
                nursery.cancel_scope.cancel()
        return result

    run.runs_on_asyncio = True  # type: ignore[attr-defined]
    return run


def runs_on_asyncio(function: Function) -> bool:
    """Return whether a function is one of `on_asyncio`."""
    return hasattr(plain_function(function), "runs_on_asyncio")


def provider_on_asyncio(provider: Provider) -> Provider:
    """Return the provider of a function that runs on asyncio: if it is async, it runs there, too."""
    match provider.kind:
        case ProviderKind.ASYNC:
            return provider._replace(function=on_asyncio(provider.function))
        case ProviderKind.ASYNC_MANAGER:
            return provider._replace(function=partial(open_on_asyncio, provider.function))
        case ProviderKind.PLAIN | ProviderKind.MANAGER:
            return provider


@asynccontextmanager
async def open_on_asyncio(function: Function, **options: object) -> AsyncGenerator[object]:
    """Enter the context manager that an author's function returns, on asyncio; leave it behind the block."""
    make = cast("Callable[..., AbstractAsyncContextManager[object]]", function)
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            home = Home(current_host(), nursery)
            async with to_asyncio.open(partial(make, **home.moved_options(options))) as value:
                yield value
            nursery.cancel_scope.cancel()


class Home:
    """Where one body on asyncio has its context: the loop, and the nursery in which what it awaits of its context runs.

    Attributes:
        unawaited: the names of the answers that were not awaited yet.
    """

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self._host = host
        self._nursery = nursery
        # Of the thread of the loop, as long as the body runs; so not in the lane.
        self.unawaited: dict[int, str] = {}

    def moved(self, value: object) -> object:
        """Return a context as the body gets it; any other value as it is."""
        return AsyncioContext(value, self) if isinstance(value, Context) else value

    def moved_options(self, options: Mapping[str, object]) -> dict[str, object]:
        """Return keyword arguments as the body gets them."""
        return {name: self.moved(value) for name, value in options.items()}

    def answer(self, name: str, function: Callable[[], Awaitable[T]]) -> AsyncioAnswer[T]:
        """Return what runs a method of a context on Trio when it is awaited on asyncio."""
        return AsyncioAnswer(self._run(function), name, self.unawaited)

    def check_awaited(self, args: tuple[object, ...], options: Mapping[str, object]) -> None:
        """Pass the answers that the body has dropped on to its lane, which fails for them."""
        for value in (*args, *options.values()):
            if isinstance(value, Context) and self.unawaited:
                value._lane.unawaited = (*value._lane.unawaited, *self.unawaited.values())  # noqa: SLF001

    async def _run(self, function: Callable[[], Awaitable[T]]) -> T:
        return await TrioCall(self._host, function, self._nursery).result(copy_context())


class AsyncioAnswer(Unawaited[T_co]):
    """A coroutine of a body on asyncio, which fails if it drops it; see `UnawaitedAnswer`."""

    __slots__ = ("_unawaited",)

    def __init__(self, coroutine: Coroutine[object, object, T_co], name: str, unawaited: dict[int, str]) -> None:
        super().__init__(coroutine, name)
        self._unawaited = unawaited
        unawaited[id(self)] = name

    def __await__(self) -> Generator[object, None, T_co]:
        self._unawaited.pop(id(self), None)
        return super().__await__()

    def send(self, value: object) -> object:
        self._unawaited.pop(id(self), None)
        return super().send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        self._unawaited.pop(id(self), None)
        return super().throw(kind, value, traceback)

    def close(self) -> None:
        self._unawaited.pop(id(self), None)
        super().close()


class AsyncioContext(Context):
    """The context of a body that runs on asyncio: what `Context` has, awaited there.

    Functions that it is given for steps, branches and tool loops run on asyncio, too, if they are async.
    """

    __slots__ = ("_home", "_origin")

    def __init__(self, origin: Context, home: Home) -> None:
        # Not its messages: both have one conversation.
        self._call = origin._call  # noqa: SLF001  here and below: both are views of one call
        self._lane = origin._lane  # noqa: SLF001
        self._terms = origin._terms  # noqa: SLF001
        self._origin: Context = origin._origin if isinstance(origin, AsyncioContext) else origin  # noqa: SLF001
        self._home = home

    @property
    def _messages(self) -> Messages:
        return self._origin._messages  # noqa: SLF001

    @_messages.setter
    def _messages(self, messages: Messages) -> None:
        self._origin._messages = messages  # noqa: SLF001

    @property
    def elicit(self) -> Elicitation:
        return cast("Elicitation", AsyncioElicitation(self._home, self._origin.elicit))

    @property
    def deadline(self) -> float:
        return self._call.actor.deadline

    def branches(self) -> BranchGroup:
        raise RuntimeError("ctx.branches() is for functions that run on Trio: use ctx.branch_all, or asyncio.TaskGroup")


class AsyncioElicitation:
    """`ctx.elicit` of a body on asyncio."""

    __slots__ = ("_elicitation", "_home")

    def __init__(self, home: Home, elicitation: Elicitation) -> None:
        self._home = home
        self._elicitation = elicitation

    def __call__(self, *args: object, **options: object) -> AsyncioAnswer[object]:
        return self._home.answer("ctx.elicit", partial(cast("Body", self._elicitation), *args, **options))

    def strict(self, *args: object, **options: object) -> AsyncioAnswer[object]:
        return self._home.answer("ctx.elicit.strict", partial(cast("Body", self._elicitation.strict), *args, **options))

    def with_retry(self, *args: object, **options: object) -> AsyncioAnswer[object]:
        retry = cast("Body", self._elicitation.with_retry)
        return self._home.answer("ctx.elicit.with_retry", partial(retry, *args, **options))


Body = Callable[..., Awaitable[object]]

AWAITED: Final = (
    "become_task branch branch_all branch_race debug elicit_url end_stream error get_prompt info log progress read_resource "
    "roots run_tool_loop sample sample_schema sample_tools status step warning"
)
"""The async methods of `Context`."""


def awaited_on_asyncio(name: str) -> Callable[..., AsyncioAnswer[object]]:
    """Return a method of `AsyncioContext` that awaits one of `Context`."""
    method = cast("Body", getattr(Context, name))

    @wraps(method)
    def call(self: AsyncioContext, *args: object, **options: object) -> AsyncioAnswer[object]:
        given = {key: function_of_body(value) for key, value in options.items()}
        ask = partial(method, self._origin, *map(function_of_body, args), **given)
        return self._home.answer(f"ctx.{name}", ask)

    return call


def function_of_body(value: object) -> object:
    """Return an argument for a method of `Context`: an async function of the body, also in a list, runs on asyncio."""
    if isinstance(value, list | tuple):
        return [*map(function_of_body, value)]
    if callable(value) and not isinstance(value, type) and is_async(value):
        return on_asyncio(value)
    return value


for _name in AWAITED.split():
    setattr(AsyncioContext, _name, awaited_on_asyncio(_name))
