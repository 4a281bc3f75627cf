"""A thread that sees when the event loop does not turn, and says who holds it up.

A body that computes, or calls something that blocks, stops every other call in the process, and nothing in the loop can tell:
the loop is what stands still. So a thread asks the loop for a sign of life now and then, and when none comes in time, it logs
what the loop's thread is doing, once for each time that it stands still. It only looks while there is something to run; after a
while without it sleeps, and costs nothing, until it is woken.

Under virtual time (`trio.testing.MockClock`) there is no watchdog: its questions would come at times that no clock of the test
knows.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from traceback import StackSummary
from types import FrameType

import trio

logger = logging.getLogger("trio_mcp.watchdog")

PROBES = 4
"""Signs of life that are asked for in the time that the loop may stand still."""

QUIET_PROBES = 40
"""Looks at a supervisor that runs nothing, after which the watchdog sleeps."""

FAREWELL = 1.0
"""Seconds that the end of the thread is waited for; it may be writing a log line that nobody reads."""


class Watchdog:
    """Watches the loop that it is made in.

    Args:
        seconds: how long the loop may stand still; `inf` for any time.
        busy: whether anything runs that could hold the loop up; called in the watchdog's thread.
        owner: whose task that is, for the log, or None; called in the watchdog's thread.
    """

    def __init__(
        self, seconds: float, busy: Callable[[], bool], owner: Callable[[trio.lowlevel.Task], str | None]
    ) -> None:
        self.asleep = seconds < math.inf and not time_is_virtual()
        """It looks at nothing until `wake`. False while it looks, and where there is no watchdog."""
        self.incidents = 0
        """How often a task with an owner was seen to hold the loop up."""
        self._seconds = seconds
        self._busy = busy
        self._owner = owner
        self._token = trio.lowlevel.current_trio_token()
        self._loop = threading.get_ident()
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._over = threading.Event()
        self._alive = threading.Event()

    def wake(self) -> None:
        """Something runs again. Called when it is asleep, in the loop's thread."""
        self.asleep = False
        self._woken.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="trio_mcp watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread; it is gone when this returns, unless the log holds it up."""
        self.asleep = False
        self._over.set()
        self._woken.set()
        self._alive.set()
        if self._thread is not None:
            self._thread.join(FAREWELL)

    # in the thread

    def _watch(self) -> None:
        quiet = 0
        while not self._over.wait(self._seconds / PROBES):
            if self._busy():
                quiet = 0
                self._probe()
            else:
                quiet += 1
            if quiet == QUIET_PROBES:
                quiet = 0
                self._sleep()

    def _sleep(self) -> None:
        self._woken.clear()
        if self._over.is_set():  # and said so before that
            return
        self.asleep = True
        if self._busy():  # since then; whoever started it has seen a watchdog that was awake
            self.asleep = False
            return
        self._woken.wait()

    def _probe(self) -> None:
        """Ask for a sign of life, and wait for it: in the time allowed, or after it was said that it takes longer."""
        self._alive.clear()
        if self._over.is_set():
            return
        try:
            self._token.run_sync_soon(self._alive.set)
        except trio.RunFinishedError:
            return
        if not self._alive.wait(self._seconds):
            self._report()
            self._alive.wait()

    def _report(self) -> None:
        frames, task = step_of(sys._current_frames().get(self._loop))  # noqa: SLF001  documented, and the only way
        owner = None if task is None else self._owner(task)
        if owner is None:  # the machine is slow, or something else in the process holds the loop up
            logger.debug("the event loop has not turned for %g seconds", self._seconds)
            return
        self.incidents += 1
        logger.warning(
            "%s has kept the event loop from turning for %g seconds: all other calls wait for it. "
            "What takes long belongs in a thread, as every plain `def` is. It is at:\n%s",
            owner,
            self._seconds,
            "".join(StackSummary.extract((frame, frame.f_lineno) for frame in frames).format()),
        )


def step_of(innermost: FrameType | None) -> tuple[list[FrameType], trio.lowlevel.Task | None]:
    """The frames of the step that a loop's thread is in, outermost first, and its task.

    Trio tells another thread nothing of its tasks, so the task is found as a local variable of the function that runs them. Where
    it is not found, there is no step, or Trio has changed.
    """
    frames: list[FrameType] = []
    for frame in outwards(innermost):
        if frame.f_code.co_name == "unrolled_run":
            task = frame.f_locals.get("task")
            return frames[::-1], task if isinstance(task, trio.lowlevel.Task) else None
        frames.append(frame)
    return frames[::-1], None


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def time_is_virtual() -> bool:
    testing = sys.modules.get("trio.testing")
    return testing is not None and isinstance(trio.lowlevel.current_clock(), testing.MockClock)
