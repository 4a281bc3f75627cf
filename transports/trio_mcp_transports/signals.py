"""The signals that ask a server to end, and handlers for them for the length of a block."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType
from typing import Final

END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def unignored_signals() -> list[signal.Signals]:
    """Return those of `END_SIGNALS` that are to be handled: none outside the main thread, and none that is ignored."""
    # Python delivers signals to the main thread only, and `signal.signal` raises elsewhere. A program that is started with a
    # signal ignored, as `nohup` does with SIGHUP, is to leave it so.
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in END_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


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
