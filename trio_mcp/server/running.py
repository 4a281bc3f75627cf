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


def run_process(serve: Callable[[], Awaitable[object]]) -> None:
    """Run `serve` in a Trio loop, in a process that is taken to exist for it."""
    # Modules and tools live as long as the process. Frozen, they are never scanned again. Only what is young is collected
    # first: to look through everything takes a tenth of the start, and finds little but what loading classes leaves behind.
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    with owned_process():
        trio.run(serve)
