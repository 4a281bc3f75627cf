"""The handlers of a client over real wires: what ends them, and many at once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asking_app
import pytest
import trio
from scripted import Thinker
from serving import IMPORTS, SOON, START, served

from trio_mcp import Client, Disconnected, accept_defaults
from trio_mcp.types import CreateMessageResult, TextContent

COMMAND = [sys.executable, str(Path(__file__).with_name("asking_app.py"))]

modes = pytest.mark.parametrize("mode", ["legacy", "modern"])
wires = pytest.mark.parametrize("wire", ["stdio", "http", "websocket"])


@asynccontextmanager
async def connected(wire: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    """A client of the asking server."""
    if wire == "stdio":
        async with Client.connect(COMMAND, mode=mode, env=IMPORTS, **options) as client:
            yield client
    else:
        async with served(asking_app.server, wire) as url, Client.connect(url, mode=mode, **options) as client:
            yield client


class Thinks(Thinker):
    """A handler that never returns, and sets an event when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = trio.Event()

    async def __call__(self, params: object) -> Any:
        try:
            return await super().__call__(params)
        finally:
            self.ended.set()

    async def wait_ended(self) -> None:
        with trio.fail_after(SOON):
            await self.ended.wait()
        assert self.cancelled


@modes
@wires
async def test_the_cancel_of_a_call_reaches_the_handler_of_its_question(wire: str, mode: str) -> None:
    thinks = Thinks()
    with trio.fail_after(START):
        async with connected(wire, mode, on_elicit=thinks) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "ask")
                await thinks.asked.wait()
                nursery.cancel_scope.cancel()
            await thinks.wait_ended()
            assert (await client.call_tool("double", {"n": 2})).data == 4


# A question of a modern server outlives its connection: where the client may connect again, its answer is sent there
# (tests/wires/fire/test_durable_repeats.py).
@pytest.mark.parametrize(("mode", "reconnect"), [("legacy", True), ("legacy", False), ("modern", False)])
async def test_a_server_process_that_dies_ends_the_handlers_of_its_questions(mode: str, reconnect: bool) -> None:
    thinks = Thinks()
    with trio.fail_after(START):
        async with (
            connected("stdio", mode, on_elicit=thinks, reconnect=reconnect) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(lost, client, "ask")
            await thinks.asked.wait()
            nursery.start_soon(lost, client, "die")
            await thinks.wait_ended()


@pytest.mark.parametrize(("mode", "reconnect"), [("legacy", True), ("legacy", False), ("modern", False)])
async def test_a_websocket_that_is_lost_ends_the_handlers_of_its_questions(mode: str, reconnect: bool) -> None:
    thinks = Thinks()
    with trio.fail_after(START):
        async with trio.open_nursery() as nursery:
            async with served(asking_app.server, "websocket") as url:
                client = await Client.connect(url, mode=mode, on_elicit=thinks, reconnect=reconnect).open()
                nursery.start_soon(lost, client, "ask")
                await thinks.asked.wait()
            await thinks.wait_ended()
            await client.aclose()


async def lost(client: Client, tool: str) -> None:
    """Call a tool whose connection is going to be lost."""
    with pytest.raises(Disconnected):
        await client.call_tool(tool)


@modes
@pytest.mark.parametrize("wire", ["stdio", "websocket"])
async def test_thousands_of_questions_at_once_stop_neither_end(wire: str, mode: str) -> None:
    answered: list[str] = []
    with trio.fail_after(START):
        async with connected(wire, mode, on_elicit=accept_defaults) as client:

            async def call() -> None:
                answered.append((await client.call_tool("ask")).text)

            async with trio.open_nursery() as nursery:
                # More than the pipe and the queue of either end have room for.
                for _ in range(6):
                    for _ in range(400):
                        nursery.start_soon(call)
                    await trio.lowlevel.checkpoint()
    assert len(answered) == 2400


async def test_thousands_of_answers_at_once_do_not_wait_for_a_server_that_sends_reports() -> None:
    calls, questions, count, released = 3, 1000, 0, trio.Event()

    async def answer(_params: object) -> CreateMessageResult:
        nonlocal count
        count += 1
        # The answers to the later half wait behind those to the first.
        if count == calls * questions // 2:
            released.set()
        await released.wait()
        return CreateMessageResult(role="assistant", content=TextContent(text="That. " * 300), model="m")

    with trio.fail_after(START):
        async with connected(
            "stdio", "legacy", on_sample=answer, max_handlers=calls * questions, reconnect=False
        ) as client:

            async def ask() -> None:
                await client.call_tool("ask_model", {"questions": questions}, on_progress=lambda *_: None)

            async with trio.open_nursery() as nursery:
                for _ in range(calls):
                    nursery.start_soon(ask)
    assert count == calls * questions


async def test_a_server_on_stdio_does_not_warn_that_its_key_ends_with_it(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr, trio.fail_after(START):
        async with connected("stdio", "modern", on_elicit=accept_defaults, stderr=stderr) as client:
            await client.call_tool("ask")
    assert "TRIO_MCP_KEYS" not in log.read_text()
