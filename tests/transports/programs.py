"""Servers that a client starts as commands, in memory and in virtual time. They can be killed, and fail to start."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Server
from trio_mcp.client import target
from trio_mcp_transports.background import open_background
from trio_mcp_transports.memory import MemoryChannel, memory_pair


class Programs:
    """The commands that there are. `["files"]` starts the server that is called so.

    Attributes:
        starts: how often each was started, or could not be.
        started_at: when.
        broken: why a command cannot be started, by its name.
        options: what each was started with.
    """

    def __init__(self, **servers: Server) -> None:
        self.servers = servers
        self.starts: Counter[str] = Counter()
        self.started_at: dict[str, list[float]] = {}
        self.broken: dict[str, Exception] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, list[MemoryChannel]] = {}

    async def kill(self, *names: str) -> None:
        """End every process of these commands, and wait until all have noticed."""
        for name in names:
            for end in self._ends.pop(name, []):
                end.close()
        await wait_all_tasks_blocked()

    def is_running(self, name: str) -> bool:
        return bool(self._ends.get(name))

    @asynccontextmanager
    async def connect(self, argv: list[str], **options: Any) -> AsyncIterator[MemoryChannel]:
        name = argv[0]
        self.starts[name] += 1
        self.started_at.setdefault(name, []).append(trio.current_time())
        self.options[name] = options
        await trio.lowlevel.checkpoint()
        if name in self.broken:
            raise self.broken[name]
        ours, end = memory_pair()
        ours.in_process = False  # as far as the client can tell
        self._ends.setdefault(name, []).append(end)
        async with open_background() as nursery:
            nursery.start_soon(self._serve, name, end)
            try:
                yield ours
            finally:
                ours.close()
                if end in self._ends.get(name, []):
                    self._ends[name].remove(end)

    async def _serve(self, name: str, end: MemoryChannel) -> None:
        await self.servers[name].serve_channel(end)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = target.find_transport
    made = Programs()
    monkeypatch.setattr(target, "find_transport", lambda name: made if name == "stdio" else found(name))
    return made
