"""Implementations of the store interfaces in `trio_mcp.storage`."""

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import sealed as sealed
    from .memory import MemoryEventStore
    from .memory_store import MemoryStore
    from .opening import open_store
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "adapters": "",
            "memory": "MemoryEventStore",
            "memory_store": "MemoryStore",
            "opening": "open_store",
            "sealed": "",
        },
    )

__all__ = ["MemoryEventStore", "MemoryStore", "open_store"]
