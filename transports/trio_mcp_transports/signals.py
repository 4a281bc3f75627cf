"""The signals that ask a server to end, and handlers for them for the length of a block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from trio_mcp.session.event_loop import HOME

if sys.platform == "win32":
    END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
else:
    END_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

REPEAT_SECONDS: Final = 1.0
INTERRUPT_REPEAT_SECONDS: Final = 0.2


def is_repeat(number: int, seconds: float) -> bool:
    """Return whether a signal that comes `seconds` after the first one repeats that one, and asks for nothing more.

    A wrapper such as `npm` or an init process forwards a signal that the whole process group gets as well, and systemd can send
    SIGHUP right behind SIGTERM. Such a signal comes within milliseconds, unless the machine is busy. A person who presses Ctrl-C
    a second time takes longer.
    """
    return seconds < (INTERRUPT_REPEAT_SECONDS if number == signal.SIGINT else REPEAT_SECONDS)


def unignored_signals() -> list[signal.Signals]:
    """Return those of `END_SIGNALS` that are to be handled: none outside the main thread, none that is ignored, and in an
    asyncio program none that it handles."""
    # Python delivers signals to the main thread only, and `signal.signal` raises elsewhere. A program that is started with a
    # signal ignored, as `nohup` does with SIGHUP, is to leave it so.
    if threading.current_thread() is not threading.main_thread():
        return []
    found = {number: signal.getsignal(number) for number in END_SIGNALS}
    if HOME.get() is None:
        return [number for number, handler in found.items() if handler is not signal.SIG_IGN]
    # An asyncio program may handle some: `asyncio.run` handles SIGINT, and cancels what serves.
    return [number for number, handler in found.items() if handler in (signal.SIG_DFL, signal.default_int_handler)]


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


@contextmanager
def noticed_in_thread(numbers: Collection[signal.Signals], act: Callable[[], None]) -> Generator[None]:
    """Call `act` in a thread for these signals in the block, in which Trio runs. For the main thread only, unless there are none.

    Python calls handlers in the main thread, between two steps of Python code: not while it is in C code, such as a database
    driver. A thread still runs then.
    """
    if sys.platform == "win32" or not numbers:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    # Python writes the number of each signal to this descriptor as soon as it arrives. It was Trio's, which is woken by it.
    trio_wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def read_signals() -> None:
        while received := os.read(reader, 64):
            # If it is full, Trio will wake up anyway; and in guest mode there may be none.
            with suppress(OSError):
                os.write(trio_wakeup, received)
            if not set(received).isdisjoint(numbers):
                act()

    thread = threading.Thread(target=read_signals, name="trio_mcp signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(trio_wakeup, warn_on_full_buffer=False)
        # The thread reads the end.
        os.close(writer)
        thread.join()
        os.close(reader)
