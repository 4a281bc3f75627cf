"""Tasks of processes that have ended: this one takes them over, once, and goes on with their work if their tool allows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from ...errors import CallLost, McpError
from ...logs import peer_logger
from ...protocol.jsonrpc import INTERNAL_ERROR, ErrorDetail
from ...storage import Record, Store, StoreConflict, StoreError
from ..calls.call import Plan
from ..calls.earlier import earlier_run, read_log
from ..calls.fenced import FencedRecord
from ..calls.settling import SETTLE_BACKOFF
from .creating import begin_work
from .open_task import OpenTask
from .record import KIND, TaskCall, TaskOutcome, TaskRecord, stored_form
from .stored import SET_ASIDE
from .tasks import Tasks

logger = peer_logger("trio_mcp.tasks")

PAGE = 200
"""Records that are read at once."""
AT_ONCE = 16
"""Tasks that are taken over at once."""


async def adopt_all(tasks: Tasks) -> None:
    """Take over every task whose process has ended; run as a task when the server starts."""
    after, ended = "", EndedNodes(tasks.store, tasks.services.node)
    try:
        while page := await tasks.store.list(KIND, after=after, limit=PAGE):
            left = [found for stored in page if (found := open_record(tasks, stored)) is not None]
            adoptable = iter([(record, version) for record, version in left if await ended.has(record.node)])
            # At once, so that their writes share commits.
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(adopt_some, tasks, adoptable)
            after = page[-1].key
    except* StoreError as errors:
        logger.error("the tasks of earlier processes cannot be taken over: %s", errors.exceptions[0])


def open_record(tasks: Tasks, stored: Record) -> tuple[TaskRecord, int] | None:
    """Return the record of a task that is not over, and its version; one that cannot be read is left where it is."""
    try:
        record = TaskRecord.decode(stored.value)
    except ValueError as error:
        tasks.services.records.log(SET_ASIDE, error, level=logging.ERROR)
        return None
    return None if record.outcome is not None else (record, stored.version)


@dataclass(slots=True, eq=False)
class EndedNodes:
    """Tells which processes have ended; a process that has is asked about once."""

    _store: Store
    _this: str
    _ended: dict[str, bool] = field(default_factory=dict)

    async def has(self, node: str) -> bool:
        """Return whether it has ended. Raises `StoreError`."""
        if node not in self._ended:
            self._ended[node] = node != self._this and not await self._store.is_alive(node)
        return self._ended[node]


async def adopt_some(tasks: Tasks, adoptable: Iterator[tuple[TaskRecord, int]]) -> None:
    for record, version in adoptable:
        await adopt(tasks, record, version)


async def adopt(tasks: Tasks, record: TaskRecord, version: int) -> None:
    """Take over a task, and go on with its work. Of several processes that try, one succeeds."""
    claimed = record._replace(node=tasks.services.node)
    owned = await own(tasks, claimed, version)
    if owned is None:
        return
    task = OpenTask(claimed, tasks)
    task.version, task.is_resuming = owned, True
    tasks.add(task)
    try:
        await resume(tasks, task, claimed.call)
    except (McpError, StoreError, ValueError, TypeError) as error:
        tasks.fail(task, lost(str(error)))


async def own(tasks: Tasks, claimed: TaskRecord, version: int) -> int | None:
    """Write the record of a task as that of this process; return its version, None if it is another's now.

    A store that fails is asked again, with growing pauses: if it had taken the record nevertheless, no process would work on it.

    Args:
        version: that it replaces.
    """
    stored, failures = stored_form(claimed, version), 0
    record = FencedRecord(tasks.store, KIND, stored.key, stored.owner, version)
    while True:
        try:
            await record.put(stored.value, stored.expires_at)
        except StoreConflict:
            return None
        except StoreError as error:
            tasks.services.records.log("the store did not keep that a task is taken over: %s", error)
        else:
            return record.version
        await trio.sleep(SETTLE_BACKOFF.delay(failures))
        failures += 1


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
