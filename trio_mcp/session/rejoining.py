"""A process that was frozen, or cut off from its store, until others took it for dead: it gives up what it had, and joins again.

The store takes nothing from it under its name (`Fenced`), and others may have gone on with everything that it has in the store.
So its calls are cancelled with the reason `fenced`, and its tasks and stored sessions are forgotten: it begins again as a new
process would, under a new name, but with its connections and with the sessions that are in no store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from .. import stores
from ..errors import ConfigurationError
from ..runtime import CancelReason
from ..storage import Fenced, SharedStore, StoreError
from .service import Service, new_node

LOOK_SECONDS: Final = 0.2
"""Seconds between two looks whether this process was buried; a write that is refused shows it at once."""

TRY_AGAIN_SECONDS: Final = 1.0
"""Seconds after which a store is asked again that has failed."""


@dataclass(slots=True, eq=False)
class Rejoining:
    """Lets a service go on under a new name whenever its process was buried."""

    _service: Service
    _store: SharedStore
    _fenced: trio.Event = field(default_factory=trio.Event, init=False)

    async def run(self) -> None:
        """Watch the store until cancelled."""
        service, store, lapses = self._service, self._store, 0
        if isinstance(store, stores.sealed.SealedSharedStore):
            store.on_fenced = self._fence
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._fenced.wait()
            if store.lapses != lapses:
                lapses = store.lapses
                # A lapse may also be a lock file that has vanished.
                if not await self._has_joined(service.calls.node):
                    self._fence()
            if service.is_fenced:
                await self._rejoin()

    def _fence(self) -> None:
        if not self._service.is_fenced:
            self._service.is_fenced = True
            self._fenced.set()
            self._give_up()

    def _give_up(self) -> None:
        """Cancel the calls, and leave to other processes what this one has in the store."""
        service = self._service
        service.supervisor.cancel_all(CancelReason.FENCED)
        service.tasks.leave_all()
        service.calls.directory.forget_replayed()
        for give_up in service.on_given_up:
            give_up()

    async def _rejoin(self) -> None:
        """Join under a new name; waits for a store that fails."""
        service = self._service
        while not await self._has_joined(node := new_node(service.options)):
            pass
        # In the step in which the name changes, and with what has begun meanwhile.
        service.calls.node = node
        service.is_fenced, self._fenced = False, trio.Event()
        self._give_up()
        service.declare(service.capabilities)
        await service.calls.processes.introduce()

    async def _has_joined(self, node: str) -> bool:
        """Join under a name, and return whether the store takes it; waits for a store that fails."""
        while True:
            try:
                await self._store.join(node)
            except Fenced:
                return False
            except (StoreError, ConfigurationError) as error:
                self._service.records.log("this process cannot join the store again: %s", error)
            else:
                return True
            await trio.sleep(TRY_AGAIN_SECONDS)
