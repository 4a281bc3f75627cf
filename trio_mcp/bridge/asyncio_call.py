"""Awaiting asyncio code on Trio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Generic, Never, TypeVar

import outcome
import trio

from ..base import forks
from .hosts import Host

T = TypeVar("T")


class AsyncioCall(Generic[T]):
    """Something awaitable of asyncio, awaited in a task of an asyncio loop; one Trio task waits for it.

    `trio.Cancelled` never enters the asyncio task, and `asyncio.CancelledError` never leaves it: a cancel of the Trio task
    cancels the asyncio task, and the Trio task goes on when that one has ended.

    Attributes:
        awaitable: what is awaited.
        waiting: the Trio task; None before it waits.
    """

    def __init__(self, host: Host, awaitable: Awaitable[T]) -> None:
        self._host = host
        self.awaitable = awaitable
        self._outcome: outcome.Value[T] | outcome.Error | None = None
        self.waiting: trio.lowlevel.Task | None = None
        self._raise_cancel: Callable[[], Never] | None = None
        # Of the thread of the loop.
        self._task: asyncio.Task[None] | None = None
        self._is_begun = False
        self._is_cancelled = False
        self._generation = forks.generation

    async def result(self) -> T:
        """Return what it returns, and raise what it raises.

        Raises:
            RuntimeError: the asyncio code raised `CancelledError` without having been cancelled.
            trio.Cancelled: this task was cancelled, and the asyncio code has ended because of it.
        """
        self.waiting = trio.lowlevel.current_task()
        self._host.start(self._start, copy_context())
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        found, self._outcome = self._outcome, None
        raise_cancel, self._raise_cancel = self._raise_cancel, None
        try:
            if isinstance(found, outcome.Value):
                return found.value
            if found is not None and not isinstance(found.error, asyncio.CancelledError):
                found.unwrap()
        finally:
            # The traceback of its error refers to this frame, and to this object.
            del found
        if raise_cancel is not None:
            raise_cancel()
        # The loop cancels its tasks when it ends, and Trio with them.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise RuntimeError("asyncio code was cancelled by asyncio, and not by its caller")

    def _abort(self, raise_cancel: Callable[[], Never]) -> trio.lowlevel.Abort:
        self._raise_cancel = raise_cancel
        self._host.start(self._cancel, copy_context())
        return trio.lowlevel.Abort.FAILED

    # in the thread of the loop

    def _start(self) -> None:
        # Not by the task factory of the loop: what begins at once, as an eager task does, would take itself for a Trio task.
        self._task = asyncio.Task(self._run(), loop=self._host.loop, name="asyncio code that Trio awaits")
        self._task.add_done_callback(self._not_begun)

    def _cancel(self) -> None:
        assert self._task is not None
        self._is_cancelled = True
        # Not before it has begun: the code of a task that is cancelled before its first step never runs, nor its clean-up.
        if self._is_begun:
            self._task.cancel()

    async def _run(self) -> None:
        assert self._task is not None
        self._is_begun = True
        self._task.remove_done_callback(self._not_begun)
        if self._is_cancelled:
            self._host.loop.call_soon(self._cancel)
        # Everything, because a `SystemExit` in a task would end the loop.
        try:
            self._outcome = outcome.Value(await self.awaitable)
        except BaseException as error:  # noqa: ASYNC103, BLE001  it is raised on Trio
            self._outcome = outcome.Error(error)
        # A tool has forked, and the child returned from it. Its copy of the loop would take what comes for the process.
        if forks.generation != self._generation:
            os._exit(1)
        self._go_on()

    def _not_begun(self, _task: asyncio.Task[None]) -> None:
        """Go on although the loop has cancelled the task before its first step."""
        if isinstance(self.awaitable, Coroutine):
            self.awaitable.close()
        self._go_on()

    def _go_on(self) -> None:
        assert self.waiting is not None
        self._host.to_trio(partial(trio.lowlevel.reschedule, self.waiting))
