"""Running a server: over a transport, over one channel, and in a process that exists for it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from itertools import chain
from types import FrameType
from typing import Final, TypeAlias

import trio

from .. import server
from ..base.late import freeze, modules_in_calls, no_collection, settle_for_server
from ..errors import ConfigurationError
from ..protocol.sealing.request_state import KeyRing
from ..session import (
    AnyChannel,
    MessageChannel,
    Service,
    ServiceOptions,
    SharedServer,
    check_options,
    find_transport,
    serve_channel,
)
from ..session.event_loop import check_no_event_loop, works_on_asyncio
from ..session.subscriptions import Change
from ..session.transport import OWNS_PROCESS, CannotListen, owned_process
from .registry import Registry

logger = logging.getLogger("trio_mcp.tree")


LOADS_ONLY: Final = ContextVar("LOADS_ONLY", default=False)
"""Whether a file is loaded only to know its server; `run` and `serve` then raise `RunCalled`."""


class RunCalled(BaseException):
    """A file that is only loaded has called `run` or `serve` of this server.

    Attributes:
        server: it.
        transport: the name of its transport.
        method: "run" or "serve".
    """

    def __init__(self, shared: SharedServer, transport: str, method: str) -> None:
        super().__init__()
        self.server = shared
        self.transport = transport
        self.method = method


def check_serves(shared: SharedServer, transport: str, method: str) -> None:
    """Raise `RunCalled` if the file that calls this method of a server is only loaded."""
    if LOADS_ONLY.get():
        raise RunCalled(shared, transport, method)


def run_process(
    serve: Callable[[], Awaitable[object]],
    name: str | None = None,
    shared: SharedServer | None = None,
    transport: str = "",
) -> None:
    """Run `serve` in a Trio loop, in a process that is taken to exist for it.

    Args:
        name: of the server: a port in use or a wrong setting is then shown in one line, if the program does not catch it.
        shared: it, if a file may call this when it is loaded.
        transport: over which it is served.

    Raises:
        RunCalled: the file is only loaded.
        RuntimeError: an event loop runs in this thread.
    """
    if shared is not None:
        check_serves(shared, transport, "run")
    check_no_event_loop()
    settle_for_server()
    try:
        with owned_process(), tree_signal_survived():
            trio.run(serve)
    # Any other `OSError`, such as one of a lifespan, keeps its traceback.
    except (CannotListen, ConfigurationError) as error:
        if name is not None:
            server.lifespan.show_in_one_line(error, name)
        raise


@works_on_asyncio
async def serve_over(transport: str, shared: SharedServer, options: Mapping[str, object]) -> None:
    """Serve a server over a transport until it ends; see `Server.serve`."""
    if shared.options.keys is None:
        # Only for its error: a transport would raise it from a nursery, wrapped in a group, after it has opened a port.
        KeyRing.from_environment()
    check_options(transport, "serve", options)
    await find_transport(transport).serve(shared, **options)


OpenService: TypeAlias = Callable[[ServiceOptions, MessageChannel | None], AbstractAsyncContextManager[Service]]
"""Opens the service of a server, for one channel or for many connections."""


async def serve_on_channel(channel: AnyChannel, open_service: OpenService, options: ServiceOptions) -> None:
    """Serve one connection in a separate service; return when it has ended and its calls have cleaned up."""
    known = channel if isinstance(channel, MessageChannel) else None
    if known is not None and known.in_process and options.tell_errors is None:
        options = replace(options, tell_errors=True)
    async with open_service(options, known) as service:
        await serve_channel(service, channel)


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing. Unlike `SIG_IGN`, the programs that this one starts do not inherit it."""


@contextmanager
def tree_signal_survived() -> Generator[None]:
    """Let SIGUSR1 not end the process while no service runs: while lifespans open and close, which must not be cut short."""
    number: signal.Signals | None = getattr(signal, "SIGUSR1", None) if OWNS_PROCESS.get() else None
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    signal.signal(number, ignore_signal)
    try:
        yield
    finally:
        if signal.getsignal(number) is ignore_signal:
            signal.signal(number, signal.SIG_DFL)


_shown: Final[dict[Service, None]] = {}
"""The services whose trees SIGUSR1 logs, in order: a process may serve several servers, and has one handler of the signal."""


@contextmanager
def tree_on_signal(service: Service) -> Generator[None]:
    """Log `service.tree()` whenever SIGUSR1 comes in the block, if the process exists for a server (`run_process`).

    It does nothing where there is no such signal (Windows), and where it is handled or ignored already.
    """
    number: signal.Signals | None = getattr(signal, "SIGUSR1", None) if OWNS_PROCESS.get() else None
    if number is None:
        yield
        return
    _shown[service] = None
    try:
        if signal.getsignal(number) in (signal.SIG_DFL, ignore_signal):
            # Here and not in the task: a signal that comes before the task runs would end the process.
            with trio.open_signal_receiver(number) as received:
                service.supervisor.spawn(log_trees, received)
                yield
        else:
            # Handled for another service of this process, which is left later, or by the program.
            yield
    finally:
        del _shown[service]


async def log_trees(received: AsyncIterator[int]) -> None:
    """Log the trees of the services of this process at each signal, until cancelled."""
    async for _ in received:
        for service in tuple(_shown):
            log_tree(service)


def log_tree(service: Service) -> None:
    """Log the tree of a service."""
    tree = service.tree()
    # As a warning, so that it is seen at the default level. The tree has the texts of clients in one line each, without control
    # characters.
    logger.warning("what runs now:\n%s", tree, extra={"fields": {"tree": tree.to_json()}})


# The services in which a server runs, and what is announced to their clients. Its methods work in any thread.


class RunningServices:
    """The running services of one server, in the order in which they were opened; the copies of the server share them."""

    def __init__(self) -> None:
        self._current: dict[Service, Registry] = {}
        """What each offers: copies of the server may have other registries."""
        self._declaring = threading.Lock()

    def __iter__(self) -> Iterator[Service]:
        return iter(list(self._current))

    def __len__(self) -> int:
        return len(self._current)

    def add(self, service: Service, registry: Registry) -> None:
        """Add a service that begins with what a registry has."""
        self._current[service] = registry

    def remove(self, service: Service) -> None:
        """Remove a service that ends."""
        self._current.pop(service, None)

    def announce(self, change: Change) -> None:
        """Announce a change of a list."""
        for service in self:
            service.subscriptions.announce(change)

    def resource_updated(self, uri: str) -> None:
        """Announce that a resource has changed."""
        for service in self:
            service.subscriptions.announce(Change("updated", uri))

    def complete_elicitation(self, elicitation_id: str) -> bool:
        """Report that a user has finished at the page of a URL elicitation; return whether a service waited for that."""
        return any(service.calls.url_elicitations.complete(elicitation_id) for service in self)

    def declare(self) -> None:
        """Declare in each service the capabilities of what is registered for it now."""
        # Under a lock: without it, what one thread read before another's change could be written after it.
        with self._declaring:
            for service, registry in list(self._current.items()):
                service.declare(registry.capabilities)


# Loading what calls may need, ahead of them, in a server of many clients.

OTHERS: Final = (
    "trio_mcp.protocol.conversation",
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
"""What calls may need besides what the tables of the packages name (`late.py`)."""


def load_for_calls() -> None:
    """Load what the methods of a context need, and what requests need that go with questions and tasks.

    The event loop is blocked meanwhile; no client is served yet. Not in a thread: calls with arguments of a megabyte then took
    1.09 times the CPU time (docs/internals/performance.md).
    """
    before = len(sys.modules)
    with no_collection():
        for name in chain(modules_in_calls(), OTHERS):
            import_module(name)
    if len(sys.modules) > before and OWNS_PROCESS.get():
        # What was loaded earlier is frozen already (`settle_for_server`).
        freeze()
