"""The record of a task, as what says that this process runs its call: the log of the call is written with its version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...storage import Change, Expect
from ..calls.log import Holding
from .open_task import OpenTask
from .record import KIND, stored_key


@dataclass(frozen=True, slots=True)
class HeldTask(Holding):
    """Says that this process runs a task."""

    _task: OpenTask

    def held(self) -> Sequence[Change]:
        return [Expect(KIND, stored_key(self._task.record), self._task.version)]

    async def renew(self) -> bool:
        return await self._task.home.catch_up(self._task)

    def lost(self) -> None:
        self._task.home.taken_over(self._task)
