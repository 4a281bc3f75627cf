"""A process that was frozen, or cut off from its store, until others took it for dead: it gives up what it had, and joins again.

The store takes nothing from it under its name (`Fenced`), and others may have gone on with everything that it has in the store.
So its calls are cancelled with the reason `fenced`, and its tasks and stored sessions are forgotten: it begins again as a new
process would, under a new name, but with its connections and with the sessions that are in no store.

After a stop its sockets have requests that others may have served meanwhile. So HTTP, whose requests belong to no connection,
asks before each whether the process is `in_doubt`, and then waits in `be_sure`:

    in doubt                                             until
    the event loop has not turned for a lease            the store has said that the process is alive, or was buried
    the lease has lapsed                                 the same
    the process was buried                               it has joined again
    any of these, and the store fails                    that is known: what needs no store is served
"""

from __future__ import annotations

import math
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
    _lapses: int = field(default=0, init=False)
    """Those of the store that are settled."""
    _turned_at: float = field(default_factory=trio.current_time, init=False)
    """When the event loop was last seen to turn, and the process was not in doubt."""
    _lease: float = field(default=math.inf, init=False)
    _store_fails: bool = field(default=False, init=False)
    _woken: trio.Event = field(default_factory=trio.Event, init=False)
    """Set to look now."""
    _settled: trio.Event = field(default_factory=trio.Event, init=False)
    """Set, and replaced, after each look, and when the store fails."""

    @property
    def in_doubt(self) -> bool:
        """Whether others may have taken this process for dead."""
        if self._service.is_fenced or self._store.lapses != self._lapses:
            return True
        return trio.current_time() - self._turned_at > self._lease

    async def be_sure(self) -> None:
        """Wait until the process is not in doubt any more, or its store is known to fail."""
        while self.in_doubt and not self._store_fails:
            self._woken.set()
            await self._settled.wait()

    async def run(self) -> None:
        """Watch the store until cancelled."""
        if isinstance(self._store, stores.sealed.SealedSharedStore):
            self._store.on_fenced, self._lease = self._fence, self._store.lease_seconds
        while True:
            with trio.move_on_after(LOOK_SECONDS):
                await self._woken.wait()
            self._woken = trio.Event()
            if self.in_doubt:
                await self._settle()
            self._turned_at = trio.current_time()
            self._note_settled()

    async def _settle(self) -> None:
        """Ask the store whether this process is alive, and join again if it is not."""
        service, self._lapses = self._service, self._store.lapses
        # A lapse may also be a lock file that has vanished.
        if not service.is_fenced and not await self._has_joined(service.calls.node):
            self._fence()
        if service.is_fenced:
            await self._rejoin()

    def _note_settled(self) -> None:
        self._settled.set()
        self._settled = trio.Event()

    def _fence(self) -> None:
        if not self._service.is_fenced:
            self._service.is_fenced = True
            self._woken.set()
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
        service.is_fenced = False
        self._give_up()
        service.declare(service.capabilities)
        await service.calls.processes.introduce()

    async def _has_joined(self, node: str) -> bool:
        """Join under a name, and return whether the store takes it; waits for a store that fails."""
        while True:
            try:
                await self._store.join(node)
            except Fenced:
                self._store_fails = False
                return False
            except (StoreError, ConfigurationError) as error:
                self._service.records.log("this process cannot join the store again: %s", error)
                self._store_fails = True
                self._note_settled()
            else:
                self._store_fails = False
                return True
            await trio.sleep(TRY_AGAIN_SECONDS)
