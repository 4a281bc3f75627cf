"""Where a server keeps what must outlive a process. Interfaces only; the homes are in `trio_mcp.stores`."""

from __future__ import annotations

from typing import Protocol

__all__ = ["JournalStore"]


class JournalStore(Protocol):
    """Keeps journals that are too large to travel in a `requestState`."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Keep `value` under `key` for at least `ttl` seconds; an older value is replaced. Done when it would survive a crash.

        A cancel may or may not have kept it.
        """
        ...

    async def get(self, key: str) -> bytes | None:
        """What is kept under `key`, or None. A cancel changes nothing."""
        ...
