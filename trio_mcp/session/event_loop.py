"""Both event loops: functions of this package that run on Trio and may be awaited on asyncio, and errors of the wrong loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from importlib import import_module
from types import coroutine
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

import trio
from sniffio import AsyncLibraryNotFoundError, current_async_library

from ..base.groups import leaf_exceptions

if TYPE_CHECKING:
    from ..bridge import Guest

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[object]])

HOME: Final[ContextVar[Guest | None]] = ContextVar("HOME", default=None)
"""Where functions of the program run that a client calls: on asyncio, if the client was opened there, beside this guest; else on
Trio (None)."""


def works_on_asyncio(function: F) -> F:
    """Return an async function that runs on Trio, and that may be awaited on asyncio, too.

    Awaited on asyncio, it runs in the Trio run that is the guest of the loop, and starts one if there is none.
    """

    @wraps(function)
    def call(*args: object, **options: object) -> Awaitable[object]:
        # On Trio it is the coroutine of the function itself, so that nothing stands between.
        if trio.lowlevel.in_trio_task():
            return function(*args, **options)
        return await_on_trio(partial(function, *args, **options), args[0] if args else None)

    return cast("F", call)


def iterates_on_asyncio(function: Callable[P, AsyncGenerator[T]]) -> Callable[P, AsyncGenerator[T]]:
    """Return a function whose generator runs on Trio, and may be iterated over on asyncio, too."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> AsyncGenerator[T]:
        items = function(*args, **options)
        return items if trio.lowlevel.in_trio_task() else items_from_trio(items)

    return call


async def await_on_trio(function: Callable[[], Awaitable[T]], owner: object = None) -> T:
    """Run a function on Trio, from asyncio or from Trio, and return what it returns.

    Args:
        owner: if it is a client or a group, its `_opened_in` is the Trio run that it belongs to.

    Raises:
        RuntimeError: neither Trio nor asyncio runs here, or the owner was opened elsewhere.
    """
    # A coroutine may be awaited elsewhere than it was made.
    if trio.lowlevel.in_trio_task():
        return await function()
    check_event_loop("asyncio")
    # By its name: a program of Trio alone does not load it.
    bridge = import_module("trio_mcp.bridge")
    guest: Guest = await bridge.hold_guest()
    try:
        check_owner(owner)
        context = copy_context()
        context.run(HOME.set, guest)
        result: T = await bridge.TrioCall(guest, function).result(context)
        return result
    finally:
        guest.release()
        if guest.is_ending:
            await guest.wait_ended()  # noqa: ASYNC102  it ends by itself within seconds


NEEDS_TRIO: Final = object()
"""Yielded by a coroutine that was begun on asyncio, and that goes on in a Trio task."""


@coroutine
def move_to_trio() -> Generator[object, None, None]:
    """Go on in a Trio task. What may begin on asyncio, because it seldom waits, awaits this before it waits."""
    if not trio.lowlevel.in_trio_task():
        yield NEEDS_TRIO


async def items_from_trio(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield the items of a generator that runs on Trio."""
    try:
        while True:
            try:
                item = await await_on_trio(items.__anext__)
            except StopAsyncIteration:
                return
            yield item
    finally:
        await await_on_trio(items.aclose)  # noqa: ASYNC102  a generator's clean-up is bounded on Trio


def check_owner(owner: object) -> None:
    """Raise `RuntimeError` if this was opened in another Trio run than this thread's."""
    token: trio.lowlevel.TrioToken | None = getattr(owner, "_opened_in", None)
    if token is not None and token is not trio.lowlevel.current_trio_token():
        raise RuntimeError("this client was opened in another event loop: open one there")


def at_home(awaitable: Awaitable[T]) -> Awaitable[T]:
    """Return what awaits something of the program's where its functions run."""
    home = HOME.get()
    return awaitable if home is None or not trio.lowlevel.in_trio_task() else home.run(awaitable)


@contextmanager
def home_held() -> Generator[None]:
    """Keep Trio running in the block, if it is the guest of an asyncio loop."""
    home = HOME.get()
    if home is None:
        yield
        return
    home.hold()
    try:
        yield
    finally:
        home.release()


PAGE: Final = "https://github.com/trio-mcp/trio-mcp/blob/main/docs/asyncio.md"

ASYNCIO_ERRORS: Final = (
    (RuntimeError, "no running event loop"),
    (RuntimeError, "no current event loop"),
    (TypeError, "unrecognized yield message"),
    # `asyncio.Lock` and the like do not ask for the event loop before they have to wait.
    (AttributeError, "'NoneType' object has no attribute 'create_future'"),
    # Beside a guest there is a loop, and no task of it.
    (RuntimeError, "Timeout should be used inside a task"),
    (RuntimeError, "cannot determine the parent task"),
    (RuntimeError, "asyncio.run() cannot be called from a running event loop"),
)
"""The errors of asyncio without its event loop, and Trio's when a task awaits something of asyncio's."""


TRIO_ERRORS: Final = (
    (RuntimeError, "must be called from async context"),
    (AttributeError, "'RunContext' object has no attribute"),
)
"""Trio's errors outside of its tasks, and in a thread without it."""


def check_event_loop(allowed: str = "trio") -> None:
    """Raise `RuntimeError` unless this runs on Trio, or on the library that is allowed."""
    library = current_async_library()
    if library != allowed:
        raise RuntimeError(
            f"trio_mcp runs on Trio, not on {library}: start your program with trio.run ({PAGE} has other ways)"
        )


def check_no_event_loop() -> None:
    """Raise `RuntimeError` if an event loop runs in this thread: another one in it would block the first."""
    try:
        library = current_async_library()
    except AsyncLibraryNotFoundError:
        return
    if library == "trio":
        raise RuntimeError("server.run() starts Trio, which runs here already: write `await server.serve(...)`")
    raise RuntimeError(
        f"server.run() starts Trio, and would block {library}, which runs in this thread: write `await server.serve(...)`, or "
        f"call it outside of {library}.run() ({PAGE})"
    )


def asyncio_hint(error: BaseException, what: str) -> str:
    """Return advice to append to the text of an error, if code of the other loop has raised it; else an empty text.

    Args:
        what: what has raised it, such as "tool".
    """
    if is_one_of(error, ASYNCIO_ERRORS):
        return (
            f"; this {what} runs on Trio, not on asyncio: write trio.sleep and the like, asyncio=True where it is registered, "
            f"or to_asyncio.run; see {PAGE}"
        )
    if is_one_of(error, TRIO_ERRORS):
        return f"; this {what} runs on asyncio (asyncio=True) or in a thread, not on Trio; see {PAGE}"
    return ""


def is_one_of(error: BaseException, known: tuple[tuple[type[Exception], str], ...]) -> bool:
    """Return whether an error, or one in a group, is of a kind and has a text of these."""
    return any(
        isinstance(leaf, kind) and text in text_of(leaf) for leaf in leaf_exceptions(error) for kind, text in known
    )


def text_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  it is the author's code
        return f"its text failed with {type(failure).__name__}"
