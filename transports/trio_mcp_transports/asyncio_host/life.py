"""The life of our application on an asyncio host: where it runs, and what the signals do that end the host."""

# uvicorn closes its connections before it sends `lifespan.shutdown`, and waits for streams without end; then it raises the
# signal again, so that the process ends before the loop cancels its tasks. So the application hears the signals first:
#
#   its lifespan is run by        first signal                                          second signal
#   itself, at its first request  drains, ends the server, and then passes it on        is passed on at once
#   the host                      is passed on at once; drains beside the host's end    is passed on at once

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import FrameType
from typing import Protocol

import trio

from trio_mcp.bridge import Guest, hold_guest
from trio_mcp.server.running import log_tree
from trio_mcp.session import Service
from trio_mcp.session.event_loop import await_on_trio

from ..asgi.adapter import Receive, Scope, Send
from .direct import HostedRequest, RespondingApp
from .relay import Relay


class ServingApp(Protocol):
    """The application of one server."""

    @property
    def service(self) -> Service:
        """Its running service. Raises `RuntimeError` before it has started."""


class HostedApp(RespondingApp, Protocol):
    """What this needs of an application.

    Attributes:
        residence: where it runs on asyncio; None before its first request there.
        drain_seconds: how long running calls have to end after a signal; None leaves signals alone.
    """

    residence: Residence | None
    drain_seconds: float | None

    @property
    def apps(self) -> Mapping[str, ServingApp]:
        """The applications of single servers."""

    @property
    def is_run_by_host(self) -> bool:
        """Whether the host runs its lifespan."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a scope."""

    async def drain(self, seconds: float) -> None:
        """Let running calls end, and close the streams."""

    async def stop(self) -> None:
        """End what its first request has started."""

    def abandon(self, *, has_failed: bool) -> None:
        """Forget what ran in a Trio run that has ended. If it has failed, the next request starts it, also if the host ran it."""


async def serve_on_asyncio(app: HostedApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a scope of an asyncio host."""
    guest = await hold_guest()
    try:
        reside(app, guest)
        serving = HostedRequest if scope["type"] == "http" else Relay
        await serving(guest, scope, receive, send).serve(app)
    finally:
        guest.release()
        if guest.is_ending:
            await guest.wait_ended()  # noqa: ASYNC102  it ends by itself within seconds


@asynccontextmanager
async def lifespan_on_asyncio(
    app: HostedApp, serving: Callable[[], AbstractAsyncContextManager[None]]
) -> AsyncGenerator[None]:
    """Serve in the block, on asyncio. One Trio task enters and leaves what serves.

    Raises:
        Exception: what `serving` raises, at its start or at the end of the block.

    A cancel at the start ends what was started.
    """
    guest = await hold_guest()
    try:
        reside(app, guest)
        started, over = guest.loop.create_future(), trio.Event()

        async def hold() -> None:
            async with serving():
                started.set_result(None)
                await over.wait()

        task = guest.loop.create_task(await_on_trio(hold), name="the lifespan of an MCP server")
        try:
            await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                yield
        finally:
            if started.done():
                over.set()
            else:
                # The host gives the start up, or the start has failed.
                task.cancel()
            if started.done() and guest.has_failed:
                await asyncio.gather(task, return_exceptions=True)  # noqa: ASYNC102  it has failed with Trio, which was logged
                # A later request may have started it again.
                await await_on_trio(app.stop)  # noqa: ASYNC102  the server's shutdown has its own time limits
            else:
                await task  # noqa: ASYNC102  the same
    finally:
        guest.release()
        if guest.is_ending:
            await guest.wait_ended()  # noqa: ASYNC102  it ends by itself within seconds


def reside(app: HostedApp, guest: Guest) -> None:
    """Note in which guest an application is served. What ran in another one has ended with it."""
    if app.residence is None or app.residence.guest is not guest:
        if app.residence is not None:
            app.abandon(has_failed=app.residence.guest.has_failed)
        app.residence = Residence(app, guest)


class Residence:
    """Where an application runs on asyncio: a context that it holds while it serves.

    Attributes:
        guest: the Trio run.
    """

    def __init__(self, app: HostedApp, guest: Guest) -> None:
        self.guest = guest
        self._app = app
        self._has_begun = False
        self._previous: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._tree_signal = TreeSignal(app, guest.loop)
        self._draining: asyncio.Task[None] | None = None

    def turns(self) -> int:
        """Return how many turns Trio has had."""
        return self.guest.turns

    def __enter__(self) -> None:
        self.guest.hold()
        if self._app.drain_seconds is None or threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            # Only in front of what the host has set.
            if callable(handler) and handler is not signal.default_int_handler:
                self._previous[number] = handler
                signal.signal(number, self._heard)
        self._tree_signal.take()

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._previous.items():
            # Unless the host has set another one meanwhile.
            if signal.getsignal(number) == self._heard:
                signal.signal(number, handler)
        self._tree_signal.release()
        self.guest.release()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        first, self._has_begun = not self._has_begun, True
        if not first or self._app.is_run_by_host:
            self._previous[number](number, frame)
        if first:
            self.guest.loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        self._draining = self.guest.loop.create_task(self._drain(number), name="draining an MCP server")

    async def _drain(self, number: int) -> None:
        pass_on = None if self._app.is_run_by_host else self._previous[number]
        try:
            await await_on_trio(self._end)
        finally:
            if pass_on is not None:
                pass_on(number, None)

    async def _end(self) -> None:
        await self._app.drain(self._app.drain_seconds or 0.0)
        if not self._app.is_run_by_host:
            await self._app.stop()


class TreeSignal:
    """SIGUSR1, which would end the process: it logs what runs, unless the program handles or ignores it."""

    def __init__(self, app: HostedApp, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._loop = loop
        self._number: signal.Signals | None = getattr(signal, "SIGUSR1", None)
        self._is_taken = False
        self._earlier: TreeSignal | None = None
        """That of another application in this process."""

    def take(self) -> None:
        """Handle it, if nothing else does. For the main thread only."""
        if self._number is None:
            return
        handler = signal.getsignal(self._number)
        owner = getattr(handler, "__self__", None)
        self._earlier = owner if isinstance(owner, TreeSignal) else None
        if handler is signal.SIG_DFL or self._earlier is not None:
            self._is_taken = True
            signal.signal(self._number, self._heard)

    def release(self) -> None:
        """Leave it to the one before, unless a later one has it, which goes on without this."""
        if self._is_taken and self._number is not None:
            self._is_taken = False
            if signal.getsignal(self._number) == self._heard:
                signal.signal(self._number, signal.SIG_DFL if self._earlier is None else self._earlier._heard)  # noqa: SLF001

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._earlier is not None:
            self._earlier._heard(number, frame)  # noqa: SLF001
        if self._is_taken:
            self._loop.call_soon_threadsafe(self._log)

    def _log(self) -> None:
        for app in self._app.apps.values():
            # Raised while it starts.
            with suppress(RuntimeError):
                log_tree(app.service)
