"""A server does not grow with the tasks that have passed through it: neither its memory nor its file."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import trio
from talk import talk_to

from trio_mcp import Server, ServiceOptions, TaskOptions
from trio_mcp.protocol.sealing.request_state import KeyRing

TASKS, FIRST, AT_ONCE = 100_000, 2_000, 8
TTL = 1.0
"""Seconds. Few hundred are created in that time."""
LIVE = 1_000


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def file_size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir() if each.name.startswith(path.name))


async def test_a_hundred_thousand_tasks_leave_what_the_first_of_them_left(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    options = ServiceOptions(store=str(path), keys=KeyRing.random(), tasks=TaskOptions(ttl=TTL))
    server = Server("tester", options=options)

    @server.tool(task=True)
    async def quick() -> str:
        return "done" * 50

    async with talk_to(server) as talk:
        await talk.initialize()

        async def some(count: int) -> None:
            for _ in range(count // AT_ONCE):
                calls = [
                    talk.request("tools/call", {"name": "quick", "arguments": {}, "task": {}}) for _ in range(AT_ONCE)
                ]
                left = set(calls)
                while left:
                    message = await talk.receive()
                    if "method" not in message:
                        assert "task" in message["result"], message
                        left.remove(message["id"])

        await some(FIRST)
        memory, size = resident(), file_size(path)
        for _ in range((TASKS - FIRST) // FIRST):
            await some(FIRST)
            assert len(talk.service.tasks) <= LIVE
        await trio.sleep(2 * TTL)
        await some(FIRST)
        assert resident() <= memory * 1.1
        assert file_size(path) <= size * 1.1
