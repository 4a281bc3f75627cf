"""A server with a durable store that is killed in a call: the client's call finishes, and no effect happens twice."""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from effects_home import BOUND, ERAS, SERVER, command, effects
from serving import IMPORTS, HttpProcess, http_process
from wire_terms import IDEMPOTENCY_KEY

from trio_mcp import Client
from trio_mcp.client import accept
from trio_mcp.errors import OutcomeUnknown, Unreachable
from trio_mcp.types import JsonObject

KEYS = {"TRIO_MCP_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}


async def start_whenever_killed(server: HttpProcess) -> None:
    while True:
        await server.ended()
        await server.restart()


async def list_tools(client: Client) -> None:
    """List the tools; try again while the server is being started, which is known at once since nothing was sent."""
    while True:
        try:
            await client.list_tools()
        except Unreachable:
            await trio.sleep(0.05)
        else:
            return


@asynccontextmanager
async def connected(home: Path, wire: str, mode: str) -> AsyncIterator[Client]:
    """A client of a server that is started again whenever its process has ended."""
    connect = partial(Client.connect, mode=mode, on_elicit=lambda _question: accept(value=True))
    with trio.fail_after(BOUND):
        if wire == "stdio":
            async with connect(command(home), env={**IMPORTS, **KEYS}) as client:
                await client.list_tools()
                yield client
            return
        async with http_process(SERVER, EFFECTS=str(home), **KEYS) as server, trio.open_nursery() as nursery:
            nursery.start_soon(start_whenever_killed, server)
            async with connect(server.url.replace("http", wire, 1)) as client:
                await list_tools(client)
                yield client
            nursery.cancel_scope.cancel()


def die(home: Path, place: str) -> None:
    (home / f"die {place}").touch()


def has_died(home: Path) -> bool:
    return not any(home.glob("die *"))


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("wire", ["stdio", "ws", "http"])
@pytest.mark.parametrize(
    ("tool", "place", "data", "had"),
    [("act_in_steps", "between", ["a 1", "a 2"], ["a 1", "a 2"]), ("act_and_ask", "answered", "a accept", ["a"])],
)
async def test_a_call_goes_on_where_its_journal_ends(
    tmp_path: Path, wire: str, mode: str, tool: str, place: str, data: object, had: list[str]
) -> None:
    async with connected(tmp_path, wire, mode) as client:
        die(tmp_path, place)
        assert (await client.call_tool(tool, {"what": "a"})).data == data
        assert effects(tmp_path) == had
        assert has_died(tmp_path)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("wire", ["stdio", "ws", "http"])
async def test_a_step_that_may_have_run_is_not_run_again(tmp_path: Path, wire: str, mode: str) -> None:
    async with connected(tmp_path, wire, mode) as client:
        die(tmp_path, "inside")
        result = await client.call_tool("act_in_steps", {"what": "a"})
        assert result.is_error
        assert "second" in result.text
        assert effects(tmp_path) == ["a 1", "a 2"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("wire", ["stdio", "ws"])
async def test_a_tool_that_must_not_be_replayed_is_not_run_again(tmp_path: Path, wire: str, mode: str) -> None:
    async with connected(tmp_path, wire, mode) as client:
        die(tmp_path, "after")
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("act_once", {"what": "a"})
        assert effects(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_next_process_has_the_outcome_of_a_call(tmp_path: Path, mode: str) -> None:
    meta: JsonObject = {IDEMPOTENCY_KEY: "key"}
    for _ in range(2):
        async with connected(tmp_path, "stdio", mode) as client:
            assert (await client.call_tool("act_once", {"what": "a"}, meta=meta)).data == "a"
    assert effects(tmp_path) == ["a"]
