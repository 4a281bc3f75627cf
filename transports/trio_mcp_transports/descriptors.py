"""File descriptors of this process's own standard streams."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def private_copy(fd: int, flags: int) -> int:
    """Return a new close-on-exec descriptor for what `fd` refers to, which does not block if the system allows that.

    That mode belongs to the open file, not to the descriptor. With a mere duplicate, a stderr that shares the terminal or
    the pipe (`2>&1`) would turn non-blocking too and lose log lines. So pipes and terminals are opened again where the
    system can; a regular file keeps its offset, and a socket cannot be opened.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with suppress(OSError):
            # O_NOCTTY: opening a terminal anew must not make it the controlling one.
            return os.open(f"/dev/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY)
    return os.dup(fd)
