"""Tasks of processes that have ended: this one takes them over, once, and goes on with their work if their tool allows it."""

from __future__ import annotations

import logging

from ...errors import CallLost, McpError
from ...logs import peer_logger
from ...protocol.jsonrpc import INTERNAL_ERROR, ErrorDetail
from ...storage import Put, Record, StoreConflict, StoreError
from ..calls.call import Plan
from ..calls.earlier import earlier_run, read_log
from .creating import begin_work
from .open_task import OpenTask
from .record import KIND, TaskCall, TaskOutcome, TaskRecord, stored_form
from .stored import SET_ASIDE
from .tasks import Tasks

logger = peer_logger("trio_mcp.tasks")

PAGE = 200
"""Records that are read at once."""


async def adopt_all(tasks: Tasks) -> None:
    """Take over every task whose process has ended; run as a task when the server starts."""
    after = ""
    try:
        while page := await tasks.store.list(KIND, after=after, limit=PAGE):
            for stored in page:
                await adopt(tasks, stored)
            after = page[-1].key
    except StoreError as error:
        logger.error("the tasks of earlier processes cannot be listed: %s", error)


async def adopt(tasks: Tasks, stored: Record) -> None:
    """Take over a task if it is open and its process has ended. Of several processes that try, one succeeds."""
    try:
        record = TaskRecord.decode(stored.value)
    except ValueError as error:
        # It is left where it is, and the others go on.
        tasks.services.records.log(SET_ASIDE, error, level=logging.ERROR)
        return
    if record.outcome is not None or record.node == tasks.services.node or await tasks.store.is_alive(record.node):
        return
    claimed = record._replace(node=tasks.services.node)
    try:
        await tasks.store.write([Put(stored_form(claimed, stored.version))])
    except StoreConflict:
        return
    task = OpenTask(claimed, tasks)
    task.version, task.is_resuming = stored.version + 1, True
    tasks.add(task)
    try:
        await resume(tasks, task, claimed.call)
    except (McpError, StoreError, ValueError, TypeError) as error:
        tasks.fail(task, lost(str(error)))


async def resume(tasks: Tasks, task: OpenTask, call: TaskCall | None) -> None:
    """Go on with the work of a task: run its body again, with the answers and steps that it had recorded.

    Raises:
        CallLost: its tool does not allow that, or a step may have run that must not run twice.
        McpError, StoreError, ValueError, TypeError: it cannot be done.
    """
    if call is None:
        raise CallLost("the record has no call")
    services, facts = tasks.services, call.facts()
    plan = services.routes[facts.method](facts, call.request())
    if not isinstance(plan, Plan):
        raise CallLost("the tool does not take the arguments any more")
    run = earlier_run(await read_log(services.store, stored_form(task.record, 0).key))
    loss = run.loss(plan, always_replay=services.options.always_replay)
    if loss is not None:
        raise loss
    begin_work(services, task, plan, facts, run)


def lost(why: str) -> TaskOutcome:
    """Return the outcome of a task that cannot go on."""
    return TaskOutcome(error=ErrorDetail(INTERNAL_ERROR, f"The server was restarted while the task ran. {why}"))
