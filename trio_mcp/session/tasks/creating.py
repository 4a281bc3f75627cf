"""Creating a task: its record is stored, then its work begins and the request is answered."""

# A task whose record may be written late, after its request was answered with an error or withdrawn, is taken back. With an
# idempotency key the record of the key is the fence (`idempotency.py`): the two are written in one step. For any other task, a
# record that marks it as taken back is stored under the task's key for a minute, whether the late write comes before or after it
# (`settling.py`). It is written again until the store confirms it, or the process ends: then the next process continues a task
# whose record was stored, as after a crash while the request waits for its answer.

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import trio

from ...errors import LimitExceeded, LocalProtocolError, without_traceback
from ...runtime import CancelReason, Journal
from ...storage import Append, Change, Fenced, Forget, Remove, Store, StoreConflict, StoreError, StoreFull
from ...types import Model
from ..calls.call import Call, Plan
from ..calls.facts import RequestFacts
from ..calls.failures import NO_REPLY_REASONS, error_detail, store_failure
from ..calls.previous_run import PreviousRun
from ..calls.services import CallOffers, CallServices
from ..recovery.key_store import Claim
from ..recovery.settling import FencedRecord
from ..recovery.stored_journal import LOG_KIND, encoded_entry
from ..replies import LegOutcome, ReplyTarget
from .call import CallAsTask
from .open_task import NOT_YET, HeldTask, OneTask, OpenTask, find_answer
from .record import KIND, stored_form, taken_back


class TaskTable(Protocol):
    """Where tasks are created."""

    services: CallServices
    store: Store

    def clock(self) -> float:
        """Return the time in Unix seconds."""
        ...

    def new(self, plan: Plan, facts: RequestFacts, params: Model, caller: Hashable | None) -> OpenTask:
        """Return a task that is counted as open, and not stored yet. Raises `LimitExceeded`."""
        ...

    def forget(self, task: OpenTask) -> None:
        """Count a task as open no longer."""

    def created(self, task: OpenTask, facts: RequestFacts) -> LegOutcome:
        """Return the answer to the request that has created a task."""
        ...


@dataclass(slots=True, eq=False)
class NewTask:
    """A task that is to be stored, and whose work then begins.

    Args:
        offers: those that the plan is of; others may take their place before the task is stored.
        claim: of its idempotency key, with which the answer is stored; None if a repeat in another process would not get it.
        one: lets no second task come of the same call; None if there is nothing to look for.
        run: what the call has recorded that becomes the task; None for a new one.
        held: changes that are a conflict once another process runs that call.
        is_wanted: whether its caller still waits for the answer when it is stored.

    Attributes:
        scope: cancelled if the task is no longer wanted before it is stored.
    """

    _tasks: TaskTable
    offers: CallOffers
    task: OpenTask
    plan: Plan
    facts: RequestFacts
    _claim: Claim | None = None
    _one: OneTask | None = None
    run: PreviousRun | None = None
    held: Sequence[Change] = ()
    is_wanted: Callable[[], bool] = lambda: True
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _fence: FencedRecord = field(init=False)

    async def create(self) -> LegOutcome:
        """Store the task, and begin its work; return the answer to the request, None if it was withdrawn.

        Raises:
            StoreError, LimitExceeded, LocalProtocolError: it cannot be created.
        """
        tasks, task = self._tasks, self.task
        with self.scope:
            unknown: StoreError | None = None
            answer = tasks.created(task, self.facts)
            place = stored_form(task.record, 0)
            self._fence = FencedRecord(tasks.store, KIND, place.key, place.owner)
            changes: list[Change] = [self._fence.begin(place.value, place.expires_at)]
            # In one step: else a repeat after a crash would create a second task.
            if self._claim is not None:
                changes += self._claim.creating(answer, self._removal)
            if self._one is not None:
                changes += self._one.creating(answer)
            changes += self.held
            if self.run is not None and self.run.logged:
                entries = [encoded_entry(entry) for entry in self.run.entries]
                changes.append(Append(LOG_KIND, place.key, 1, entries, place.expires_at))
            try:
                await tasks.store.write(changes)
            except (StoreConflict, StoreFull, Fenced):
                raise
            except StoreError as error:
                unknown = without_traceback(error)
            if unknown is not None:
                # It may be written all the same.
                await self._take_back()
                raise unknown
            self._fence.made(place.value)
            task.version = 1
            if self.is_wanted() and not self.scope.cancel_called:
                try:
                    begin_work(tasks.services, self.offers, task, self.plan, self.facts, self.run)
                    return answer
                except (LimitExceeded, LocalProtocolError) as error:
                    refused = without_traceback(error)
                await self._take_back()
                raise refused
        await self._take_back()
        return None

    async def _take_back(self) -> None:
        """Remove the record; if that takes longer than `TAKE_BACK_SECONDS`, continue in a separate Trio task."""
        task = self.task
        if task.work is not None:
            task.work.actor.cancel(CancelReason.EXPIRED)
        if self._claim is not None:
            await self._claim.take_back()
        else:
            await self._tasks.services.settling.settle(self._remove, self.facts.principal, TAKE_BACK_SECONDS)

    async def _remove(self) -> None:
        fence, store = self._fence, self._tasks.store
        if fence.is_known or not store.durable:
            await store.write(self._removal)
            return
        # The store goes by the wall's clock: after a step of that one it would remove this before the late write comes.
        until = max(self._tasks.clock(), time.time()) + TAKEN_BACK_SECONDS
        instead = stored_form(taken_back(self.task.record, until), 0)
        # Not in the list of its owner.
        fence.owner = instead.owner
        await fence.put(instead.value, instead.expires_at, self._removal[1:])

    @property
    def _removal(self) -> list[Change]:
        """The changes that remove what was written, unless the next process has taken it over."""
        key = stored_form(self.task.record, 0).key
        return [Remove(KIND, key, 1 if self._tasks.store.durable else None), Forget(LOG_KIND, key)]


async def create_from(tasks: TaskTable, call: Call, params: Model) -> LegOutcome:
    """Create a task that goes on with what a call has recorded; return the answer to its request.

    If another process was faster, nothing is created, and the answer is the same as there.

    Returns:
        None if its client goes before the task is stored; nothing remains.

    Raises:
        LimitExceeded: the server or this owner has as many open tasks as may be; nothing remains.
        TakenOver: another process runs the call, which ends here.
        StoreError: the store does not keep it; nothing remains.
    """
    memory = call.memory
    log = None if memory is None else memory.log
    entries = () if memory is None else (*memory.journal.entries, *memory.timed_out)
    run = PreviousRun(entries, logged=len(entries) if tasks.store.durable else 0)
    earlier = NOT_YET
    for _ in range(ATTEMPTS):
        task = tasks.new(call.plan, call.facts, params, call.actor.caller)
        place = stored_form(task.record, 0)
        one = None if log is None else OneTask(log.key, log.expires_at(), place, earlier.version)
        conflict: StoreConflict | None = None
        try:
            wanted = partial(still_waits, call)
            held = () if log is None else log.held()
            new = NewTask(tasks, call.offers, task, call.plan, call.facts, None, one, run, held, wanted)
            answer = await new.create()
        except StoreConflict as error:
            conflict, answer = without_traceback(error), None
        except BaseException:
            tasks.forget(task)
            raise
        if answer is None:
            tasks.forget(task)
        if conflict is None or log is None:
            return answer
        earlier = await find_answer(tasks.store, log.key, tasks.clock())
        if earlier.answer is not None:
            return earlier.answer if still_waits(call) else None
        await log.check_held()
    raise StoreConflict("other processes make a task of the same call, again and again")


def still_waits(call: Call) -> bool:
    """Return whether the client of a call waits for its answer."""
    return call.is_answering and call.actor.cancel_reason not in NO_REPLY_REASONS


@dataclass(slots=True, eq=False)
class Creating:
    """The work that answers a request which creates a task. Until the task is stored, the request can be withdrawn.

    Args:
        on_answer: called with the answer, or with None if there is none because the request was withdrawn.
    """

    _tasks: TaskTable
    _new: NewTask
    _target: ReplyTarget
    _on_answer: Callable[[LegOutcome], None]

    @property
    def method(self) -> str:
        return self._new.facts.method

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        self._new.scope.cancel()
        target.finish(None)

    def disconnect(self, target: ReplyTarget) -> None:  # noqa: ARG002
        # No client has the id, so none could fetch the result.
        self._new.scope.cancel()

    async def run(self) -> None:
        """Store the task, begin its work and answer the request; nothing remains of a task that cannot be created."""
        target, new = self._target, self._new
        try:
            answer = await new.create()
        except (StoreError, LimitExceeded, LocalProtocolError) as error:
            services = self._tasks.services
            visible = store_failure(services.records, error) if isinstance(error, StoreError) else error
            detail = error_detail(services.failures, new.facts, visible, new.plan.target)
            self._tasks.forget(new.task)
            self._on_answer(detail)
            if not target.finished:
                target.finish(detail)
            return
        self._on_answer(answer)
        if answer is None:
            self._tasks.forget(new.task)
        else:
            target.finish(answer)


ATTEMPTS = 3
"""How often the record of a call may change before its task is written."""

TAKE_BACK_SECONDS: Final = 2.0
"""Seconds for which a request waits until the record of a task that was not created is removed."""

TAKEN_BACK_SECONDS: Final = 60.0
"""For how long it is kept that a task was taken back: longer than a write can be late."""


def begin_work(
    services: CallServices,
    offers: CallOffers,
    task: OpenTask,
    plan: Plan,
    facts: RequestFacts,
    run: PreviousRun | None = None,
) -> None:
    """Start the call of a task. It ends with the task at the latest, and is recorded in the store if that is durable.

    Args:
        run: what an earlier run has left.

    Raises:
        LimitExceeded: the server runs too many calls, or has no memory left for one, or is shutting down.
    """
    if run is not None:
        # The task holds it for as long as it runs.
        facts = facts._replace(size=facts.size + sum(len(encoded_entry(entry)) for entry in run.entries))
    left = task.record.created_at + task.record.ttl - task.home.clock()
    plan = plan._replace(timeout=max(0.0, min(plan.timeout, left)), heartbeat=None)
    operation = None
    if services.telemetry is not None:
        operation = services.telemetry.working("task", plan.target, facts.terms.meta.raw).start()
    journal = None if run is None else Journal(run.entries)
    try:
        call = CallAsTask(services, offers, plan, facts, None, task, None, journal)
    except (LimitExceeded, LocalProtocolError) as error:
        if operation is not None:
            operation.raised(error)
            operation.end()
        raise
    finally:
        if operation is not None:
            operation.leave()
    call.operation = operation
    task.work = call
    call.actor.was_admitted = run is not None
    if call.memory is not None and services.is_durable:
        key = stored_form(task.record, 0).key
        if run is None:
            call.memory.keep_in(services.open_log(key, left, holding=HeldTask(task)))
        else:
            call.memory.continue_in(services.open_log(key, left, run.logged, HeldTask(task)))
