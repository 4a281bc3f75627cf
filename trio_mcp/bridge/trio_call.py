"""Awaiting a Trio function on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Generic, TypeVar

import outcome
import trio

from ..base.groups import split_group
from .hosts import Host

T = TypeVar("T")

ENDED = "Trio has ended, or the call that this belongs to, before this call has"


class TrioCall(Generic[T]):
    """A call of a Trio function that one asyncio task awaits.

    `asyncio.CancelledError` never enters the Trio task, and `trio.Cancelled` never leaves it: a cancel of the asyncio task
    cancels a scope round the function, and the asyncio task goes on when the Trio task has ended.

    Args:
        nursery: owns the Trio task; by default it is a system task, which the asyncio task outlives.
    """

    def __init__(self, host: Host, function: Callable[[], Awaitable[T]], nursery: trio.Nursery | None = None) -> None:
        self._host = host
        self._function = function
        self._nursery = nursery
        self._outcome: outcome.Value[T] | outcome.Error | None = None
        self._scope = trio.CancelScope()
        self._ended: asyncio.Future[None] = host.loop.create_future()

    async def result(self, context: Context) -> T:
        """Run the function on Trio with these context variables, and return what it returns.

        Raises:
            RuntimeError: Trio has ended first, or the task of the nursery.
            asyncio.CancelledError: the task was cancelled, and the function has ended; or the task of the nursery was.
        """
        self._host.calls.add(self)
        try:
            self._host.to_trio(partial(self._start, context))
            await wait_through_cancels(self._ended, partial(self._host.to_trio, self._scope.cancel))
        finally:
            self._host.calls.discard(self)
        found, self._outcome = self._outcome, None
        try:
            if found is not None:
                return found.unwrap()
        finally:
            # The traceback of its error refers to this frame, and to this object.
            del found
        if self._nursery is not None and self._nursery.cancel_scope.cancel_called:
            raise asyncio.CancelledError
        raise RuntimeError(ENDED)

    def end(self) -> None:
        """Wake the asyncio task."""
        self._host.settle(partial(settle, self._ended))

    # in the thread of Trio

    def _start(self, context: Context) -> None:
        try:
            if self._nursery is None:
                trio.lowlevel.spawn_system_task(self._run, name=self._function, context=context)
            else:
                context.run(self._nursery.start_soon, self._run)
        # The nursery is closed.
        except RuntimeError as error:
            self._outcome = outcome.Error(error)
            self.end()

    async def _run(self) -> None:
        """Run the function, and let only a cancel out: what leaves a system task ends Trio."""
        try:
            with self._scope:
                self._outcome = outcome.Value(await self._function())
        except BaseException as error:  # noqa: BLE001, ASYNC103  the asyncio task raises it
            self._contain(error)
        finally:
            self.end()

    def _contain(self, error: BaseException) -> None:
        cancelled, rest = split_group(error, trio.Cancelled)
        if rest is not None:
            self._outcome = outcome.Error(rest)
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            # Their tracebacks refer to this frame.
            del error, cancelled, rest


async def wait_through_cancels(future: asyncio.Future[None], on_cancel: Callable[[], object] | None = None) -> None:
    """Wait for a future, also when the task is cancelled, and raise the first cancel afterwards.

    Args:
        on_cancel: is called at each cancel.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        # A cancel of the task cancels what it awaits: this one, which costs less than `asyncio.shield`.
        waiter: asyncio.Future[None] = future.get_loop().create_future()
        future.add_done_callback(partial(settle, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:  # noqa: ASYNC103  it is raised when the future is done
            cancelled = cancelled or error
            if on_cancel is not None:
                on_cancel()
    try:
        if cancelled is not None:
            raise cancelled
    finally:
        # Its traceback refers to this frame.
        del cancelled


def settle(waiter: asyncio.Future[None], _future: asyncio.Future[None] | None = None) -> None:
    """Set a future, unless it is done."""
    if not waiter.done():
        waiter.set_result(None)
