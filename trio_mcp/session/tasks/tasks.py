"""The tasks of a service: those that are worked on here, and what the store has of all others.

The rule for everything that callers see is *commit, then wake*: a change is written to the store, then shown, then announced.
"""

# The life of a task in this process:
#
#     event                          record                   in `_open`   in the store
#     start                          new                      yes          no
#     committed                      the same                 yes          yes; the request is answered, the work begins
#     a question, an answer          questions                yes          soon, if it is durable (answers: in the journal of
#                                                                          the call)
#     `ctx.status`                   message                  yes          soon
#     the work ends, or a cancel     outcome, no call         yes          soon
#     committed                      the same                 no           yes, until its ttl is over
#     its ttl is over                -                        no           no; its work is cancelled

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import cast

import trio

from ...base.named_tuples import NamedTuple
from ...base.shared_limits import OPEN_TASKS, WAITING_FOR_TASKS
from ...errors import RemoteProtocolError
from ...protocol.codec.tasks import TaskState
from ...protocol.jsonrpc import INVALID_PARAMS
from ...protocol.shown_text import dump_shown
from ...runtime import CancelReason
from ...runtime.quota import Quota
from ...storage import StoreError
from ...types import CallToolRequestParams, Model
from ..calls.call import Call, Plan
from ..calls.facts import RequestFacts, SessionFacts
from ..calls.failures import GOES_ON_REASONS, store_failure
from ..calls.legs import OpenQuestion
from ..calls.services import CallOffers, CallServices
from ..recovery.key_store import Claim
from ..replies import Answering, LegOutcome, ReplyTarget
from .creating import Creating, NewTask, create_from
from .mail import Mailbox
from .open_task import OpenTask, find_answer
from .questions import POLLS, Unattended
from .record import NO_QUESTIONS, TaskCall, TaskOutcome, TaskRecord, asked_questions, task_state
from .stored import StoredTasks, TaskSaver, may_see, owner_of, session_owner


class SeenTask(NamedTuple):
    """A task as a caller sees it.

    Attributes:
        questions: the open ones; None for those of the record.
        open: the task, if its work runs in this process and is not over.
    """

    record: TaskRecord
    questions: Mapping[str, OpenQuestion] | None
    open: OpenTask | None


class Tasks:
    """The tasks of one service.

    Args:
        offers: returns those of the service now.
        on_change: called with the id of a task when what is shown of it has changed.

    Attributes:
        waits: the requests that wait for results: they may take all day, and must not take the places of ordinary calls.
        mailbox: takes what comes to other processes for the tasks that are worked on here.
    """

    def __init__(
        self,
        services: CallServices,
        offers: Callable[[], CallOffers],
        on_change: Callable[[str], None],
    ) -> None:
        self.services = services
        self.offers = offers
        self.store = store = services.store
        self.options = services.options.tasks
        # Trio's clock, as that is what deadlines go by.
        self._epoch = time.time() - trio.current_time()
        self._on_change = on_change
        waiting = min(self.options.waiting, max(1, services.options.actors.actors // 2))
        self.waits = Quota(WAITING_FOR_TASKS, waiting, self.options.waiting_per_owner)
        self._unattended = Unattended(services.supervisor, self.waits, POLLS * self.options.poll_interval)
        self.stored = StoredTasks(services, store, self.clock)
        self._saver = TaskSaver(services, store, self.clock, self._announce, self.forget)
        self.mailbox = Mailbox(self)
        self._open: dict[str, OpenTask] = {}
        self._quota = Quota(OPEN_TASKS, self.options.open, self.options.open_per_owner)

    def clock(self) -> float:
        """Return the time in Unix seconds; it does not jump when the clock of the machine is set."""
        return self._epoch + trio.current_time()

    # creating

    def is_wanted(self, facts: RequestFacts, params: Model) -> bool:
        """Return whether the caller takes a task as the answer to this request."""
        return facts.terms.codec.asks_for_task(facts.method, params, facts.client_capabilities)

    def start(
        self,
        plan: Plan,
        facts: RequestFacts,
        params: Model,
        target: ReplyTarget,
        on_answer: Callable[[LegOutcome], None] = lambda _answer: None,
        claim: Claim | None = None,
        offers: CallOffers | None = None,
    ) -> None:
        """Create a task that runs a plan. The request is answered when the task is stored, and its work begins then.

        Args:
            on_answer: called with the answer, or with None if there is none because the request was withdrawn.
            claim: of its idempotency key, with which the answer is stored.
            offers: those that the plan is of; None for those of now.

        Raises:
            LimitExceeded: the server or this owner has as many open tasks as may be; nothing remains.
        """
        task = self.new(plan, facts, params, target.caller)
        offers = offers or self.offers()
        creating = Creating(self, NewTask(self, offers, task, plan, facts, claim), target, on_answer)
        target.work = creating
        self.services.supervisor.spawn(creating.run)

    async def start_from(self, call: Answering, params: Model) -> LegOutcome:
        """Create a task that goes on with what a call has recorded; return the answer to its request. See `create_from`."""
        assert isinstance(call, Call), "nothing else becomes a task"
        return await create_from(self, call, params)

    async def answer_of(self, call: str) -> LegOutcome:
        """Return the answer to the request of a call that has become a task, here or elsewhere; None if it has not.

        Args:
            call: the key of the log of the call.

        Raises:
            StoreError: whatever the store raises.
        """
        return (await find_answer(self.store, call, self.clock())).answer

    def new(self, plan: Plan, facts: RequestFacts, params: Model, caller: Hashable | None) -> OpenTask:
        """Return a task that is counted as open, and not stored yet. Raises as `start`."""
        assert isinstance(params, CallToolRequestParams)
        owner, now = owner_of(facts), self.clock()
        self._quota.check(caller)
        ttl = self.options.granted_ttl(None if params.task is None else params.task.ttl)
        record = TaskRecord(
            self.stored.ids.new(owner, now, now + ttl),
            owner,
            plan.target,
            now,
            now,
            ttl,
            self.services.node,
            # Only another process needs it, which does not have this store if it is not durable.
            call=TaskCall.of(facts, params) if self.store.durable else None,
        )
        task = OpenTask(record, self, None if facts.session is None else facts.session.facts, caller)
        self.add(task)
        return task

    def add(self, task: OpenTask) -> None:
        """Count a task as open, and find it from now on."""
        self._open[task.record.id] = task
        self._quota.add(task.caller)
        if self.store.durable:
            self.mailbox.look(self.services.supervisor)

    def forget(self, task: OpenTask) -> None:
        """Count a task as open no longer: it was not created, its ttl is over, or the store has all of it."""
        record = task.record
        task.is_forgotten = True
        if self._open.get(record.id) is task:
            del self._open[record.id]
            self._quota.give_back(task.caller)
        task.wake()

    # finding

    def find_open(self, facts: RequestFacts, task_id: str) -> OpenTask | None:
        """Return a task that is worked on here, if this caller may see it."""
        task = self._open.get(task_id)
        if task is None or not task.version or not may_see(facts, task.record.owner):
            return None
        return None if task.record.expires_at <= self.clock() else task

    async def find(self, facts: RequestFacts, task_id: str) -> SeenTask | None:
        """Return a task that this caller may see; None if there is none, or it is somebody else's, or its ttl is over."""
        task = self.find_open(facts, task_id)
        if task is None:
            stored = await self.stored.read(task_id)
            # Adopted meanwhile, perhaps, or created.
            task = self.find_open(facts, task_id)
            if task is None:
                record = self.stored.seen_by(facts, task_id, stored)
                return None if record is None else SeenTask(record, None, None)
        return self.seen(task)

    def seen(self, task: OpenTask) -> SeenTask:
        """Return what is shown of a task that is worked on here."""
        is_over = task.shown.outcome is not None
        return SeenTask(
            task.shown, NO_QUESTIONS if is_over else self._stored_questions(task), None if is_over else task
        )

    def _stored_questions(self, task: OpenTask) -> Mapping[str, OpenQuestion]:
        """Return the open questions that other processes know of, too."""
        if not self.store.durable:
            return task.questions
        stored = {asked.key for asked in task.shown.asked}
        return {key: asked for key, asked in task.questions.items() if key in stored}

    async def page(self, facts: RequestFacts, cursor: str | None, limit: int) -> tuple[list[TaskRecord], str | None]:
        """Return a page of the tasks of a caller in the order of their creation, and the cursor of the next page if there is one.

        Raises:
            RemoteProtocolError: -32602, the cursor is not one of this list.
            LimitExceeded: the store fails.
        """
        records, after = await self.stored.page(facts, cursor, limit)
        return [self._newest(record) for record in records], after

    def _newest(self, record: TaskRecord) -> TaskRecord:
        task = self._open.get(record.id)
        return record if task is None else task.shown

    def state(self, seen: SeenTask) -> TaskState:
        """Return a task for a codec to show."""
        return task_state(seen.record, self.options, seen.questions)

    def created(self, task: OpenTask, facts: RequestFacts) -> LegOutcome:
        """Return the answer to the request that has created a task."""
        state = self.state(self.seen(task))
        return facts.terms.codec.encode_created_task(state, self.services.server_info_json)

    # changes

    def questions_changed(self, task: OpenTask) -> None:
        # First, as it raises for what cannot be said: to the lane that asks.
        asked = asked_questions(task.questions) if self.store.durable else ()
        task.record = task.record._replace(updated_at=self.clock())
        if not self.store.durable:
            # Nothing of it is in the store: no other process reads it.
            task.shown = task.shown._replace(updated_at=task.record.updated_at)
            self._announce(task)
        elif not task.is_over:
            # What is withdrawn as this process ends stays asked: an answer that comes before the next one has taken the task over
            # would else be one to an unknown key, which is acknowledged and dropped.
            if task.work is None or not self._continues_elsewhere(task.work.actor.reason):
                task.record = task.record._replace(asked=asked)
                self._saver.save(task)
            # A stream on which it is asked waits for no other process.
            task.wake()
        self._unattended.note(task)

    def left_alone(self, task: OpenTask) -> None:
        self._unattended.note(task)

    def reached(self, session: SessionFacts) -> None:
        """The channel of a session is there again: what its tasks ask can go out on it."""
        for task in self._open.values():
            if task.session is session:
                self._unattended.note(task)

    async def answer(self, task: OpenTask, answers: Mapping[str, Model | Exception], size: int = 0) -> None:
        """Hand answers to the lanes that asked; of questions that are not open any more they are dropped.

        Raises:
            LimitExceeded: the memory budget has no room for them, or the store fails; none was taken.
        """
        await trio.lowlevel.checkpoint()
        if task.was_adopted:
            try:
                await self.mailbox.take_earlier(task, answers)
            except StoreError as error:
                raise store_failure(self.services.records, error) from None
        if task.work is not None:
            await task.work.take_answers(answers, size)

    def set_message(self, task: OpenTask, message: str) -> None:
        if not task.is_over:
            # As it is shown: the store keeps no half of a character.
            shown = cast("str", json.loads(dump_shown(message, "status")))
            task.record = task.record._replace(message=shown, updated_at=self.clock())
            task.said += 1
            self._saver.save(task)

    def work_ended(self, task: OpenTask, outcome: TaskOutcome, reason: CancelReason | None) -> None:
        task.work = None
        if self._open.get(task.record.id) is not task:
            return
        if task.record.expires_at <= self.clock():
            self.forget(task)
        elif not task.is_over and not self._continues_elsewhere(reason):
            task.end(outcome, self.clock())
            self._saver.save(task)

    def _continues_elsewhere(self, reason: CancelReason | None) -> bool:
        """Return whether the next process of this server takes over a task whose work this one cancels."""
        return reason in GOES_ON_REASONS and self.store.durable

    async def catch_up(self, task: OpenTask) -> bool:
        return await self._saver.catch_up(task)

    def taken_over(self, task: OpenTask) -> None:
        self._saver.give_up(task)

    def fail(self, task: OpenTask, outcome: TaskOutcome) -> None:
        """End a task whose work cannot go on."""
        task.end(outcome, self.clock())
        self._saver.save(task)

    async def cancel(self, task: OpenTask) -> bool:
        """Cancel a task, and wait until its end is in the store; return False if it was over.

        If this is cancelled, the task is cancelled nevertheless.
        """
        was_over = task.is_over
        self.begin_cancel(task)
        while task.is_open:
            await task.wait_change()
        return not was_over

    def begin_cancel(self, task: OpenTask) -> None:
        """Cancel a task unless it is over; its end is written soon."""
        work = task.work
        if task.is_over:
            return
        task.end(TaskOutcome(), self.clock())
        self._saver.save(task)
        if work is not None:
            work.actor.cancel(CancelReason.CLIENT)

    def leave_all(self) -> None:
        """Stop working on all tasks that are stored, which belong to other processes now."""
        for task in self:
            # One that is being created is not.
            if task.version:
                self.forget(task)
                if task.work is not None:
                    task.work.actor.cancel(CancelReason.FENCED)

    def end_session(self, session: SessionFacts) -> None:
        """Cancel the open tasks that only a session could ask for, which has ended."""
        for task in [task for task in self._open.values() if task.record.owner == session_owner(session)]:
            if task.work is not None:
                task.work.actor.cancel(CancelReason.DISCONNECT)

    def _announce(self, task: OpenTask) -> None:
        task.wake()
        if not task.version:
            return
        self._on_change(task.record.id)
        if task.session is not None and task.session.notify_task is not None:
            task.session.notify_task(self.state(self.seen(task)))

    def __iter__(self) -> Iterator[OpenTask]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"<Tasks open={len(self)}>"


async def found(tasks: Tasks, facts: RequestFacts, task_id: str) -> SeenTask:
    """Return a task of this caller.

    Raises:
        RemoteProtocolError: -32602, there is none.
    """
    seen = await tasks.find(facts, task_id)
    if seen is None:
        raise unknown_task()
    return seen


def unknown_task() -> RemoteProtocolError:
    return RemoteProtocolError("Unknown task: there is no such task, or its time is over", code=INVALID_PARAMS)
