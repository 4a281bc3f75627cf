"""The client's side of tasks over real wires, in both eras."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tasks_app
import trio
from serving import IMPORTS, START, served

from trio_mcp import Client, RequestTimeout, accept, decline
from trio_mcp.errors import TaskCancelled

COMMAND = [sys.executable, str(Path(__file__).with_name("tasks_app.py"))]

modes = pytest.mark.parametrize("mode", ["legacy", "modern"])
wires = pytest.mark.parametrize("wire", ["stdio", "http", "websocket"])


@asynccontextmanager
async def connected(wire: str, mode: str) -> AsyncIterator[Client]:
    """A client that fills in every form with 7."""
    options: dict[str, Any] = {"mode": mode, "on_elicit": lambda _params: accept(value=7)}
    with trio.fail_after(START):
        if wire == "stdio":
            async with Client.connect(COMMAND, env=IMPORTS, **options) as client:
                yield client
        else:
            async with served(tasks_app.server, wire) as url, Client.connect(url, **options) as client:
                yield client


@modes
@wires
async def test_a_task_is_started_followed_asked_and_cancelled(wire: str, mode: str) -> None:
    async with connected(wire, mode) as client:
        assert (await client.call_tool("report", {"year": 1}, task=True)).text == "1: 7"
        task = await client.start_tool("report", {"year": 2})
        seen = [(change.status, change.status_message) async for change in task]
        assert seen[-1] == ("completed", "writing")
        assert (await client.task(task.id).result()).text == "2: 7"
        endless = await client.start_tool("endless")
        with pytest.raises(RequestTimeout):
            await endless.result(timeout=0.1)
        await endless.cancel()
        with pytest.raises(TaskCancelled):
            await endless.result()


@pytest.mark.parametrize("wire", ["http", "websocket"])
async def test_another_client_picks_a_task_up(wire: str) -> None:
    with trio.fail_after(START):
        async with served(tasks_app.server, wire) as url:
            # It could be asked, and goes away.
            async with Client.connect(url, mode="modern", on_elicit=lambda _params: decline()) as client:
                started = (await client.start_tool("report", {"year": 3})).id
            async with Client.connect(url, mode="modern", on_elicit=lambda _params: accept(value=8)) as client:
                assert await client.task(started, returns=str).result() == "3: 8"
