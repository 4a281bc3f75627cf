"""The lifespan of a server: what its author opens before the first call and closes after the last one."""

# The lifespan runs in a task that does nothing else, so that its code may hold nurseries and cancel scopes open across its
# `yield`. The task shields itself once it has started: a cancel from outside ends the calls first, and what they use last.
#
#   step                           the lifespan's task                      the block of `open_lifespan`
#   start                          runs to its `yield`                      waits in `nursery.start`; a cancel reaches both
#   cancelled at its `yield`       closes, unshielded                       is cancelled when that is done
#   serving                        waits for `over`, shielded               runs
#   its own nursery fails          unwinds, and raises                      is cancelled; then that exception is raised
#   the block ends                 wakes, and closes; at most               waits
#                                  LIFESPAN_EXIT_SECONDS, still shielded

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, cast

import trio

from ..base.checks import check_callable, signature_of
from ..base.groups import UnwrappedErrors
from ..base.late import hinting
from ..base.logs import peer_logger
from ..base.values import one_line
from ..errors import ConfigurationError
from ..session.event_loop import asyncio_hint
from ..session.transport import CannotListen

logger = peer_logger("trio_mcp.server")

LIFESPAN_NOTE: Final = "The server's lifespan raised this."
"""Added to an exception of a lifespan."""

LIFESPAN_EXIT_SECONDS: Final = 5.0
"""Seconds that the clean-up of a lifespan may take, after all calls have ended; then it is cancelled."""


def check_lifespan(lifespan: object) -> None:
    """Raise `TypeError` unless this is None, or can be a function from a server to an async context manager."""
    if lifespan is None:
        return
    expected = "a function decorated with @asynccontextmanager: `async def lifespan(server): ...; yield state; ...`"
    check_callable("lifespan", lifespan, expected)
    # Without its decorator, the function returns no context manager. That would be noticed only when the server starts.
    if any(
        test(lifespan)
        for test in (inspect.isasyncgenfunction, inspect.isgeneratorfunction, inspect.iscoroutinefunction)
    ):
        raise TypeError(f"lifespan must be {expected}, and {getattr(lifespan, '__qualname__', lifespan)!s} is not")
    # What the decorator of contextlib was given. Other decorators may wrap a class or an object; those are not checked.
    wrapped = getattr(lifespan, "__wrapped__", None)
    if inspect.iscoroutinefunction(wrapped):
        raise TypeError(f"lifespan must be {expected}, and {wrapped.__qualname__} has no yield")
    if inspect.isgeneratorfunction(wrapped):
        raise TypeError(f"lifespan must be {expected}, and {wrapped.__qualname__} is not async")
    try:
        signature_of(cast("Callable[..., object]", lifespan)).bind(None)
    except TypeError as error:
        raise TypeError(f"lifespan must be {expected}; this one cannot be called with the server: {error}") from error
    except ValueError:
        return  # an object without a signature


@asynccontextmanager
async def open_lifespan(
    lifespan: Callable[[], AbstractAsyncContextManager[object]], name: str
) -> AsyncGenerator[object]:
    """Enter a lifespan in a separate task, and yield its value; leaving the block closes it, shielded and bounded.

    Args:
        name: of the server, for the task and for messages.

    Raises:
        Exception: what the lifespan raised, unchanged: at its start, while the block runs (which is cancelled then), or in its
            clean-up.
        RuntimeError: the lifespan ended while the block was running.
    """
    over, scope = trio.Event(), trio.CancelScope()

    async def run(*, task_status: trio.TaskStatus[object]) -> None:
        with scope:
            try:
                async with lifespan() as value:
                    # A cancel that its start did not notice, for example in a thread. With the shield, this task would never
                    # end, because no other task would learn that it has started.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    scope.shield = True
                    task_status.started(value)
                    await over.wait()
            except Exception as error:
                error.add_note(LIFESPAN_NOTE)
                if hint := asyncio_hint(error, "lifespan"):
                    error.add_note(hint.removeprefix("; "))
                raise
        if scope.cancelled_caught:
            logger.error("the lifespan of %s was cancelled: it did not end within %g s", name, LIFESPAN_EXIT_SECONDS)
        elif not over.is_set():
            raise RuntimeError(f"the lifespan of {name} ended while the server was running")

    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            value = await nursery.start(run, name=f"the lifespan of {name}")
            try:
                yield value
            finally:
                over.set()
                scope.deadline = trio.current_time() + LIFESPAN_EXIT_SECONDS


# Failures of the start that are the environment's: one line tells what to mend, and a traceback would bury it.


def show_in_one_line(error: CannotListen | ConfigurationError, name: str) -> None:
    """Have Python show this exception as one line, if nothing catches it: a port in use, or a setting that is wrong.

    The exit status is 1, as for each exception that nothing catches.

    Args:
        name: of the server, for the line.
    """
    before = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is not error:
            before(kind, value, traceback)
            return
        text = error.strerror if isinstance(error, CannotListen) else str(error)
        sys.stderr.write(f"{name}: {one_line(text or str(error))}\n")

    sys.excepthook = show


if not TYPE_CHECKING:
    # FastMCP has a decorator in a module of this name.
    __getattr__ = hinting(__name__, "lifespan")
