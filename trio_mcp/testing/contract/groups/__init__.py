"""The rules of the contract, group by group. Loading this makes them known."""

from . import calls, lifecycle, peers, structured

__all__ = ["calls", "lifecycle", "peers", "structured"]
