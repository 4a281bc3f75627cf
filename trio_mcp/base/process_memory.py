"""The memory of a process that serves: what is loaded is not scanned for garbage, and what large messages took is used again."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

THRESHOLD: Final = 10_000
"""New objects after which the garbage collector of a server scans the youngest generation."""
# Python's default is 700 or 2,000. A call makes about sixty objects that the collector tracks, and reference counting frees
# nearly all of them when it ends, so that a scan after every few calls finds nothing.

LARGE: Final = 4 << 20
"""Bytes of the largest block of memory that is used again: a message has as many by default."""


@contextmanager
def no_collection() -> Generator[None]:
    """Load modules in the block without a collection: that makes a hundred thousand objects and hardly any garbage."""
    # To look for it would take a tenth of the start.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # All objects are old now, as after the collections that they would have outlived. But not if the program has frozen
            # some, which this would thaw.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def settle_for_server() -> None:
    """Prepare for serving, in a process that exists for it: what is loaded now is never scanned again, and freed memory kept."""
    freeze()
    gc.set_threshold(THRESHOLD)
    _keep_freed_memory()


def freeze() -> None:
    """Never scan for garbage again what is loaded now, since modules and tools live as long as the process."""
    # Only what is young is collected first: to look through everything takes a tenth of the start, and finds little but what
    # loading classes leaves behind.
    gc.collect(1)
    gc.freeze()


def _keep_freed_memory() -> None:
    """Let the C library reuse the memory of large messages, instead of returning it to the kernel after each."""
    # glibc learns from the first large block that is freed: it maps blocks of that size no more, and keeps twice as much at the
    # end of its heap (mallopt(3), M_MMAP_THRESHOLD). Left to chance, half of the processes took 700 page faults for each message
    # of a megabyte, and 1.7 times the CPU time. The block is never written to, so it takes no memory.
    bytes(LARGE)
