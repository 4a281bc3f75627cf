"""Homes for what a server keeps: the implementations of `trio_mcp.storage`."""

from .memory import MemoryEventStore

__all__ = ["MemoryEventStore"]
