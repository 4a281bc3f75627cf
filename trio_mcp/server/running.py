"""Running a Trio loop in a process that exists for a server."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import trio

from ..session import Service
from ..session.transport import OWNS_PROCESS, owned_process

logger = logging.getLogger("trio_mcp.tree")

GC_THRESHOLD: Final = 10_000
"""New objects after which the garbage collector scans the youngest generation."""
# Python's default is 700 or 2,000. A call makes about sixty objects that the collector tracks, and reference counting frees
# nearly all of them when it ends, so that a scan after every few calls finds nothing.

LARGE: Final = 4 << 20
"""Bytes of the largest block of memory that is reused: a message has as many by default."""


def run_process(serve: Callable[[], Awaitable[object]]) -> None:
    """Run `serve` in a Trio loop, in a process that is taken to exist for it."""
    # Modules and tools live as long as the process. Frozen, they are never scanned again. Only what is young is collected
    # first: to look through everything takes a tenth of the start, and finds little but what loading classes leaves behind.
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    _keep_freed_memory()
    with owned_process():
        trio.run(serve)


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of large messages, instead of returning it to the kernel after each."""
    # glibc learns from the first large block that is freed: it maps blocks of that size no more, and keeps twice as much at the
    # end of its heap (mallopt(3), M_MMAP_THRESHOLD). Left to chance, half of the processes took 700 page faults for each message
    # of a megabyte, and 1.7 times the CPU time. The block is never written to, so it takes no memory.
    bytes(LARGE)


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
