"""The rules of the contract, group by group. Loading this makes them known."""

from . import base, calls, lifecycle, losses, peers, rounds, sampling, streaming, structured, wires

__all__ = ["base", "calls", "lifecycle", "losses", "peers", "rounds", "sampling", "streaming", "structured", "wires"]
