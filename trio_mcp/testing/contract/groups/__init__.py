"""The rules of the contract, group by group. Loading this makes them known."""

from . import lifecycle, structured

__all__ = ["lifecycle", "structured"]
