"""The processes that use a durable store: one record for each, so that the others notice when it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ...base.logs import RepeatedRecords
from ...storage import Put, Record, Store, StoreConflict, StoreError

# The record of a process, and its owner:
#
#     event                                       owner
#     it starts, and once a day                   LIVING
#     another one has seen it end, and has taken  -, until the record expires: a repeat of a request asks whether
#     over its tasks                              this store knows the process
#     it still lives: it was taken for dead       LIVING again, at its next look
#
# So a look at the others reads the records of those that live or have just ended, and not those of a week.

NODE_KIND: Final = "node"
"""The kind of the records in a store."""

NODE_SECONDS: Final = 7 * 86400.0
"""For how long a process is known that used the store."""

LIVING: Final = "living"
"""The owner of the records of processes that others look at."""

HEARD_SECONDS: Final = 5.0
"""For how long another process counts as living that was heard of: longer than a look at all of them takes."""

PAGE: Final = 200
"""Records that are read at once."""


@dataclass(slots=True, eq=False)
class Processes:
    """The processes that use the store of a service.

    Args:
        node: returns the name of this process.
        records: counts how often the store failed.
    """

    _store: Store
    _node: Callable[[], str]
    _records: RepeatedRecords
    _clock: Callable[[], float] = time.time
    _are_others: bool = field(default=True, init=False)
    _heard_at: float = field(default=-math.inf, init=False)

    @property
    def are_others(self) -> bool:
        """Whether another process may live, as far as this one knows from its last look and from `heard`."""
        return self._are_others or trio.current_time() - self._heard_at < HEARD_SECONDS

    def heard(self) -> None:
        """Note that another process lives."""
        self._heard_at = trio.current_time()

    async def introduce(self) -> None:
        """Let other processes know, from now on, that this one uses the store; a store that fails is logged."""
        try:
            await self._put(self._node(), LIVING)
        except StoreError as error:
            self._records.log("the store did not take the name of this process: %s", error)

    async def stay_known(self) -> None:
        """Refresh that record daily. Runs until cancelled."""
        while True:
            await trio.sleep(NODE_SECONDS / 7)
            await self.introduce()

    async def knows(self, node: str) -> bool:
        """Return whether a process uses this store, or used it lately. Raises `StoreError`."""
        return node == self._node() or await self._store.read(NODE_KIND, node) is not None

    async def find_ended(self) -> Sequence[str]:
        """Return the processes that have ended and for which `note_ended` was not called yet. Raises `StoreError`."""
        ended: list[str] = []
        is_listed, are_others, after = False, False, ""
        while page := await self._store.list(NODE_KIND, owner=LIVING, after=after, limit=PAGE):
            for record in page:
                if record.key == self._node():
                    is_listed = True
                elif await self._store.is_alive(record.key):
                    are_others = True
                else:
                    ended.append(record.key)
            after = page[-1].key
        self._are_others = are_others
        if not is_listed:
            # Another process has taken this one for dead, or the store did not take the record at the start.
            await self._put(self._node(), LIVING)
        return ended

    async def note_ended(self, nodes: Sequence[str]) -> None:
        """Note that the tasks of these processes were taken over, so that no process looks at them again. Raises `StoreError`."""
        for node in nodes:
            await self._put(node, "")

    async def _put(self, node: str, owner: str) -> None:
        known = await self._store.read(NODE_KIND, node)
        record = Record(
            NODE_KIND, node, b"", owner, self._clock() + NODE_SECONDS, 0 if known is None else known.version
        )
        try:
            await self._store.write([Put(record)])
        except StoreConflict:
            # Another process has noted it at the same time.
            return
