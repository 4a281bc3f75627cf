"""The rules of the contract, group by group. Loading this makes them known."""

from . import base, lifecycle, sampling, streaming, structured, wires

__all__ = ["base", "lifecycle", "sampling", "streaming", "structured", "wires"]
