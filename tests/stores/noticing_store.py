"""A durable store in memory that several processes share, with notices between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio
from crashing_store import Change, CrashingStore, Disk

from trio_mcp.protocol.sealing.at_rest import Vault
from trio_mcp.session import KeyRing
from trio_mcp.stores import Fenced, Missed, Notice, StoreError
from trio_mcp.stores.sealed import notice_place


class NoticingDisk(Disk):
    """What such stores share.

    Attributes:
        announced: every notice, in the order in which they came.
        is_deaf: notices are lost, and those who listen learn that.
        buried: the names of the processes that were taken for dead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[trio.MemorySendChannel[Notice | Missed]] = []
        self.announced: list[Notice] = []
        self.is_deaf = False
        self.buried: set[str] = set()

    def notify(self, topic: str, content: bytes, keys: KeyRing) -> None:
        """Send those who listen a notice that these keys seal."""
        for listener in self.listeners:
            listener.send_nowait(Notice(topic, Vault(keys).seal(content, notice_place(topic))))


class NoticingStore(CrashingStore):
    """The store of one process.

    Attributes:
        may_listen: listening fails while it is not set.
        join_fails: joining fails while it is set.
    """

    disk: NoticingDisk
    lease_seconds = 1.5

    def __init__(self, disk: NoticingDisk) -> None:
        super().__init__(disk)
        self.may_listen = True
        self.join_fails = False

    def be_buried(self) -> None:
        """Let the process be buried by another one; it learns of it with its next write, or when `lapses` is counted."""
        self.lapse()
        self.disk.buried.add(self._node)

    async def write(self, changes: Sequence[Change]) -> None:
        if self._node in self.disk.buried:
            await trio.lowlevel.checkpoint()
            raise Fenced(self._node)
        await super().write(changes)

    async def join(self, node: str, about: bytes = b"") -> None:
        await trio.lowlevel.checkpoint()
        if self.join_fails:
            raise StoreError("the store is away")
        if node in self.disk.buried:
            raise Fenced(node)
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
            listener.send_nowait(Missed.MISSED if self.disk.is_deaf else self.disk.announced[-1])

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
