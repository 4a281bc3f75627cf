"""Serving an ASGI application from one process, from its first connection to an end in bounded time.

The shutdown has four steps, each with a time limit: no connection is accepted any more, idle ones are closed, and requests that
are on their way have half a second to come; `on_drain` notifies the app, and open requests continue, for at most `drain` seconds;
the rest is cut, and may write for one more second; the app's lifespan ends, within three. A shield, or code that blocks the event
loop, can delay each of them, which is why there is a hard end.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Final, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.run import worker_serve
from hypercorn.typing import ASGIFramework

from trio_mcp.base.logs import peer_logger
from trio_mcp.base.systems import needs_posix
from trio_mcp.errors import ConfigurationError

from ..asgi.adapter import Message, Receive, Scope, Send
from ..asgi.authentication import log_failures
from ..hard_end import HardEnd
from ..listening import bind_sockets
from ..signals import is_repeat, noticed_in_thread, signal_handlers, unignored_signals
from ..systemd import keep_watchdog, watchdog_seconds
from .config import GuardedConfig, guarded_config
from .connections import SENDING_SECONDS, Connections, connections_of
from .worker import AsgiApp, LifespanWrapper, install

logger = peer_logger("trio_mcp.http")

AFTER_DRAIN: Final = 1.0
SENDING_SHARE_OF_DRAIN: Final = 0.25
LIFESPAN_TIMEOUT: Final = 3.0
HARD_END_AFTER: Final = 5.0
# EX_SOFTWARE of sysexits.h, so that a supervisor can tell it from the crash of an app.
HARD_END_STATUS: Final = 70


async def serve_asgi(
    app: AsgiApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    sockets: Sequence[socket.socket] | None = None,
    drain: float = 10.0,
    on_drain: Callable[[], Awaitable[None]] | None = None,
    lifespan_seconds: float = 0.0,
    signals: bool = True,
    config: GuardedConfig | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` over HTTP/1.1 and WebSocket until SIGTERM, SIGINT or SIGHUP, in this process.

    The first signal starts the shutdown: nothing more is accepted, `on_drain` is called, and open requests may finish.
    Connections that are still open `drain` seconds later, or one second after `on_drain` returned, are cut. A second signal cuts
    them immediately, unless it comes so soon that it repeats the first one (`is_repeat`). Then the app gets its
    `lifespan.shutdown`, never before `on_drain` has ended, and this returns. If this has not returned
    `drain + lifespan_seconds + 5` seconds after the first signal, the process is ended by force, with the status
    `HARD_END_STATUS`, which is 70, and the stacks of its threads on stderr; see `HardEnd`.

    If the app's lifespan fails while the app is served, the shutdown starts as after a signal. The caller knows its app, and
    raises the error.

    Signals are only handled in the main thread, and those that are ignored stay so (`nohup`). A cancel cuts every connection
    immediately; the app's lifespan is cancelled with it. Use several processes with shared sockets for more cores.

    Args:
        app: an ASGI 3 application.
        host: an address or a name; every address of a name is listened on.
        port: 0 lets the system choose one.
        sockets: bound stream sockets to listen on in place of `host` and `port`; they are closed at the end.
        drain: seconds that open requests have after the first signal.
        on_drain: notifies the app that it must end, and returns when it has ended; cancelled after `drain` seconds.
        lifespan_seconds: how long the app's lifespan may take to end, beyond three seconds.
        signals: whether to handle signals; False for a server inside a larger program.
        config: made by `guarded_config`, for TLS and limits; its `bind` and `graceful_timeout` are not used.
        task_status: started with the addresses listened on, as URLs, once connections are accepted.

    Raises:
        OSError: the address is taken or not ours; the message names it.
        ConfigurationError: this system is Windows.
    """
    if sys.platform == "win32":
        raise ConfigurationError(needs_posix("serving over HTTP"))
    install()
    config = guarded_config() if config is None else config
    watchdog = watchdog_seconds()
    bound = await bind_sockets(host, port) if sockets is None else list(sockets)
    config.listen_on(bound)
    config.graceful_timeout = drain
    config.shutdown_timeout = drain + LIFESPAN_TIMEOUT + lifespan_seconds
    longest = drain + HARD_END_AFTER + lifespan_seconds
    shutdown = Shutdown(drain, on_drain, connections_of(config))
    numbers = unignored_signals() if signals else []
    try:
        with watched_signals(numbers, longest) if numbers else nullcontext() as received:
            async with trio.open_nursery() as nursery:
                if received is not None:
                    nursery.start_soon(shutdown.follow_signals, received, nursery.cancel_scope)
                nursery.start_soon(shutdown.run)
                nursery.start_soon(keep_watchdog, watchdog)
                await worker_serve(
                    ASGIWrapper(cast(ASGIFramework, shutdown.guard_lifespan(app))),
                    config,
                    shutdown_trigger=shutdown.begun.wait,
                    task_status=Started(shutdown, task_status),
                )
                await shutdown.finished()
                nursery.cancel_scope.cancel()
    finally:
        # Hypercorn closes them once it listens, and not before: a start that fails would leave the port taken.
        for sock in bound:
            sock.close()


@dataclass(slots=True, eq=False)
class Shutdown:
    """The steps between the first signal and the end.

    Attributes:
        begun: set by the first signal.
        serving: the app has started, and connections are accepted.
        start_failed: the app has answered its `lifespan.startup` with a failure.
    """

    _drain: float
    _on_drain: Callable[[], Awaitable[None]] | None
    _connections: Connections
    _app_drained: trio.Event = field(default_factory=trio.Event)
    begun: trio.Event = field(default_factory=trio.Event)
    serving: bool = False
    start_failed: bool = False

    async def follow_signals(self, received: AsyncIterator[int], everything: trio.CancelScope) -> None:
        """First signal: begin, or give up if the app is still starting. Every later one: cut, unless it repeats the first."""
        begun_at = 0.0
        async for number in received:
            name = signal.Signals(number).name
            if not self.serving:
                logger.warning("%s while the application was starting", name)
                everything.cancel()
            elif not self.begun.is_set():
                logger.info("%s: draining for at most %g s", name, self._drain)
                begun_at = trio.current_time()
                self.begun.set()
            elif is_repeat(number, trio.current_time() - begun_at):
                logger.info("%s repeats the first signal: still draining", name)
            else:
                logger.warning("%s again: open connections are cut", name)
                # A second signal asks for an immediate end: neither `on_drain` nor the connections are
                # waited for.
                self._app_drained.set()
                self._connections.cut()

    async def run(self) -> None:
        """Drain, then cut."""
        await self.begun.wait()
        with trio.move_on_after(self._drain):
            # Their connections were accepted: no other process gets them, and after `on_drain` the app may refuse them.
            await self._connections.wait_received(min(SENDING_SECONDS, self._drain * SENDING_SHARE_OF_DRAIN))
            if self._on_drain is None:
                self._app_drained.set()
                await trio.sleep(self._drain)
            else:
                # A shutdown goes on whatever the app raises.
                with log_failures("on_drain failed"):
                    await self._on_drain()
                self._app_drained.set()
                await trio.sleep(AFTER_DRAIN)
        self._app_drained.set()
        self._connections.cut()

    async def finished(self) -> None:
        """Once begun, `on_drain` is heard out even if every connection has ended."""
        if self.begun.is_set():
            await self._app_drained.wait()

    def guard_lifespan(self, app: AsgiApp) -> AsgiApp:
        """Return `app`, to which `lifespan.shutdown` is sent only after `on_drain` has ended."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, partial(self._receive_lifespan, receive), partial(self._send_lifespan, send))
            except Exception:
                # Hypercorn logs it, and would go on serving an app that has ended.
                if self.serving:
                    self.begun.set()
                raise

        return LifespanWrapper(app, guarded)

    async def _send_lifespan(self, send: Send, event: Message) -> None:
        # Noted before hypercorn sees it: it raises in the task of the lifespan, while the task that listens goes on.
        if event["type"] == "lifespan.startup.failed":
            self.start_failed = True
        await send(event)

    async def _receive_lifespan(self, receive: Receive) -> Message:
        event = await receive()
        if event["type"] == "lifespan.shutdown":
            await self.finished()
        return event


class Started(trio.TaskStatus[list[str]]):
    """Tells who started the server that it listens, unless its app has failed to start."""

    def __init__(self, shutdown: Shutdown, task_status: trio.TaskStatus[list[str]]) -> None:
        self._shutdown = shutdown
        self._task_status = task_status

    def started(self, value: list[str] | None = None) -> None:
        """Pass the addresses on."""
        # Hypercorn listens before it notices that the app has not started.
        if self._shutdown.start_failed:
            return
        # From here on the first signal drains. Before, there is nothing to drain, and a start that hangs must be interruptible.
        self._shutdown.serving = True
        self._task_status.started(value or [])


@contextmanager
def watched_signals(numbers: Sequence[signal.Signals], seconds: float) -> Generator[AsyncIterator[int]]:
    """Receive the signals, and arm the hard end from their very handlers: it must work when the event loop hangs."""
    with HardEnd(HARD_END_STATUS) as hard_end, trio.open_signal_receiver(*numbers) as received:
        # Trio has installed its handlers just now; ours arm the hard end and call them. A task could not: when the
        # event loop hangs it never runs. And a thread arms it when the loop hangs in C code, which runs no handler.
        receivers = {number: signal.getsignal(number) for number in numbers}

        def arm_and_receive(number: int, frame: FrameType | None) -> None:
            hard_end.arm(seconds)
            receiver = receivers[signal.Signals(number)]
            if callable(receiver):
                receiver(number, frame)

        with signal_handlers(numbers, arm_and_receive), noticed_in_thread(numbers, partial(hard_end.arm, seconds)):
            yield received
