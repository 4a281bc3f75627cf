"""An asyncio loop in a thread, for the asyncio code of a Trio run that is no guest of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from typing import Final

import trio

from .hosts import Host, OpenCall


class OwnedLoop(Host):
    """An asyncio loop in a thread, started at its first use. It is closed with the Trio run, when its tasks have ended.

    Attributes:
        thread: the identifier of its thread.
    """

    def __init__(self) -> None:
        self.calls = set[OpenCall]()
        self._token = trio.lowlevel.current_trio_token()
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._main(started),), name="trio_mcp asyncio loop", daemon=True
        )
        self._thread.start()
        self.loop = started.result()
        assert self._thread.ident is not None
        self.thread = self._thread.ident
        trio.lowlevel.spawn_system_task(self._close_with_run)

    def start(self, function: Callable[[], object], context: Context) -> None:
        self.loop.call_soon_threadsafe(function, context=context)

    def settle(self, function: Callable[[], object]) -> None:
        # Closed, nothing of it waits any more.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function)

    def to_trio(self, function: Callable[[], object]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._stop.wait()

    async def _close_with_run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for call in [*self.calls]:
                call.end()
            self.settle(self._stop.set)
            with trio.CancelScope(shield=True):
                # Unbounded, as the threads of Trio are: what it waits for are tasks that were cancelled.
                await trio.to_thread.run_sync(self._thread.join)
            del LOOPS[self._token]


LOOPS: Final = dict[trio.lowlevel.TrioToken, OwnedLoop]()
"""The loop of each Trio run that has one; the watchdog looks at it from its thread."""


def owned_loop() -> OwnedLoop:
    """Return the asyncio loop of this Trio run; start it if there is none."""
    token = trio.lowlevel.current_trio_token()
    found = LOOPS.get(token)
    if found is None:
        found = LOOPS[token] = OwnedLoop()
    return found
