"""Writing the records of tasks to the store: what a caller sees of a task is in the store first (*commit, then wake*)."""

# A change of the record sets `is_unsaved` and starts one saving task, which writes until nothing is unsaved: changes that come
# while it writes are written together.

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from ...logs import peer_logger
from ...runtime import CancelReason
from ...storage import Forget, Put, Store, StoreConflict, StoreError, UnreadableRecord
from ..calls.call import Call
from ..calls.log import LOG_KIND
from ..calls.services import CallServices
from ..calls.settling import LAST_SECONDS
from .open_task import OpenTask
from .record import KIND, TaskRecord, stored_form, stored_key

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
        services: CallServices[Call],
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
