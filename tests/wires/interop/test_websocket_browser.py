"""The WebSocket that browsers have, as node has it too, against our server."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import served

from trio_mcp import Context, Server

SCRIPT = Path(__file__).with_name("websocket_client.mjs")
FLAG = "--experimental-websocket"
LIMIT = 30.0


@pytest.fixture(scope="session")
def node() -> list[str]:
    """The command of a node that has WebSocket: without a flag since version 22, with one since 20.10."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed: the WebSocket of browsers is not tried")
    for command in ([program], [program, FLAG]):
        done = subprocess.run([*command, "-p", "typeof WebSocket"], capture_output=True, text=True)
        if done.stdout.strip() == "function":
            return command
    pytest.skip("this node has no WebSocket, even with its flag")


async def run(node: list[str], url: str, protocol: str) -> dict[str, Any]:
    with trio.fail_after(LIMIT):
        done = await trio.run_process([*node, str(SCRIPT), url, protocol], capture_stdout=True)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


async def test_a_browser_shakes_hands_calls_and_answers_a_question(node: list[str]) -> None:
    server = Server("asking", version="1.0")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("What?", str)
        return answer.content if answer.action == "accept" else ""

    async with served(server) as url:
        seen = await run(node, url.replace("http:", "ws:"), "mcp")
    assert seen["heard"] == [1, "elicitation/create", 2, 70_000]
    assert (seen["code"], seen["wasClean"], seen["protocol"]) == (1000, True, "mcp")


async def test_a_browser_that_offers_another_subprotocol_gets_no_connection(node: list[str]) -> None:
    async with served(Server("closed")) as url:
        seen = await run(node, url.replace("http:", "ws:"), "chat")
    assert (seen["opened"], seen["heard"], seen["wasClean"]) == (False, [], False)
