"""Tasks as the store has them: those that are over, that another process works on, or that are lost with their process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from ...base.logs import peer_logger
from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, ErrorDetail
from ...runtime import CancelReason
from ...storage import Forget, Put, Record, Store, StoreConflict, StoreError, UnreadableRecord
from ..calls.facts import RequestFacts, SessionFacts
from ..calls.failures import store_failure
from ..calls.services import CallServices
from ..recovery.settling import LAST_SECONDS
from ..recovery.stored_journal import LOG_KIND
from .open_task import OpenTask
from .record import KIND, TaskIds, TaskOutcome, TaskRecord, is_storage_key, storage_key, stored_form, stored_key

# Who may ask for a task: the owner, as a text that another process works out in the same way.

PRINCIPAL = "principal "
"""What the owner begins with that is a principal."""
ANYBODY = ""
"""The owner of a task whose id is all that protects it."""


def owner_of(facts: RequestFacts) -> str:
    """Return the owner of the tasks that a request creates.

    It is the authenticated principal, otherwise the session; without a session, anyone who knows the id owns the tasks.
    """
    if facts.principal is not None:
        return PRINCIPAL + facts.principal
    return ANYBODY if facts.session is None else session_owner(facts.session.facts)


def principal_of(owner: str) -> str | None:
    """Return the principal that is an owner; None for a session or an anonymous owner."""
    return owner.removeprefix(PRINCIPAL) if owner.startswith(PRINCIPAL) else None


def session_owner(session: SessionFacts) -> str:
    """Return the owner of what only a session can ask for."""
    return f"session {session.owner}"


def may_see(facts: RequestFacts, owner: str) -> bool:
    """Return whether a request may ask for a task of this owner, whose id it has."""
    return owner in (ANYBODY, owner_of(facts))


RESTARTED: Final = ErrorDetail(
    INTERNAL_ERROR,
    "The task was lost: the server was restarted. What it had done stays done. Start it again if that is safe.",
)

SET_ASIDE: Final = "the record of a task is set aside: %s"


class StoredTasks:
    """Reads the records of tasks.

    Args:
        clock: the time in Unix seconds.
    """

    def __init__(self, services: CallServices, store: Store, clock: Callable[[], float]) -> None:
        self._services = services
        self._store = store
        self._clock = clock
        self._ids: TaskIds | None = None

    @property
    def ids(self) -> TaskIds:
        """Makes and recognises the ids; made for the first task."""
        if self._ids is None:
            self._ids = TaskIds(self._services.ring, self._services.audience)
        return self._ids

    async def read(self, task_id: str) -> TaskRecord | None:
        """Return the record of a task, without checking its owner; None if there is none that can be read.

        Raises:
            LimitExceeded: the store fails.
        """
        key = storage_key(task_id)
        if key is None:
            return None
        try:
            stored = await self._store.read(KIND, key)
        except UnreadableRecord:
            # The store has logged it.
            return None
        except StoreError as error:
            raise store_failure(self._services.records, error) from None
        return None if stored is None else self._decoded(stored)

    def seen_by(self, facts: RequestFacts, task_id: str, record: TaskRecord | None) -> TaskRecord | None:
        """Return what this caller may see under an id that was looked for.

        Args:
            record: what the store has under it.
        """
        if record is None:
            return self._lost(facts, task_id)
        return record if may_see(facts, record.owner) and record.expires_at > self._clock() else None

    def _lost(self, facts: RequestFacts, task_id: str) -> TaskRecord | None:
        """Return a task of another process that this caller has the id of, and that no store has; None for any other id."""
        for owner in dict.fromkeys((owner_of(facts), ANYBODY)):
            life = self.ids.life_in_another_process(task_id, owner)
            if life is not None and life.expires > self._clock():
                outcome = TaskOutcome(error=RESTARTED)
                ttl = life.expires - life.created
                return TaskRecord(task_id, owner, "", life.created, life.created, ttl, "", outcome=outcome)
        return None

    async def page(self, facts: RequestFacts, cursor: str | None, limit: int) -> tuple[list[TaskRecord], str | None]:
        """Return a page of the tasks of a caller in the order of their creation, and the cursor of the next page if there is one.

        Raises:
            RemoteProtocolError: -32602, the cursor is not one of this list.
            LimitExceeded: the store fails.
        """
        # A forged cursor is harmless: it is a position among the caller's own tasks.
        if cursor is not None and not is_storage_key(cursor):
            raise RemoteProtocolError("this cursor was not issued for tasks/list: ask without one", code=INVALID_PARAMS)
        try:
            page = await self._store.list(KIND, owner=owner_of(facts), after=cursor or "", limit=limit)
        except StoreError as error:
            raise store_failure(self._services.records, error) from None
        decoded = [self._decoded(stored) for stored in page]
        return [record for record in decoded if record is not None], page[-1].key if len(page) == limit else None

    def _decoded(self, stored: Record) -> TaskRecord | None:
        """Return a record; None if it cannot be read, so that it is as good as none."""
        try:
            return TaskRecord.decode(stored.value)
        except ValueError as error:
            self._services.records.log(SET_ASIDE, error, level=logging.ERROR)
            return None


# Writing the records of tasks to the store: what a caller sees of a task is in the store first (*commit, then wake*).

# A change of the record sets `is_unsaved` and starts one saving task, which writes until nothing is unsaved: changes that come
# while it writes are written together.


logger = peer_logger("trio_mcp.tasks")

SAVE_AGAIN_SECONDS: Final = 5.0
"""Seconds after which an outcome is written again that the store did not take: the next process would run the task again."""


class TaskSaver:
    """Writes the records of the tasks of one service.

    Args:
        clock: returns the time in Unix seconds.
        announce: called when the store has a newer state of a task, which is shown now.
        forget: called when the store has all of a task, or when the task is not worked on here any more.
    """

    def __init__(
        self,
        services: CallServices,
        store: Store,
        clock: Callable[[], float],
        announce: Callable[[OpenTask], None],
        forget: Callable[[OpenTask], None],
    ) -> None:
        self._services = services
        self._store = store
        self._clock = clock
        self._announce = announce
        self._forget = forget

    def save(self, task: OpenTask) -> None:
        """Write the record of a task soon, in a task of the supervisor."""
        task.is_unsaved = True
        if not task.is_saving:
            task.is_saving = True
            self._services.supervisor.spawn(self._save_all, task)

    async def _save_all(self, task: OpenTask) -> None:
        is_done = False
        try:
            await self._save_until_stored(task)
            is_done = True
        finally:
            # The server is shut down: without its outcome the next process would go on with the task.
            if not is_done and task.is_over and self._store.durable:
                with trio.CancelScope(shield=True), trio.move_on_after(LAST_SECONDS):
                    await self._save_at_last(task)
            task.is_saving = False

    async def _save_until_stored(self, task: OpenTask) -> None:
        while task.is_unsaved:
            task.is_unsaved = False
            record, said = task.record, task.said
            try:
                is_stored = await self._write(task, record)
            except StoreConflict:
                if not await self._still_has(task):
                    self.give_up(task)
                    return
                task.is_unsaved = True
                continue
            if task.shown.outcome is None:
                # A question may have been asked while it was written.
                task.shown = record._replace(updated_at=max(record.updated_at, task.shown.updated_at))
                task.shown_said = said
                self._announce(task)
            if record.outcome is not None and not is_stored:
                task.is_unsaved = await self._wait_to_save_again(task)
        if task.is_over:
            self._forget(task)

    async def _save_at_last(self, task: OpenTask) -> None:
        """Write an outcome once more, and again if a write of this process that was not confirmed has been made before it."""
        try:
            await self._write(task, task.record)
        except StoreConflict:
            with suppress(StoreError):
                if await self.catch_up(task):
                    await self._write(task, task.record)

    async def _wait_to_save_again(self, task: OpenTask) -> bool:
        """Keep an outcome that the store did not take, and nothing else has; return False when the time of the task is over."""
        await trio.sleep(min(SAVE_AGAIN_SECONDS, max(0.0, task.record.expires_at - self._clock())))
        return task.record.expires_at > self._clock()

    async def _write(self, task: OpenTask, record: TaskRecord) -> bool:
        """Write a record; return whether the store has it.

        Raises:
            StoreConflict: another process has taken the task over.
        """
        try:
            put = Put(stored_form(record, task.version))
            # Once its outcome is in the store, what the work recorded is not read again.
            is_last = record.outcome is not None and self._store.durable
            await self._store.write([put, Forget(LOG_KIND, put.record.key)] if is_last else [put])
        except StoreConflict:
            raise
        except StoreError as error:
            self._services.records.log("the store did not keep a task: %s", error)
            return False
        # The log of its call may have caught up before.
        task.version = max(task.version, put.record.version + 1)
        return True

    async def _still_has(self, task: OpenTask) -> bool:
        """Catch up with the store, and wait for one that fails: to give a task up that no other process has would lose it."""
        while True:
            try:
                return await self.catch_up(task)
            except StoreError as error:
                self._services.records.log("the store did not give back a task: %s", error)
            if not await self._wait_to_save_again(task):
                return False

    async def catch_up(self, task: OpenTask) -> bool:
        """Take the version that the store has, if this process wrote it: a write that timed out may have been made.

        Returns:
            False if the record is that of another process, is gone, or cannot be read.

        Raises:
            StoreError: whatever the store raises.
        """
        try:
            stored = await self._store.read(KIND, stored_key(task.record))
            if stored is None or TaskRecord.decode(stored.value).node != self._services.node:
                return False
        except (UnreadableRecord, ValueError) as error:
            self._services.records.log("the store did not give back a task: %s", error)
            return False
        task.version = stored.version
        return True

    def give_up(self, task: OpenTask) -> None:
        """Stop working on a task that the store has no more as this process wrote it.

        Its time is over, or another process has taken it over, as it took this one for dead.
        """
        if task.is_forgotten:
            return
        if self._clock() < task.record.expires_at:
            logger.warning(
                "another process has a task of %s now, or the clock was set beyond its ttl", task.record.tool
            )
        self._forget(task)
        if task.work is not None:
            task.work.actor.cancel(CancelReason.EXPIRED)
