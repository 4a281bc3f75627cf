"""One worker of `trio-mcp serve --workers`: today's command, in a process that `workers.py` starts."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..base.named_tuples import NamedTuple
from ..session.options import WORKPLACE, Workplace
from . import main
from .worker_folder import FolderLock

VARIABLE: Final = "TRIO_MCP_WORKER"
"""The variable that makes a process a worker, with `WorkerFacts` as JSON. It is taken out of the environment: programs that tools
start are no workers."""

FIRST_FD: Final = 3
"""Where sd_listen_fds(3) has the first socket."""


class WorkerFacts(NamedTuple):
    """What a parent says to a worker.

    Attributes:
        folder: see `Workplace`.
        sockets: the descriptors of the sockets to listen on.
        parent: the descriptor of a pipe that ends with the parent.
        announces: see `Workplace`.
    """

    folder: str
    sockets: Sequence[int]
    parent: int
    announces: bool


def take_sockets(sockets: Sequence[int]) -> None:
    """Put the sockets where a server looks for those of systemd."""
    for fd, given in enumerate(sockets, FIRST_FD):
        os.dup2(given, fd)
        os.close(given)
    pid = str(os.getpid())
    os.environ.update(LISTEN_PID=pid, LISTEN_FDS=str(len(sockets)), WATCHDOG_PID=pid)


def end_with_parent(descriptor: int, workplace: Workplace) -> None:
    """End this process as SIGTERM does when its parent ends, in whatever way."""
    # In a thread: it notices that also while the file is imported, and when the event loop hangs.
    while os.read(descriptor, 64):
        pass
    with suppress(OSError):
        workplace.note_ending()
    os.kill(os.getpid(), signal.SIGTERM)


def run() -> int:
    """Run the command in the arguments as a worker, and return its exit status."""
    facts = WorkerFacts(*json.loads(os.environ.pop(VARIABLE)))
    # Programs that tools start must not have it.
    os.set_inheritable(facts.parent, False)
    workplace = Workplace(Path(facts.folder), facts.announces)
    threading.Thread(
        target=end_with_parent, args=(facts.parent, workplace), name="trio_mcp parent", daemon=True
    ).start()
    take_sockets(facts.sockets)
    lock = FolderLock(workplace.folder)
    WORKPLACE.set(workplace)
    try:
        return main()
    finally:
        # The parent may have been killed.
        lock.leave()


if __name__ == "__main__":
    sys.exit(run())
