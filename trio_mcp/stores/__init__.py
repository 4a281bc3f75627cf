"""Implementations of the store interfaces in `trio_mcp.storage`."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
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
        },
    )
