"""The interfaces of stores, from `trio_mcp.storage`, and their implementations."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..storage import (
        Append as Append,
        EventsGone as EventsGone,
        EventStore as EventStore,
        Expect as Expect,
        Fenced as Fenced,
        Forget as Forget,
        JournalStore as JournalStore,
        LogKey as LogKey,
        Missed as Missed,
        NoSuchEvent as NoSuchEvent,
        Notice as Notice,
        Put as Put,
        Record as Record,
        Remove as Remove,
        SharedStore as SharedStore,
        Store as Store,
        StoreConflict as StoreConflict,
        StoreError as StoreError,
        StoreFull as StoreFull,
        StoreTimeout as StoreTimeout,
        UnreadableRecord as UnreadableRecord,
    )
    from . import adapters as adapters, sealed as sealed
    from .memory import MemoryEventStore as MemoryEventStore
    from .memory_store import MemoryStore as MemoryStore
    from .opening import open_store as open_store
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "adapters": "",
            "memory": "MemoryEventStore",
            "memory_store": "MemoryStore",
            "opening": "open_store",
            "sealed": "",
            "trio_mcp.storage": (
                "Append EventStore EventsGone Expect Fenced Forget JournalStore LogKey Missed NoSuchEvent Notice "
                "Put Record Remove SharedStore Store StoreConflict StoreError StoreFull StoreTimeout "
                "UnreadableRecord"
            ),
        },
    )
