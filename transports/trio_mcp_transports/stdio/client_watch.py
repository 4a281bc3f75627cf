"""A thread that notices when the client of a stdio server is gone, although a tool may block the event loop."""

# The event loop learns of the end of stdin by reading it, and that is the usual way. While it is blocked, it reads nothing. So a
# thread waits for the hang-up of stdin, without reading, and then asks the loop whether it is alive:
#
#   stdin           the loop    what the thread does
#   is open         -           looks at the parent every `CHECK_SECONDS`
#   was hung up     answers     the same, and asks again: the loop may read the rest of stdin only when its client reads
#   was hung up     is silent   ends the process after the grace
#
# A hang-up does not begin the grace while the loop answers: what is still in the pipe was sent before it, and is served.
#
# End of stdin usually tells that the client is gone; not so when some other process has inherited the writing end of the pipe.
# Then the death of the parent does. No portable event tells that: prctl(PR_SET_PDEATHSIG) is for Linux alone, and it follows the
# parent's thread.

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

import trio

from ..hard_end import LONGEST, HardEnd

CHECK_SECONDS: Final = 2.0

# With this, Linux reports a socket whose other end has stopped sending but still reads.
HANG_UP: Final[int] = getattr(select, "POLLRDHUP", 0)


@contextmanager
def watched_client(
    stdin: int, *, parent: int, grace: float, hard_end: HardEnd, on_orphaned: Callable[[], object]
) -> Generator[None]:
    """Watch the client in the block.

    Args:
        stdin: may be closed in the block.
        parent: the id of the process that was the parent at the start.
        grace: seconds that the event loop may be silent after the end of stdin, and that the end may take without a parent.
        on_orphaned: called in the event loop when the parent is gone.
    """
    watch = ClientWatch(stdin, parent, min(grace, LONGEST), hard_end, on_orphaned)
    thread = threading.Thread(target=watch.run, name="trio_mcp client watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        # It waits for nothing now.
        thread.join()
        watch.close()


class ClientWatch:
    """The watching thread and its descriptors."""

    def __init__(
        self, stdin: int, parent: int, grace: float, hard_end: HardEnd, on_orphaned: Callable[[], object]
    ) -> None:
        # A copy: the channel closes its own, whose number may then belong to another file.
        self._stdin = os.dup(stdin)
        self._stop_reader, self._stop_writer = os.pipe()
        self._parent = parent
        self._grace = grace
        self._hard_end = hard_end
        self._on_orphaned = on_orphaned
        self._token = trio.lowlevel.current_trio_token()
        self._answers: SimpleQueue[None] = SimpleQueue()

    def stop(self) -> None:
        """Let `run` return at once."""
        os.close(self._stop_writer)
        self._answers.put(None)

    def close(self) -> None:
        """Close the descriptors, after `run` has returned."""
        os.close(self._stop_reader)
        os.close(self._stdin)

    def run(self) -> None:
        """Watch until the process must end, or `stop` is called. Runs in its own thread."""
        hung_up = False
        hang_ups = select.poll()
        hang_ups.register(self._stdin, HANG_UP)
        hang_ups.register(self._stop_reader, 0)
        while self._stop_reader not in (found := dict(hang_ups.poll(CHECK_SECONDS * 1000))):
            if self._stdin in found:
                hung_up = True
                hang_ups.unregister(self._stdin)
            if hung_up and self._loop_is_silent():
                self._hard_end.arm(0)
                return
            if os.getppid() != self._parent:
                self._hard_end.arm(self._grace)
                self._token.run_sync_soon(self._on_orphaned)
                return

    def _loop_is_silent(self) -> bool:
        self._token.run_sync_soon(self._answers.put, None)
        try:
            self._answers.get(timeout=self._grace)
        except Empty:
            return True
        return False
