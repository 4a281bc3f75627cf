"""Clean-up after a body that left nurseries open in its task."""

from __future__ import annotations

import trio

from ..logs import peer_logger
from .actor import Actor

logger = peer_logger("trio_mcp.call")


def cancel_leftover_nurseries(actor: Actor) -> None:
    """Cancel the tasks in nurseries that a body left open, for example in a generator that it did not close.

    Trio does the same when such a task exits, but then also fails the task, past every handler of ours, and with it the nursery
    of the supervisor.
    """
    task = trio.lowlevel.current_task()
    logger.error("%s left a nursery open; the tasks in it are cancelled", actor.name)
    # No await in here: the generator's own finalizer may be about to close the same nursery.
    # Private names, since Trio has no public way to close the nursery of a generator that will never continue.
    while task.child_nurseries:
        nursery = task._child_nurseries.pop()  # noqa: SLF001
        nursery.cancel_scope.cancel()
        nursery._closed = True  # noqa: SLF001
        nursery.cancel_scope._close(None)  # noqa: SLF001
