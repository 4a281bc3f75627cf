"""The boundary round the body of an actor: whatever it raises becomes an outcome, and one tool never ends the process."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

import trio

from ..groups import split_group
from .actor import Actor, Cancelled, Outcome, Raised, Returned

logger = logging.getLogger("trio_mcp.call")

Body = Callable[[Actor], Awaitable[object]]


async def contained(actor: Actor, body: Body) -> Outcome:
    """Run a body inside its actor's scope and turn whatever it does into an outcome.

    Only a cancellation from outside the actor passes through; `SystemExit`, `KeyboardInterrupt` and `GeneratorExit` that a
    body raises are its own failures (reliability, finding 3).
    """
    try:
        with actor.scope:
            try:
                return Returned(await body(actor))
            finally:
                if trio.lowlevel.current_task().child_nurseries:
                    close_abandoned(actor)
    except BaseException as error:  # noqa: BLE001, ASYNC103  this is the boundary
        if trio.current_effective_deadline() == -math.inf:  # cancelled from outside, with the supervisor
            # No name for the rest: it would keep the error, and with it this frame.
            cancelled = split_group(error, trio.Cancelled)[0]
            if cancelled is not None:
                raise cancelled from None  # noqa: ASYNC104
        return Raised(error)  # noqa: ASYNC104  also a `Cancelled` that a body kept from another scope: it is nobody's here
    assert actor.reason is not None, "the scope of an actor is left early by a cancel only"
    return Cancelled(actor.reason)


def close_abandoned(actor: Actor) -> None:
    """A body left nurseries open (a generator with one inside that was not closed): cancel what runs in them.

    This is what Trio does when such a task exits, but there it also fails the task, past every boundary, and with it the
    supervisor's nursery. Nothing may be awaited here: the generator's own finalizer may be about to close the nursery too.
    """
    task = trio.lowlevel.current_task()
    logger.error("%s left a nursery open; the tasks in it are cancelled", actor.name)
    while task.child_nurseries:
        nursery = task._child_nurseries.pop()  # noqa: SLF001
        nursery.cancel_scope.cancel()
        nursery._closed = True  # noqa: SLF001
        nursery.cancel_scope._close(None)  # noqa: SLF001
