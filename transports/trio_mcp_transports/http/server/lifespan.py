"""How the application starts and ends: with the lifespan events of an ASGI server, or mounted in another application."""

# Starlette and FastAPI pass the lifespan events to the outermost application only. The first request then starts this one in a
# system task, which Trio cancels when the program ends: it belongs to no request.

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

import trio

from trio_mcp.base.logs import peer_logger
from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.jsonrpc import SERVER_BUSY

from ...asgi.access import HttpRejection
from ...asgi.adapter import Receive, Send
from ...asgi.authentication import log_failures

logger = peer_logger("trio_mcp.http")

RESTART_DELAY: Final = 5.0
"""Seconds after a failed start, or a failure while serving, in which requests are rejected without another attempt."""


class MountedApp:
    """The system task that runs an application without lifespan events.

    Args:
        serving: a context manager in which the application serves.
        name: of the server, for the task and for messages.
    """

    def __init__(self, serving: Callable[[], AbstractAsyncContextManager[None]], name: str) -> None:
        self._serving = serving
        self._name = name
        self._attempt: trio.Event | None = None
        """Set when the start has succeeded or failed; None while none is under way."""
        self._failed_at: float | None = None
        self._stop = trio.Event()
        self._stopped = trio.Event()

    async def stop(self) -> None:
        """End the application, and wait for its end. Nothing if it does not run."""
        if self._attempt is not None:
            self._stop.set()
            await self._stopped.wait()

    async def start(self) -> None:
        """Start the application unless that is under way already, and wait for the end of the start. A cancel only ends the wait.

        Raises:
            HttpRejection: 503, the last attempt failed less than `RESTART_DELAY` seconds ago; the log has its cause.
        """
        attempt = self.begin()
        if attempt is None:
            raise self._rejection()
        await attempt.wait()
        # Another attempt cannot have begun by then, because of the delay.
        if self._attempt is not attempt:
            raise self._rejection()

    def begin(self) -> trio.Event | None:
        """Begin to start the application unless that is under way already; return what is set at the end of the start.

        None if the last attempt failed less than `RESTART_DELAY` seconds ago.
        """
        if self._attempt is None:
            if self._failed_at is not None and trio.current_time() < self._failed_at + RESTART_DELAY:
                return None
            self._attempt, self._stop, self._stopped = trio.Event(), trio.Event(), trio.Event()
            trio.lowlevel.spawn_system_task(self._run, self._attempt, name=f"the mounted application {self._name}")
        return self._attempt

    async def _run(self, attempt: trio.Event) -> None:
        try:
            # An exception in a system task would end the program.
            with log_failures(f"the mounted application {self._name} failed"):
                async with self._serving():
                    attempt.set()
                    await self._stop.wait()
        finally:
            self._attempt = None
            self._failed_at = trio.current_time()
            attempt.set()
            self._stopped.set()

    def _rejection(self) -> HttpRejection:
        return HttpRejection(503, f"{self._name} could not be started. Try again in a moment.", code=SERVER_BUSY)


async def serve_lifespan_events(
    serving: AbstractAsyncContextManager[None], name: str, receive: Receive, send: Send, *, logs_startup: bool = True
) -> None:
    """Serve from the startup event to the shutdown event, and report failures of either to the ASGI server.

    Args:
        logs_startup: False if a failure of the startup is raised where the ASGI server was started.

    Raises:
        Exception: what ended the application in between.
    """
    await receive()
    step = "startup"
    try:
        async with serving:
            step = "serving"
            await send({"type": "lifespan.startup.complete"})
            await receive()
            step = "shutdown"
    except Exception as error:
        if step == "serving":
            raise
        # Whatever it is, an ASGI server must not go on without.
        problem = f"{name} could not be started: {error}" if step == "startup" else f"{name} failed to end: {error}"
        # Their messages name the cause and the cure, which a traceback would bury.
        is_setting = isinstance(error, ConfigurationError)
        if logs_startup or step != "startup":
            logger.error(problem, exc_info=None if is_setting else error)
        await send({"type": f"lifespan.{step}.failed", "message": problem})
    else:
        await send({"type": "lifespan.shutdown.complete"})


@cache
def asyncio_host() -> ModuleType:
    """Return what serves on asyncio; a server on Trio does not load it."""
    return import_module("trio_mcp_transports.asyncio_host.life")


@asynccontextmanager
async def in_residence(residence: AbstractContextManager[None] | None) -> AsyncGenerator[None]:
    """Hold where an application runs on asyncio, in the block; nothing on Trio."""
    with residence or nullcontext():
        yield


@asynccontextmanager
async def served_on_both(app: object, serving: Callable[[], AbstractAsyncContextManager[None]]) -> AsyncGenerator[None]:
    """Serve an application in the block, on Trio or on asyncio."""
    async with serving() if trio.lowlevel.in_trio_task() else asyncio_host().lifespan_on_asyncio(app, serving):
        yield
