"""Running a Trio loop in a process that exists for a server."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager

import trio

from .. import server
from ..errors import ConfigurationError
from ..process_memory import settle_for_server
from ..session import Service
from ..session.transport import OWNS_PROCESS, owned_process

logger = logging.getLogger("trio_mcp.tree")


def run_process(serve: Callable[[], Awaitable[object]], name: str | None = None) -> None:
    """Run `serve` in a Trio loop, in a process that is taken to exist for it.

    Args:
        name: of the server: a port in use or a wrong setting is then shown in one line, if the program does not catch it.
    """
    settle_for_server()
    try:
        with owned_process():
            trio.run(serve)
    except (OSError, ConfigurationError) as error:
        if name is not None:
            server.one_line.show_in_one_line(error, name)
        raise


@contextmanager
def tree_on_signal(service: Service) -> Generator[None]:
    """Log `service.tree()` whenever SIGUSR1 comes in the block, if the process exists for a server (`run_process`).

    It does nothing where there is no such signal (Windows), and where it is handled or ignored already.
    """
    number: signal.Signals | None = getattr(signal, "SIGUSR1", None) if OWNS_PROCESS.get() else None
    if number is None or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    # Here and not in the task: a signal that comes before the task runs would end the process.
    with trio.open_signal_receiver(number) as received:
        service.supervisor.spawn(log_trees, service, received)
        yield


async def log_trees(service: Service, received: AsyncIterator[int]) -> None:
    """Log the tree of a service at each signal, for ever."""
    async for _ in received:
        tree = service.tree()
        # As a warning, so that it is seen at the default level. The tree has the texts of clients in one line each, without
        # control characters.
        logger.warning("what runs now:\n%s", tree, extra={"fields": {"tree": tree.to_json()}})
