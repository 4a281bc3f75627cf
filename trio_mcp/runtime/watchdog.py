"""A thread that notices when an event loop is blocked, and logs which actor blocks it.

A body that computes, or calls something that blocks, stops every other call in the process, and no code in the loop can notice.
So a thread sends a ping to the loop now and then. If the loop does not answer in time, the thread logs what the loop's thread is
doing, once per stall. It pings only while some actor is not parked. After a while without one it sleeps until it is woken, and
costs nothing.

Bodies on asyncio run in Trio's thread, if Trio is the guest of their loop, or else in a loop with a separate thread, which is
pinged in the same way.

Under virtual time (`trio.testing.MockClock`) there is no watchdog: it measures real time, in which a test's clock does not run.
"""

# States of the thread. `asleep` is read in the loop at each start of an actor, without a lock, so the order of the steps counts:
#
#   state      event                             next       asleep
#   no thread  wake (the first actor)            probing    False
#   probing    IDLE_PROBES looks, all idle       asleep     True, and then one more look: see `_sleep`
#   asleep     wake                              probing    False
#   any        close                             ended      False
#
# Example: the loop is blocked for 5 s with a limit of 1 s, so there is a ping every 0.25 s.
#
#   0.00   ping, answered at once
#   0.25   ping; the loop has blocked at 0.1
#   1.25   no answer for 1 s: one log line with the stack of the loop's thread
#   5.25   the loop has answered; pings go on

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from traceback import StackSummary, walk_stack
from types import FrameType
from typing import Protocol

import trio

from ..base.logs import OwnText, peer_logger

logger = peer_logger("trio_mcp.watchdog")

PROBES_PER_TIMEOUT = 4
"""Pings, or looks for the answer to one, in the time for which a loop may be blocked."""

IDLE_PROBES_BEFORE_SLEEP = 40
"""Looks at a supervisor that runs nothing, after which the watchdog sleeps."""

IMPORTERS = ("importlib", "_frozen_importlib")
OURS = __name__.partition(".")[0]
BRIDGE = "trio_mcp.bridge.asyncio_call"
OWNED_LOOP = "trio_mcp.bridge.owned_loop"

ADVICE = " What takes long belongs in a thread, as every plain `def` is. It is at:\n%s"
BLOCKED = "%s has blocked the event loop for over %g seconds: all other calls wait for it." + ADVICE
BLOCKED_OWNED = "%s has blocked the asyncio loop for over %g seconds: all other calls on asyncio wait for it." + ADVICE

JOIN_TIMEOUT = 1.0
"""Seconds that `close` waits for the thread, which may be blocked by the log handler."""


class Probe:
    """The pings of one event loop.

    Args:
        thread: the identifier of its thread.
        call_soon: calls a function in the loop; raises `RuntimeError` once the loop has ended.
        text: of the record when an actor has blocked it.
    """

    def __init__(self, thread: int, call_soon: Callable[[Callable[[], object]], object], text: str) -> None:
        self.thread = thread
        self.text = text
        self._call_soon = call_soon
        self._is_answered = True
        self._is_reported = False
        self._sent_at = 0.0
        self._looks = 0
        """Without an answer."""

    def is_late(self, seconds: float) -> bool:
        """Ping the loop, or look for its answer; return whether it is late by now, once for each ping."""
        if not self._is_answered:
            self._looks += 1
            # Not at the first look: a process that was stopped for a while has not blocked its loop.
            if self._is_reported or self._looks == 1 or time.monotonic() - self._sent_at < seconds:
                return False
            self._is_reported = True
            return True
        self._is_answered = self._is_reported = False
        self._sent_at, self._looks = time.monotonic(), 0
        with suppress(RuntimeError):
            self._call_soon(self._answer)
        return False

    def _answer(self) -> None:
        self._is_answered = True


class Watchdog:
    """Watches the loop that it is made in, and the asyncio loop of the same Trio run, if that has a separate thread.

    Args:
        seconds: how long the loop may be blocked; `inf` disables the watchdog.
        busy: returns whether anything runs that could block the loop; called in the watchdog's thread.
        owner: returns the name of the actor of a task, for the log, or None; called in the watchdog's thread.
    """

    def __init__(
        self, seconds: float, busy: Callable[[], bool], owner: Callable[[trio.lowlevel.Task], str | None]
    ) -> None:
        self.asleep = seconds < math.inf and not time_is_virtual()
        """Whether it needs `wake`. False while it pings, and if it is disabled."""
        self.incidents = 0
        """How often an actor was seen to block the loop."""
        self._seconds = seconds
        self._busy = busy
        self._owner = owner
        self._token = trio.lowlevel.current_trio_token()
        self._probe = Probe(threading.get_ident(), self._token.run_sync_soon, BLOCKED)
        self._probe_of_owned: Probe | None = None
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._over = threading.Event()

    def wake(self) -> None:
        """Start to ping again; must be called when it is asleep, in the loop's thread."""
        self.asleep = False
        self._woken.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="trio_mcp watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread, and wait for its end for `JOIN_TIMEOUT` seconds."""
        self.asleep = False
        self._over.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT)

    # in the thread

    def _watch(self) -> None:
        quiet = 0
        while not self._over.wait(self._seconds / PROBES_PER_TIMEOUT):
            if self._busy():
                quiet = 0
                self._look()
            else:
                quiet += 1
            if quiet == IDLE_PROBES_BEFORE_SLEEP:
                quiet = 0
                self._sleep()

    def _sleep(self) -> None:
        self._woken.clear()
        # `close` sets `_over` before `_woken`, so a close that came before the `clear` is noticed here.
        if self._over.is_set():
            return
        self.asleep = True
        # An actor may have started before `asleep` was set: its start saw a watchdog that was awake, and did not wake it.
        if self._busy():
            self.asleep = False
            return
        self._woken.wait()

    def _look(self) -> None:
        """Ping the loops, and report the one that is late."""
        if self._probe_of_owned is None:
            self._probe_of_owned = probe_of_owned(self._token)
        for probe in (self._probe, self._probe_of_owned):
            if probe is not None and probe.is_late(self._seconds):
                self._report(probe)

    def _report(self, probe: Probe) -> None:
        frames, task = step_of(sys._current_frames().get(probe.thread))  # noqa: SLF001  documented, and the only way
        owner = None if task is None or is_our_import(frames) else self._owner(task)
        # Not an actor: the machine is slow, or something else in the process blocks the loop. Ours to know, not to blame.
        if owner is None:
            logger.debug("an event loop has been blocked for %g seconds", self._seconds)
            return
        self.incidents += 1
        logger.warning(
            probe.text,
            owner,
            self._seconds,
            OwnText("".join(StackSummary.extract((frame, frame.f_lineno) for frame in frames).format())),
        )


class OwnedLoop(Protocol):
    """What is of interest here of an asyncio loop of `trio_mcp.bridge.owned_loop`."""

    thread: int

    def settle(self, function: Callable[[], object]) -> None:
        """Call a function in the loop."""


def probe_of_owned(token: trio.lowlevel.TrioToken) -> Probe | None:
    """Return the pings of the asyncio loop in a separate thread that belongs to a Trio run; None if there is none."""
    # By its name: a program of Trio alone does not load the bridge.
    loops: Mapping[trio.lowlevel.TrioToken, OwnedLoop] = getattr(sys.modules.get(OWNED_LOOP), "LOOPS", {})
    loop = loops.get(token)
    if loop is None:
        return None
    return Probe(loop.thread, loop.settle, BLOCKED_OWNED)


class AsyncioCall(Protocol):
    """What is of interest here of a call of `trio_mcp.bridge.asyncio_call`.

    Attributes:
        awaitable: the author's code, which runs on asyncio.
        waiting: the Trio task that waits for it.
    """

    awaitable: object
    waiting: trio.lowlevel.Task | None


def asyncio_call_of(frame: FrameType, method: str) -> AsyncioCall | None:
    """Return the call from Trio to asyncio of which a frame runs a method; None if it runs none."""
    # By their names: a program of Trio alone does not load the bridge.
    if frame.f_code.co_name != method or frame.f_globals.get("__name__") != BRIDGE:
        return None
    call: AsyncioCall = frame.f_locals["self"]
    return call


def step_of(innermost: FrameType | None) -> tuple[list[FrameType], trio.lowlevel.Task | None]:
    """Return the frames of the step that the loop's thread executes, outermost first, and its task, or None.

    The task of a step of asyncio is the Trio task that waits for it. None means that the loop is between two steps, or that
    Trio's internals have changed.
    """
    # Trio has no way to ask for the running task from another thread, so it is read from a local variable of Trio's own loop.
    frames: list[FrameType] = []
    for frame, _ in () if innermost is None else walk_stack(innermost):
        call = asyncio_call_of(frame, "_run")
        if call is not None:
            return frames[::-1], call.waiting
        if frame.f_code.co_name == "unrolled_run":
            task = frame.f_locals.get("task")
            return frames[::-1], task if isinstance(task, trio.lowlevel.Task) else None
        frames.append(frame)
    return frames[::-1], None


def is_our_import(frames: Sequence[FrameType]) -> bool:
    """Return whether a step is at an import that a module of this project asked for (`late.py`), and not the body.

    Args:
        frames: of the step, outermost first.
    """
    names = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame in frames]
    first = next((index for index, name in enumerate(names) if name in IMPORTERS), 0)
    return first > 0 and names[first - 1] == OURS


def time_is_virtual() -> bool:
    testing = sys.modules.get("trio.testing")
    return testing is not None and isinstance(trio.lowlevel.current_clock(), testing.MockClock)
