"""Failing on what a test leaves behind: tasks, threads, descriptors, child processes, and warnings that were not raised."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

THREAD_GRACE = 5.0
"""Seconds that a thread which was told to end has to do so."""

CACHED_THREAD = "Trio thread"
"""What Trio calls a thread that it keeps for its next use."""


@contextmanager
def no_leaks() -> Iterator[None]:
    """Round a whole `trio.run`: afterwards the process has no more threads, descriptors and children than before.

    Raises:
        AssertionError: it has; the text names each. So do exceptions and warnings that were only reported to hooks.
    """
    gc.collect()
    gc.freeze()  # what is there already is not looked at again, which is most of what a case would cost
    threads, descriptors, children = set(threading.enumerate()), open_descriptors(), child_processes()
    unraised: list[str] = []
    hook, sys.unraisablehook = (
        sys.unraisablehook,
        lambda event: unraised.append(f"{event.exc_value!r} {event.object!r}"),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook
    left = [
        *(f"the thread {thread.name}" for thread in threading.enumerate() if thread not in threads and lives(thread)),
        *(f"the descriptor {number} of {what}" for number, what in (open_descriptors() - descriptors)),
        *(f"the child process {pid}" for pid in child_processes() - children),
        *(f"an exception that was not raised: {what}" for what in unraised),
    ]
    assert not left, f"it left behind {', '.join(left)}"


@contextmanager
def no_tasks_left() -> Iterator[None]:
    """Inside a `trio.run`: afterwards no task runs that did not run before, Trio's own apart.

    Raises:
        AssertionError: one does; the text names it.
    """
    before = set(all_tasks())
    yield
    left = [task.name for task in all_tasks() if task not in before]
    assert not left, f"it left tasks running: {', '.join(left)}"


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Every task of this run, system tasks included."""
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)


def lives(thread: threading.Thread) -> bool:
    """Whether a thread goes on; one of Trio's cache does so with nothing to do."""
    if thread.name.startswith(CACHED_THREAD):
        return False
    thread.join(THREAD_GRACE)
    return thread.is_alive()


def open_descriptors() -> set[tuple[int, str]]:
    """The open descriptors of this process and what each is of; empty where the system does not tell."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    found = set()
    for name in os.listdir(folder):
        try:
            found.add((int(name), os.readlink(folder / name)))
        except OSError:  # the one that reads this folder
            continue
    return found


def child_processes() -> set[int]:
    """The children of this process, zombies included; empty where the system does not tell."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in listing.read_text().split())
        except OSError:  # that thread has ended
            continue
    return found
