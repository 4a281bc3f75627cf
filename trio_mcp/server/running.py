"""Running a Trio loop in a process that exists for a server."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ..session.transport import owned_process

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
