"""One Trio run as the guest of an asyncio event loop, in its thread. Everything of this package in the loop shares it."""

# Trio's guest mode allows one run in a thread. So the first user of a loop starts it, and it ends with its last user.
#
#   state     event                                        next
#   --------  -------------------------------------------  -----------------------------------------------------------
#   (none)    first `hold`                                 running
#   running   last `release`                               ending: its main task is cancelled
#   running   the loop cancels its tasks (`asyncio.run`)   ending: the keeper waits for the end, so that the loop stays open
#   running   a system task raises (`TrioInternalError`)   ended: logged once; open calls raise RuntimeError
#   ending    Trio has ended                               ended; a `hold` that has waited for it starts another run
#
# A run that ends is never used again. Users are open clients, servers, and every call that crosses from asyncio to Trio.

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from types import FrameType
from typing import TypeVar

import outcome
import trio

from .asyncio_call import AsyncioCall
from .hosts import Host, OpenCall
from .trio_call import wait_through_cancels

T = TypeVar("T")

logger = logging.getLogger("trio_mcp.bridge")

_here = threading.local()
"""The guest of this thread, as `guest`."""


class Guest(Host):
    """A Trio run in the thread of the running asyncio loop; `hold_guest` returns it.

    Attributes:
        loop: the loop.
        calls: the calls from asyncio that are open.
        is_ending: it takes no more users.
        has_failed: Trio has ended by a failure of one of its system tasks.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls = set[OpenCall]()
        # An attribute, since each request asks for it several times.
        self.is_ending = False
        self.has_failed = False
        self._turns = TurnCount()
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._kept: asyncio.Future[None] = self.loop.create_future()
        self._scope = trio.CancelScope()
        self._users = 0
        with interrupts_left_alone():
            trio.lowlevel.start_guest_run(
                self._main,
                run_sync_soon_threadsafe=self.loop.call_soon_threadsafe,
                run_sync_soon_not_threadsafe=self.loop.call_soon,
                done_callback=self._done,
                # Of the loop: Trio would take its place.
                host_uses_signal_set_wakeup_fd=True,
            )
        _here.guest = self
        self._keeper = self.loop.create_task(self._keep(), name="Trio as the guest of this event loop")

    @property
    def turns(self) -> int:
        """How many turns Trio has had; in each, every one of its tasks that is ready runs once."""
        return self._turns.count

    def hold(self) -> None:
        """Add a user."""
        self._users += 1

    def release(self) -> None:
        """Remove a user. The run ends with the last one."""
        self._users -= 1
        if not self._users:
            self._end()

    async def wait_ended(self) -> None:
        """Wait on asyncio until Trio has ended and its keeper with it. A cancel is raised afterwards."""
        await wait_through_cancels(self._kept)

    async def run(self, awaitable: Awaitable[T]) -> T:
        """Await something of asyncio on Trio, in a task of the loop. See `AsyncioCall`."""
        return await AsyncioCall(self, awaitable).result()

    # Both run in one thread.

    def start(self, function: Callable[[], object], context: Context) -> None:
        context.run(function)

    def settle(self, function: Callable[[], object]) -> None:
        function()

    def to_trio(self, function: Callable[[], object]) -> None:
        function()

    def _end(self) -> None:
        self.is_ending = True
        self._scope.cancel()

    async def _main(self) -> None:
        trio.lowlevel.add_instrument(self._turns)
        try:
            with self._scope:
                await trio.sleep_forever()
        finally:
            # Also by a failure of another task.
            self.is_ending = True

    async def _keep(self) -> None:
        """End Trio when the loop cancels its tasks."""
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:  # noqa: ASYNC103  the loop ends its tasks, and this one ends with Trio
            self._end()
            await wait_through_cancels(self._ended)  # noqa: ASYNC102  Trio was cancelled, and its clean-up is bounded
        finally:
            self._kept.set_result(None)

    def _done(self, result: outcome.Outcome[None]) -> None:
        del _here.guest
        self.is_ending = True
        if isinstance(result, outcome.Error):
            self.has_failed = True
            logger.error("Trio has failed in this event loop; its calls fail", exc_info=result.error)
        for call in [*self.calls]:
            call.end()
        self._ended.set_result(None)

    def __repr__(self) -> str:
        state = "ended" if self._ended.done() else "ending" if self.is_ending else "running"
        return f"<Guest {state} users={self._users}>"


class TurnCount(trio.abc.Instrument):
    """Counts the turns of a Trio run."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002  Trio passes it
        self.count += 1


async def hold_guest() -> Guest:
    """Return the guest of the running asyncio loop, with one more user; start it if there is none.

    Raises:
        RuntimeError: another loop of this thread has one, or another library has started Trio here.
    """
    while True:  # noqa: ASYNC913  each round waits for the end of a guest
        guest = current_guest()
        if guest is None:
            guest = Guest()
        elif guest.loop is not asyncio.get_running_loop():
            raise RuntimeError(occupied(guest.loop))
        elif guest.is_ending:
            await guest.wait_ended()
            continue
        guest.hold()
        return guest


def current_guest() -> Guest | None:
    """Return the guest that runs in this thread, if one does."""
    return getattr(_here, "guest", None)


def occupied(loop: asyncio.AbstractEventLoop) -> str:
    """Return why Trio cannot start in this thread: another loop still has it."""
    if loop.is_closed():
        return (
            f"Trio cannot start in this thread again: the event loop {loop!r} was closed while a client or a server of "
            "trio_mcp was open in it; close these first, or use asyncio.run"
        )
    return f"Trio runs in this thread for another event loop, {loop!r}: use trio_mcp in one loop of a thread"


def interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Python does at SIGINT."""
    signal.default_int_handler(number, frame)


@contextmanager
def interrupts_left_alone() -> Generator[None]:
    """Keep Trio from handling SIGINT, which is the program's: with Trio's handler, Ctrl-C would end Trio alone."""
    # Trio takes it over if Python's own handler is set, which only the main thread can change.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
