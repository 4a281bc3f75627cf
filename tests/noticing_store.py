"""A durable store in memory that several processes share, with notices between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio
from crashing_store import CrashingStore, Disk

from trio_mcp.storage import MISSED, Missed, Notice, StoreError


class NoticingDisk(Disk):
    """What such stores share.

    Attributes:
        announced: every notice, in the order in which they came.
        is_deaf: notices are lost, and those who listen learn that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[trio.MemorySendChannel[Notice | Missed]] = []
        self.announced: list[Notice] = []
        self.is_deaf = False


class NoticingStore(CrashingStore):
    """The store of one process.

    Attributes:
        may_listen: listening fails while it is not set.
    """

    disk: NoticingDisk

    def __init__(self, disk: NoticingDisk) -> None:
        super().__init__(disk)
        self.may_listen = True

    async def join(self, node: str, about: bytes = b"") -> None:
        await super().join(node)

    async def bury(self, node: str) -> bool:
        return not await self.is_alive(node)

    async def nodes(self) -> Mapping[str, bytes]:
        return {}

    async def announce(self, topic: str, content: bytes) -> None:
        await self._turn()
        if len(content) > 1000:
            raise ValueError("a notice has at most 1000 bytes")
        self.disk.announced.append(Notice(topic, content))
        for listener in self.disk.listeners:
            listener.send_nowait(MISSED if self.disk.is_deaf else self.disk.announced[-1])

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[Notice | Missed]]:
        if not self.may_listen:
            raise StoreError("the store cannot reach the other processes")
        send, receive = trio.open_memory_channel[Notice | Missed](1000)
        self.disk.listeners.append(send)
        try:
            with receive:
                yield receive
        finally:
            self.disk.listeners.remove(send)
