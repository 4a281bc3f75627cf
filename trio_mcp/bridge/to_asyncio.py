"""What Trio functions await of asyncio: `run` and `open`, in the loop whose guest Trio is, or in one in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar, TypeVarTuple, cast

import trio

from .asyncio_call import AsyncioCall
from .guest import current_guest
from .hosts import Host
from .owned_loop import owned_loop
from .trio_call import wait_through_cancels

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LEAVE_SECONDS: Final = 5.0
"""Seconds that a context manager has to leave after a cancel, before it is cancelled once more."""


def current_host() -> Host:
    """Return the asyncio loop of this Trio run: the one whose guest it is, or else its own in a thread."""
    return current_guest() or owned_loop()


async def run(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run an asyncio function as a task of an asyncio loop, and return what it returns.

    In an asyncio program the loop is that of the program. Elsewhere it is one loop in a thread, which starts with the first use
    and ends with the Trio run.

    Raises:
        RuntimeError: the function raised `asyncio.CancelledError` without having been cancelled; or this does not run on Trio.

    A cancel cancels the task, and returns when it has ended.
    """
    return await AsyncioCall(current_host(), called(fn, *args)).result()


@asynccontextmanager
async def open(
    manager: AbstractAsyncContextManager[T] | Callable[[], AbstractAsyncContextManager[T]],
) -> AsyncGenerator[T]:
    """Enter a context manager of asyncio, and yield its value; leave it behind the block. One asyncio task does both.

        async with to_asyncio.open(lambda: asyncpg.create_pool(DSN)) as pool:
            ...

    An exception of the block is raised in that task, where the manager may suppress it. If the block is cancelled, so is the
    task.

    Args:
        manager: the context manager; or a function that returns it, which is called in the loop, if it needs the loop already.
    """
    held = HeldManager(current_host(), manager)
    value = await held.enter()
    try:
        yield value
    except trio.Cancelled:
        await held.cancel()  # noqa: ASYNC102  it has a shield and a time limit
        raise
    except BaseException as error:  # noqa: ASYNC103  the manager decides
        if has_cancel(error):
            await held.cancel()  # noqa: ASYNC120  it has a shield and a time limit
            raise
        await held.leave(error)
    else:
        await held.leave(None)


async def called(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    # Called in the loop, which some functions ask for at once.
    return await fn(*args)


def has_cancel(error: BaseException) -> bool:
    """Return whether an exception is a group that holds a cancel."""
    return isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None


class HeldManager(Generic[T]):
    """A context manager of asyncio that one task enters, holds open, and leaves."""

    def __init__(
        self, host: Host, manager: AbstractAsyncContextManager[T] | Callable[[], AbstractAsyncContextManager[T]]
    ) -> None:
        self._host = host
        self._manager = manager
        # Of the loop, once the task is started.
        self._task: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[T] | None = None
        self._left: asyncio.Future[BaseException | None] | None = None

    async def enter(self) -> T:
        """Start the task, and return the value of the manager."""
        return await AsyncioCall(self._host, self._enter()).result()

    async def leave(self, error: BaseException | None) -> None:
        """Leave the manager, with an exception or without. Raises the exception again, unless the manager suppresses it."""
        await AsyncioCall(self._host, self._leave(error)).result()

    async def cancel(self) -> None:
        """Leave the manager after a cancel: `asyncio.CancelledError` is raised in its task. Shielded."""
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await AsyncioCall(self._host, self._cancel()).result()

    # in the loop

    async def _hold(self) -> None:
        assert self._entered is not None
        assert self._left is not None
        manager = self._manager if isinstance(self._manager, AbstractAsyncContextManager) else self._manager()
        async with manager as value:
            self._entered.set_result(value)
            error = await self._left
            try:
                if error is not None:
                    raise error
            finally:
                del error

    async def _enter(self) -> T:
        loop = asyncio.get_running_loop()
        self._entered, self._left = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._hold(), name=f"{type(self._manager).__name__} for Trio")
        try:
            both = {cast("asyncio.Future[object]", self._task), cast("asyncio.Future[object]", self._entered)}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel()  # noqa: ASYNC102  it cancels the task, and waits for its end
            raise
        if self._task.done():
            self._task.result()
            raise RuntimeError("the context manager ended while it was entered")
        return self._entered.result()

    async def _leave(self, error: BaseException | None) -> None:
        assert self._task is not None
        assert self._left is not None
        self._left.set_result(error)
        try:
            await wait_for_end(self._task)
        finally:
            del error
        self._task.result()

    async def _cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await wait_for_end(self._task)
        # What it raises in place of the cancel would hide the cancel.
        if not self._task.cancelled():
            self._task.exception()


async def wait_for_end(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task; a cancel is passed on to it, and raised afterwards."""
    ended: asyncio.Future[None] = task.get_loop().create_future()
    task.add_done_callback(lambda _task: ended.set_result(None))
    await wait_through_cancels(ended, task.cancel)
