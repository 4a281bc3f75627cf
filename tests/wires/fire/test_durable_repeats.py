"""A server with a durable store that is killed in a call: the client's call finishes, and no effect happens twice.

The same with a store whose writes all time out, from the first, second, ... on, and are committed later: then the call may end
with an error instead, and a repeat ends the story once the store works again.
"""

from __future__ import annotations

import base64
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from late_calls import assert_once, ended, has_landed, make_late, new_key
from late_sqlite import LONG_TIMEOUT, TIMEOUT
from serving import IMPORTS, HttpProcess, http_process

from trio_mcp import Client
from trio_mcp.client import accept
from trio_mcp.errors import OutcomeUnknown, Unreachable
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY
from trio_mcp.types import ElicitResult

SERVER = Path(__file__).parent / "effects_server.py"
BOUND = 60.0
KEYS = {"TRIO_MCP_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}

ERAS = (NEWEST_LEGACY, MODERN)
LATE = [
    *(("stdio", ERAS[in_time % 2], in_time) for in_time in range(4)),
    *(("ws", ERAS[in_time % 2], in_time) for in_time in (1, 2)),
    *(("http", NEWEST_LEGACY, in_time) for in_time in (0, 3)),
    ("http", MODERN, 1),
]
"""With a store that is late, except for the first writes of each process. Legacy calls, sessions and streams are kept over HTTP
alone. There, and over WebSocket, the store is late once the client is connected. A call that asks is kept with its fourth
write."""

STORES = [("stdio", mode, None) for mode in ERAS] + LATE
wires = pytest.mark.parametrize(
    ("wire", "mode", "in_time"), [(wire, mode, None) for wire in ("ws", "http") for mode in ERAS] + STORES
)


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
async def connected(home: Path, wire: str, mode: str, in_time: int | None = None) -> AsyncIterator[Client]:
    """A client of a server that is started again whenever its process has ended.

    Args:
        in_time: writes of each process that are not late; None if the store works.
    """
    environment = KEYS if in_time is None else {**KEYS, "LATE": "1"}
    if in_time is not None and wire == "stdio":
        make_late(home, in_time, TIMEOUT)

    async def answer(_question: object) -> ElicitResult:
        # So that the process that dies with the answer leaves what was late.
        await has_landed(home)
        return accept(value=True)

    connect = partial(Client.connect, mode=mode, on_elicit=answer)
    with trio.fail_after(BOUND):
        if wire == "stdio":
            async with connect([sys.executable, str(SERVER), str(home)], env={**IMPORTS, **environment}) as client:
                await client.list_tools()
                yield client
            return
        async with http_process(SERVER, EFFECTS=str(home), **environment) as server, trio.open_nursery() as nursery:
            nursery.start_soon(start_whenever_killed, server)
            async with connect(server.url.replace("http", wire, 1)) as client:
                await list_tools(client)
                if in_time is not None:
                    make_late(home, in_time, LONG_TIMEOUT)
                yield client
            nursery.cancel_scope.cancel()


def effects(home: Path) -> list[str]:
    path = home / "effects"
    return path.read_text().splitlines() if path.exists() else []


def die(home: Path, place: str) -> None:
    (home / f"die {place}").touch()


def has_died(home: Path) -> bool:
    return not any(home.glob("die *"))


async def check_late(client: Client, home: Path, tool: str, *whole: str) -> None:
    """Call a tool whose store is late, which had the whole effect if it has a result, and none twice in any case."""
    meta = new_key()
    result = await ended(home, lambda: client.call_tool(tool, {"what": "a"}, meta=meta))
    assert_once(effects(home))
    if result is not None and not result.is_error:
        assert effects(home) == list(whole)


@wires
@pytest.mark.parametrize("place", ["between", "answered"])
async def test_a_call_goes_on_where_its_journal_ends(
    tmp_path: Path, wire: str, mode: str, in_time: int | None, place: str
) -> None:
    async with connected(tmp_path, wire, mode, in_time) as client:
        die(tmp_path, place)
        if in_time is not None:
            tool, whole = ("act_in_steps", ("a 1", "a 2")) if place == "between" else ("act_and_ask", ("a",))
            await check_late(client, tmp_path, tool, *whole)
        elif place == "between":
            assert (await client.call_tool("act_in_steps", {"what": "a"})).data == ["a 1", "a 2"]
            assert effects(tmp_path) == ["a 1", "a 2"]
        else:
            assert (await client.call_tool("act_and_ask", {"what": "a"})).data == "a accept"
            assert effects(tmp_path) == ["a"]
        assert has_died(tmp_path) or in_time is not None


@wires
async def test_a_step_that_may_have_run_is_not_run_again(
    tmp_path: Path, wire: str, mode: str, in_time: int | None
) -> None:
    async with connected(tmp_path, wire, mode, in_time) as client:
        die(tmp_path, "inside")
        if in_time is not None:
            await check_late(client, tmp_path, "act_in_steps", "a 1", "a 2")
            return
        result = await client.call_tool("act_in_steps", {"what": "a"})
        assert result.is_error
        assert "second" in result.text
        assert effects(tmp_path) == ["a 1", "a 2"]


@pytest.mark.parametrize(("wire", "mode", "in_time"), [("ws", mode, None) for mode in ERAS] + STORES)
async def test_a_tool_that_must_not_be_replayed_is_not_run_again(
    tmp_path: Path, wire: str, mode: str, in_time: int | None
) -> None:
    async with connected(tmp_path, wire, mode, in_time) as client:
        die(tmp_path, "after")
        if in_time is not None:
            await check_late(client, tmp_path, "act_once", "a")
            return
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("act_once", {"what": "a"})
        assert effects(tmp_path) == ["a"]


@pytest.mark.parametrize(("wire", "mode", "in_time"), STORES)
async def test_the_next_process_has_the_outcome_of_a_call(
    tmp_path: Path, wire: str, mode: str, in_time: int | None
) -> None:
    meta, results = new_key(), []
    for is_late in (in_time is not None, False):
        async with connected(tmp_path, wire, mode, in_time if is_late else None) as client:
            results.append(await ended(tmp_path, lambda: client.call_tool("act_once", {"what": "a"}, meta=meta)))
    if in_time is None:
        assert None not in results
    assert {result.data for result in results if result is not None} <= {"a"}
    assert effects(tmp_path) == ["a"]
