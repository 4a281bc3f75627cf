"""Implementations of the store interfaces in `trio_mcp.storage`."""

from .memory import MemoryEventStore

__all__ = ["MemoryEventStore"]
