"""Implementations of the store interfaces in `trio_mcp.storage`."""

from .memory import MemoryEventStore
from .memory_store import MemoryStore
from .opening import open_store

__all__ = ["MemoryEventStore", "MemoryStore", "open_store"]
