"""The rules of the contract, by group. Importing this package registers them."""

from . import base, calls, lifecycle, losses, peers, rounds, sampling, sampling_tools, streaming, structured, wires

__all__ = [
    "base",
    "calls",
    "lifecycle",
    "losses",
    "peers",
    "rounds",
    "sampling",
    "sampling_tools",
    "streaming",
    "structured",
    "wires",
]
