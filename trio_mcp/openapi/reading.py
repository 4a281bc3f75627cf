"""Reading what others sent, beside the event loop if it is large.

A thread cannot be ended from outside. What runs in it takes linear time, and asks every few milliseconds whether it is still
wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

import trio

T = TypeVar("T")

READ_INLINE: Final = 64 * 1024
"""Bytes that are read in the event loop, in some milliseconds; more in a thread."""

Check: TypeAlias = Callable[[], None]
"""Raises if nothing waits for the value any longer."""


def never_ends() -> None:
    """Let the reading go on: it runs where nothing could end it."""


async def read_beside(read: Callable[[Check], T], size: int) -> T:
    """Return what a function reads.

    Args:
        size: bytes of what it reads.

    A cancel ends the thread at its next check.
    """
    if size <= READ_INLINE:
        return read(never_ends)
    return await trio.to_thread.run_sync(read, trio.from_thread.check_cancelled)
