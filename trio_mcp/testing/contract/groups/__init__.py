"""The rules of the contract, group by group. Loading this makes them known."""

from . import lifecycle, rounds, structured

__all__ = ["lifecycle", "rounds", "structured"]
