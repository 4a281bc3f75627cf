"""Signal handlers for the length of a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signal_handlers(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Generator[None]:
    """Call `handler` for these signals in the block, and restore the earlier handlers behind it. For the main thread only."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
