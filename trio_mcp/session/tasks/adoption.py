"""Tasks of processes that have ended: this one takes them over, once, and goes on with their work if their tool allows it."""

# A write that takes a task over and times out may be made, or be made later; then the task is this process's, and no other one
# works on it. So it is written again until it is known (`fenced.py`). So is a store that cannot say what there is to take over.

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import trio

from ...errors import CallLost, McpError
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

NOT_YET: Final = "the tasks of earlier processes cannot be taken over yet: %s"

PAGE = 200
"""Records that are read at once."""
AT_ONCE = 16
"""Tasks that are taken over at once."""


async def adopt_all(tasks: Tasks) -> None:
    """Take over every task whose process has ended; run as a task when the server starts."""
    after, ended, failures = "", EndedNodes(tasks.store, tasks.services.node), 0
    while True:
        try:
            page = await tasks.store.list(KIND, after=after, limit=PAGE)
            left = [found for stored in page if (found := open_record(tasks, stored)) is not None]
            adoptable = iter([(record, version) for record, version in left if await ended.has(record.node)])
        except StoreError as error:
            tasks.services.records.log(NOT_YET, error, level=logging.ERROR)
            await trio.sleep(SETTLE_BACKOFF.delay(failures))
            failures += 1
            continue
        if not page:
            return
        # At once, so that their writes share commits.
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(adopt_some, tasks, adoptable)
        after, failures = page[-1].key, 0


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
    claimed_version = await claim(tasks, claimed, version)
    if claimed_version is None:
        return
    task = OpenTask(claimed, tasks, caller=None if claimed.call is None else claimed.call.facts().principal)
    task.version, task.is_resuming = claimed_version, True
    tasks.add(task)
    try:
        await resume(tasks, task, claimed.call)
    except (McpError, StoreError, ValueError, TypeError) as error:
        tasks.fail(task, lost(str(error)))


async def claim(tasks: Tasks, record: TaskRecord, version: int) -> int | None:
    """Put the record of a task as that of this process, until it is known to be there.

    Args:
        version: of the record that it replaces.

    Returns:
        its version; None if another process was faster, or the time of the task is over.
    """
    place, failures = stored_form(record, version), 0
    fence = FencedRecord(tasks.store, KIND, place.key, place.owner, version)
    while record.expires_at > tasks.clock():
        try:
            await fence.put(place.value, place.expires_at)
        except StoreConflict:
            return None
        except StoreError as error:
            tasks.services.records.log(NOT_YET, error, level=logging.ERROR)
        else:
            return fence.version
        await trio.sleep(SETTLE_BACKOFF.delay(failures))
        failures += 1
    return None


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
