"""Checks that a test leaves nothing behind: tasks, threads, descriptors, child processes, and warnings that were not raised."""

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
"""Seconds that a thread has to end after it was asked to."""

CACHED_THREAD = "Trio thread"
"""The name of a thread that Trio keeps for its next use."""


@contextmanager
def no_leaks() -> Iterator[None]:
    """Check after the block, which contains a whole `trio.run`, that the process has no new threads, descriptors or children.

    Raises:
        AssertionError: it has, and the text names each; or an exception or a warning was only reported to a hook.
    """
    gc.collect()
    gc.freeze()  # Else each case would scan all the objects that existed before, which is most of what it would cost.
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
    """Check after the block, which is inside a `trio.run`, that it left no task running.

    Raises:
        AssertionError: it did; the text names the tasks.
    """
    before = set(all_tasks())
    yield
    left = [task.name for task in all_tasks() if task not in before]
    assert not left, f"it left tasks running: {', '.join(left)}"


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Yield every task of this run, system tasks included."""
    root = trio.lowlevel.current_root_task()
    waiting = [] if root is None else [root]
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)


def lives(thread: threading.Thread) -> bool:
    """Return whether a thread still runs; a thread of Trio's cache is idle and does not count."""
    if thread.name.startswith(CACHED_THREAD):
        return False
    thread.join(THREAD_GRACE)
    return thread.is_alive()


def open_descriptors() -> set[tuple[int, str]]:
    """Return the open descriptors of this process and what each refers to; nothing where the system does not list them."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    found = set()
    for name in os.listdir(folder):
        try:
            found.add((int(name), os.readlink(folder / name)))
        except OSError:  # the descriptor that reads this folder
            continue
    return found


def child_processes() -> set[int]:
    """Return the children of this process, zombies included; nothing where the system does not list them."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in listing.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found
