"""Whether this process is a forked copy of the one in which something began, without a system call to ask for its id."""

from __future__ import annotations

import os

generation = 0
"""How many times the process was forked on the way from the one that imported this module. Read it as `forks.generation`."""


def _count() -> None:
    global generation  # noqa: PLW0603  the process has one
    generation += 1


# Not on Windows, which has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)
