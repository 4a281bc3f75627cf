"""SIGUSR1 shows what a server does, in its log, and disturbs nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import trio
from serving import MODULE, SOON, Child, child

from trio_mcp import Client, accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult

APP = Path(__file__).with_name("waiting_app.py")

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="there is no SIGUSR1")


class SlowUser:
    """A handler that answers on a signal of the test."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.may_answer = trio.Event()

    async def __call__(self, _question: ElicitRequestFormParams) -> ElicitResult:
        self.asked.set()
        await self.may_answer.wait()
        return accept(value=True)


async def ask(url: str, mode: str, user: SlowUser, results: list[str]) -> None:
    async with Client.connect(url, mode=mode, on_elicit=user) as client:
        results.append((await client.call_tool("ask")).text)


async def line_with(server: Child, text: str) -> str:
    """Return the next line on stderr that has this text."""
    with trio.fail_after(SOON):
        while True:
            line = (await server.error_line()).decode()
            if text in line:
                return line


@pytest.mark.parametrize(("mode", "doing"), [("legacy", "waits for the user"), ("2026-07-28", "parked")])
async def test_the_signal_logs_the_tree_and_the_call_goes_on(mode: str, doing: str) -> None:
    user, results = SlowUser(), list[str]()
    async with child(APP, "http") as server, trio.open_nursery() as nursery:
        url = await server.announced(b"serves MCP at ")
        nursery.start_soon(ask, url, mode, user, results)
        await user.asked.wait()
        for _ in range(2):
            server.process.send_signal(signal.SIGUSR1)
            assert "waiting 1: 1 call" in await line_with(server, "waiting 1")
            assert doing in await line_with(server, "ask #1")
        user.may_answer.set()
    assert results == ["accept"]


@pytest.mark.parametrize("servers", [[f"{APP}"], [f"/a={APP}", f"/b={APP}:server"]], ids=["one", "two"])
async def test_the_commands_log_that_of_each_server_and_as_json_where_the_log_is_json(servers: list[str]) -> None:
    command = ("trio_mcp", "serve", *servers, "--port", "0", "--log-format", "json")
    async with child(MODULE, *command, strict=False) as server:
        for _ in servers:
            await line_with(server, "serves MCP at")
        server.process.send_signal(signal.SIGUSR1)
        for _ in servers:
            tree = json.loads(await line_with(server, '"trio_mcp.tree"'))["tree"]
            assert (tree["name"], tree["clients"]) == ("waiting", [])


async def test_a_server_on_stdio_logs_it_and_still_ends_with_its_stdin() -> None:
    async with child(APP) as server:
        await server.send(b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{}}}\n')
        await server.line()
        server.process.send_signal(signal.SIGUSR1)
        await line_with(server, "waiting 1: no calls")
        await server.stdin.aclose()
        assert await server.end() == 0


async def test_the_signal_disturbs_no_lifespan_that_opens_or_closes() -> None:
    async with child(APP.with_name("signalled_app.py"), strict=False) as server:
        await server.stdin.aclose()
        await line_with(server, "closed")
        assert await server.end() == 0
