"""Awaiting a Trio function on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

import outcome
import trio

from ..base.groups import split_group
from .guest import Guest, wait_through_cancels

T = TypeVar("T")

ENDED = "Trio has ended in this event loop before this call has"


class TrioCall(Generic[T]):
    """A call of a Trio function, in a system task of a guest; one asyncio task awaits its result.

    `asyncio.CancelledError` never enters the Trio task, and `trio.Cancelled` never leaves it: a cancel of the asyncio task
    cancels a scope round the function, and the asyncio task goes on when the Trio task has ended.
    """

    def __init__(self, guest: Guest, function: Callable[[], Awaitable[T]]) -> None:
        self._guest = guest
        self._function = function
        self._outcome: outcome.Value[T] | outcome.Error | None = None
        self._scope = trio.CancelScope()
        self._ended: asyncio.Future[None] = guest.loop.create_future()

    async def result(self, context: Context) -> T:
        """Run the function on Trio with these context variables, and return what it returns.

        Raises:
            RuntimeError: Trio has ended first.
            asyncio.CancelledError: the task was cancelled; the function has ended.
        """
        self._guest.calls.add(self)
        try:
            trio.lowlevel.spawn_system_task(self._run, name=self._function, context=context)
            await wait_through_cancels(self._ended, self._scope)
        finally:
            self._guest.calls.discard(self)
        if self._outcome is None:
            raise RuntimeError(ENDED)
        return self._outcome.unwrap()

    def end(self) -> None:
        """Wake the asyncio task."""
        if not self._ended.done():
            self._ended.set_result(None)

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
        if cancelled is not None:
            raise cancelled
