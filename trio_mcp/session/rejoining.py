"""A process that was frozen, or cut off from its store, until others took it for dead: it gives up what it had, and joins again.

The store takes nothing from it under its name (`Fenced`), and others may have gone on with everything that it has in the store.
So its calls are cancelled with the reason `fenced`, and its tasks and stored sessions are forgotten: it begins again as a new
process would, under a new name, but with its connections and with the sessions that are in no store.
"""

from __future__ import annotations

from typing import Final

import trio

from .. import stores
from ..errors import ConfigurationError
from ..storage import Fenced, SharedStore, StoreError
from .service import Service, new_node

LOOK_SECONDS: Final = 0.2
"""Seconds between two looks whether this process was buried; a write that is refused shows it at once."""

TRY_AGAIN_SECONDS: Final = 1.0
"""Seconds after which a store is asked again that has failed."""


async def stay_joined(service: Service, store: SharedStore) -> None:
    """Let a service go on under a new name whenever its process was buried. Runs until cancelled."""
    if isinstance(store, stores.sealed.SealedSharedStore):
        store.on_fenced = service.fence
    lapses = 0
    while True:
        with trio.move_on_after(LOOK_SECONDS):
            await service.wait_fenced()
        if store.lapses != lapses:
            lapses = store.lapses
            # A lapse may also be a lock file that has vanished.
            if not await has_joined(service, store, service.calls.node):
                service.fence()
        if service.is_fenced:
            await rejoin(service, store)


async def rejoin(service: Service, store: SharedStore) -> None:
    """Join under a new name; waits for a store that fails."""
    while not await has_joined(service, store, node := new_node(service.options)):
        pass
    # With what has begun meanwhile, and in the step in which the name changes.
    service.rename(node)
    await service.calls.processes.introduce()


async def has_joined(service: Service, store: SharedStore, node: str) -> bool:
    """Join under a name, and return whether the store takes it; waits for a store that fails."""
    while True:
        try:
            await store.join(node)
        except Fenced:
            return False
        except (StoreError, ConfigurationError) as error:
            service.records.log("this process cannot join the store again: %s", error)
        else:
            return True
        await trio.sleep(TRY_AGAIN_SECONDS)
