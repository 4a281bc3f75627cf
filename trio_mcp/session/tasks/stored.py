"""Tasks as the store has them: those that are over, that another process works on, or that are lost with their process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...errors import RemoteProtocolError
from ...protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, ErrorDetail
from ...storage import Record, Store, StoreError, UnreadableRecord
from ..calls.call import Call
from ..calls.facts import RequestFacts
from ..calls.failures import store_failure
from ..calls.services import CallServices
from .ids import TaskIds, is_storage_key, storage_key
from .owners import ANYBODY, may_see, owner_of
from .record import KIND, TaskOutcome, TaskRecord

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

    def __init__(self, services: CallServices[Call], store: Store, clock: Callable[[], float]) -> None:
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
        """Return the record of a task, whoever may see it; None if there is none that can be read.

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
        # Nobody gains anything by a made-up one: it is a position among the caller's own tasks.
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
