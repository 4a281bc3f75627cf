"""Awaiting asyncio code in Trio functions: `await to_asyncio.run(fn, *args)`, and `async with to_asyncio.open(manager) as value`.

A function that is registered with `asyncio=True` needs neither.
"""

from .bridge.to_asyncio import open, run

__all__ = ["open", "run"]
