"""Where tasks are: their stacks, and the innermost line of the author's code, also in a thread that they wait for.

All of it is read from the frames when it is asked for; tasks and threads record nothing for it.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from traceback import StackSummary, walk_stack
from types import AsyncGeneratorType, CoroutineType, FrameType
from typing import Final

import trio

from .threads import Job, ThreadLimiter
from .watchdog import asyncio_call_of

MAX_STACKS = 8
"""Tasks of a stuck actor whose stacks are shown."""
AWAITING: Final = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
"""The attributes of a coroutine or generator with its frame, and with what it awaits."""

OURS: Final = (__name__.partition(".")[0], "trio_mcp_transports", "trio", "outcome", "asyncio")
INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
"""Folders with the code of others. Under the first the author's own code may be installed, too."""
THREADS: Final = "trio._threads"
LOCKS: Final = ("trio._sync", "asyncio.locks")


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of the author's code at which a call or a branch is.

    Attributes:
        file, line, function: the innermost one that is neither of this project nor of another library.
        in_thread: whether it is there in a thread, or waits for one.
        waits_for: the class of Trio or asyncio that it waits for there, such as "trio.Lock"; empty if it waits for something
            else.
    """

    file: str
    line: int
    function: str
    in_thread: bool = False
    waits_for: str = ""

    def __str__(self) -> str:
        thread, lock = ", in a thread" * self.in_thread, f", waits for a {self.waits_for}" * bool(self.waits_for)
        return f"{self.file}:{self.line} in {self.function}{thread}{lock}"


def code_line(task: trio.lowlevel.Task, others: Iterable[trio.lowlevel.Task | None] = ()) -> CodeLine | None:
    """Return where the code of a task is, or of the first task in its nurseries; None if it has not run yet.

    Args:
        others: tasks that are not looked at, with those in their nurseries.
    """
    children = (child for nursery in task.child_nurseries for child in nursery.child_tasks if child not in others)
    for child in children:
        if (line := code_line(child, others)) is not None:
            return line
    frames = [frame for frame, _ in await_frames(task.coro)]
    users = [frame for frame in [*frames, *frames_in_thread(frames)] if module_of(frame) not in OURS]
    if not users:
        return None
    root = module_of(users[0])
    innermost = next(each for each in reversed(users) if module_of(each) == root or not is_installed(each))
    return CodeLine(
        innermost.f_code.co_filename,
        innermost.f_lineno,
        innermost.f_code.co_name,
        any(frame.f_globals.get("__name__") == THREADS for frame in frames),
        next((lock_of(frame) for frame in frames if frame.f_globals.get("__name__") in LOCKS), ""),
    )


def module_of(frame: FrameType) -> str:
    """Return the name of the outermost package, or of the module, that a frame belongs to."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_installed(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(INSTALLED)


def lock_of(frame: FrameType) -> str:
    """Return the class of Trio or asyncio of which a frame runs a method."""
    locals_: Mapping[str, object] = frame.f_locals
    return f"{module_of(frame)}.{type(locals_.get('self')).__name__}"


def frames_in_thread(frames: Sequence[FrameType]) -> list[FrameType]:
    """Return the frames of the plain function that a task with these frames waits for, outermost first."""
    job = next((frame.f_locals.get("job") for frame in frames if frame.f_code is ThreadLimiter.run.__code__), None)
    for innermost in sys._current_frames().values() if job is not None else ():  # noqa: SLF001  documented, and the only way
        found: list[FrameType] = []
        for frame, _ in walk_stack(innermost):
            if frame.f_code is Job.__call__.__code__:
                if frame.f_locals.get("self") is job:
                    return found[::-1]
                break
            found.append(frame)
    return []


def stacks(task: trio.lowlevel.Task) -> str:
    """Return where a task and those in its nurseries wait, formatted like tracebacks."""
    return "".join(f"task {each.name}:\n{stack(each)}" for each in islice(descendant_tasks(task), MAX_STACKS))


def stack(task: trio.lowlevel.Task) -> str:
    return "".join(StackSummary.extract(await_frames(task.coro)).format())


def await_frames(waiting: object) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a coroutine and of what it awaits, on asyncio too, from the outside in, with their line numbers."""
    # `Task.iter_await_frames` stops at an object that has an `__await__`, and what it runs may be the author's code.
    while waiting is not None:
        for frame_name, next_name in AWAITING:
            if hasattr(waiting, frame_name):
                frame: FrameType | None = getattr(waiting, frame_name)
                call = None
                if frame is not None:
                    yield frame, frame.f_lineno
                    call = asyncio_call_of(frame, "result")
                waiting = getattr(waiting, next_name) if call is None else call.awaitable
                break
        else:
            # Python's own wrappers show what they run to the garbage collector only.
            inner = (each for each in gc.get_referents(waiting) if isinstance(each, CoroutineType | AsyncGeneratorType))
            waiting = next(inner, None)


def descendant_tasks(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    """Yield a task, and all tasks in its nurseries and in theirs."""
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from descendant_tasks(child)
