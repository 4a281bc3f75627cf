"""A server does not grow with the tasks that have passed through it: neither its memory nor its file."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import trio
from peer import arrived, encoded, json_of
from wire_terms import NEWEST_LEGACY

from trio_mcp import Server, ServiceOptions, TaskOptions
from trio_mcp.session import KeyRing, ServerSession, Service

TASKS, FIRST, AT_ONCE = 100_000, 2_000, 8
TTL = 1.0
"""Seconds. A few hundred are created in that time."""
LIVE = 1_000


class ForgetfulClient:
    """A client of one session that keeps nothing of a request that was answered: what grows is the server's."""

    def __init__(self, service: Service) -> None:
        self._session = ServerSession(service)
        self._outbox = service.open_outbox()
        self._session.attach(self._outbox)
        self._numbers = count(1)

    async def ask(self, method: str, params: Any, times: int = 1) -> list[Any]:
        """Send a request `times` times at once; return the results."""
        for _ in range(times):
            message = {"id": next(self._numbers), "method": method, "params": params}
            self._session.receive(arrived(encoded(message)), self._outbox)
        results: list[Any] = []
        while len(results) < times:
            messages = [json_of(envelope.message) for envelope in await self._outbox.take()]
            results += [message["result"] for message in messages if "method" not in message]
        return results


async def quick() -> str:
    return "done" * 50


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[Service, ForgetfulClient]]:
    options = ServiceOptions(store=str(path), keys=KeyRing.random(), tasks=TaskOptions(ttl=TTL))
    server = Server("tester", options=options)
    server.tool(task=True)(quick)
    async with server.open_service() as service:
        client = ForgetfulClient(service)
        about = {"name": "tester", "version": "1"}
        await client.ask("initialize", {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": about})
        yield service, client


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def file_size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir() if each.name.startswith(path.name))


async def test_a_hundred_thousand_tasks_leave_what_the_first_of_them_left(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with serving(path) as (service, client):

        async def some(tasks: int) -> None:
            for _ in range(tasks // AT_ONCE):
                created = await client.ask("tools/call", {"name": "quick", "arguments": {}, "task": {}}, AT_ONCE)
                assert all("task" in each for each in created)

        await some(FIRST)
        memory, size = resident(), file_size(path)
        for _ in range((TASKS - FIRST) // FIRST):
            await some(FIRST)
            assert len(service.tasks) <= LIVE
        await trio.sleep(2 * TTL)
        await some(FIRST)
        assert resident() <= memory * 1.1
        assert file_size(path) <= size * 1.1
