"""Tasks of processes that have ended: this one takes them over, once, and goes on with their work if their tool allows it."""

# A task that was left, in the pass that finds it, and in the next one:
#
#     the store                            then
#     takes the claim                      the work goes on here
#     has another version                  another process has it
#     fails, or is late                    the next pass takes it over, if it is this process's or still that of the dead one
#     has another version after that       the same again, as the late claim may have been made
#     fails as the log is read             it is this process's, and nothing runs: the next pass goes on with it

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from ...errors import CallLost, McpError, without_traceback
from ...protocol.jsonrpc import INTERNAL_ERROR, ErrorDetail
from ...storage import Put, Record, Store, StoreConflict, StoreError, UnreadableRecord
from ..calls.call import Plan
from ..calls.previous_run import earlier_run, read_log
from .creating import begin_work
from .open_task import OpenTask
from .record import KIND, TaskCall, TaskOutcome, TaskRecord, stored_form
from .stored import SET_ASIDE, principal_of
from .tasks import Tasks

PAGE = 200
"""Records that are read at once."""
AT_ONCE = 16
"""Tasks that are taken over at once."""
ADOPT_AGAIN_SECONDS = 5.0
"""Seconds after which a store is asked again that has failed."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at the other processes."""

NOT_YET_ADOPTED = "the tasks of earlier processes cannot be taken over yet: %s"


async def adopt_all(tasks: Tasks) -> None:
    """Take over every task whose process has ended: at once what earlier processes left, later what other ones leave.

    Runs until cancelled. A store that fails is tried again.
    """
    adoption = Adoption(tasks)
    while True:
        failure = await adoption.run()
        if failure is not None:
            tasks.services.records.log(NOT_YET_ADOPTED, failure, level=logging.ERROR)
        await trio.sleep(LOOK_SECONDS if failure is None else ADOPT_AGAIN_SECONDS)


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


@dataclass(slots=True, eq=False)
class Adoption:
    """Takes over the tasks that other processes have left.

    Attributes:
        is_due: there may be some, whether or not a process is seen to have ended.
    """

    _tasks: Tasks
    is_due: bool = True
    _unsure: set[str] = field(default_factory=set[str])
    """The ids of tasks that may belong to this process already, which does not work on them: the store did not say."""

    async def run(self) -> StoreError | None:
        """Take over what there is; return the error of the store if that has to be tried again."""
        processes = self._tasks.services.processes
        try:
            ended = await processes.find_ended()
            if not ended and not self.is_due:
                return None
            self.is_due = True
            failure = await self._adopt_left()
            if failure is None:
                self.is_due = False
                await processes.note_ended(ended)
        except StoreError as error:
            return without_traceback(error)
        return failure

    async def _adopt_left(self) -> StoreError | None:
        tasks, after, failures = self._tasks, "", list[StoreError]()
        ended = EndedNodes(tasks.store, tasks.services.node)
        try:
            while not failures and (page := await tasks.store.list(KIND, after=after, limit=PAGE)):
                left = [found for stored in page if (found := open_record(tasks, stored)) is not None]
                adoptable = iter([(record, version) for record, version in left if await self._is_left(record, ended)])
                # At once, so that their writes share commits.
                async with trio.open_nursery() as nursery:
                    for _ in range(AT_ONCE):
                        nursery.start_soon(self._adopt_some, adoptable, failures)
                after = page[-1].key
        except StoreError as error:
            failures.append(without_traceback(error))
        return failures[0] if failures else None

    async def _is_left(self, record: TaskRecord, ended: EndedNodes) -> bool:
        if record.node == self._tasks.services.node:
            return record.id in self._unsure
        return await ended.has(record.node)

    async def _adopt_some(self, adoptable: Iterator[tuple[TaskRecord, int]], failures: list[StoreError]) -> None:
        for record, version in adoptable:
            if failures:
                return
            try:
                await self._adopt(record, version)
            except StoreError as error:
                failures.append(without_traceback(error))

    async def _adopt(self, record: TaskRecord, version: int) -> None:
        """Take over a task, and go on with its work. Of several processes that try, one succeeds. Raises `StoreError`."""
        tasks = self._tasks
        claimed, was_unsure = record._replace(node=tasks.services.node), record.id in self._unsure
        self._unsure.add(record.id)
        try:
            await tasks.store.write([Put(stored_form(claimed, version))])
        except StoreConflict:
            if was_unsure:
                # The claim of an earlier pass may have been made only now.
                raise
            self._unsure.discard(record.id)
            return
        task = OpenTask(claimed, tasks, caller=principal_of(record.owner))
        task.version, task.was_adopted, task.is_resuming = version + 1, True, True
        tasks.add(task)
        try:
            await resume(tasks, task, claimed.call)
        except (McpError, UnreadableRecord, ValueError, TypeError) as error:
            tasks.fail(task, lost(str(error)))
        except StoreError:
            # What it had recorded can be read later.
            tasks.forget(task)
            raise
        self._unsure.discard(record.id)


async def resume(tasks: Tasks, task: OpenTask, call: TaskCall | None) -> None:
    """Go on with the work of a task: run its body again, with the answers and steps that it had recorded.

    Raises:
        CallLost: its tool does not allow that, or a step may have run that must not run twice.
        McpError, StoreError, ValueError, TypeError: it cannot be done.
    """
    if call is None:
        raise CallLost("the record has no call")
    services, offers, facts = tasks.services, tasks.offers(), call.facts()
    plan = offers.routes[facts.method](facts, call.request())
    if not isinstance(plan, Plan):
        raise CallLost("the tool does not take the arguments any more")
    run = earlier_run(await read_log(services.store, stored_form(task.record, 0).key))
    loss = run.loss(plan, always_replay=services.options.always_replay)
    if loss is not None:
        raise loss
    begin_work(services, offers, task, plan, facts, run)


def lost(why: str) -> TaskOutcome:
    """Return the outcome of a task that cannot go on."""
    return TaskOutcome(error=ErrorDetail(INTERNAL_ERROR, f"The server was restarted while the task ran. {why}"))
