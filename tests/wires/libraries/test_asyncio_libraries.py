"""asyncpg, SQLAlchemy and aiohttp in every kind of function of a server, in the loop of a program and beside Trio."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from both_loops import Run, beside_trio, in_program
from shops import Aiohttp, Asyncpg, Library, SqlAlchemy, shop

from trio_mcp import Client, accept
from trio_mcp.types import PromptReference


@pytest.fixture(params=[Asyncpg, SqlAlchemy, Aiohttp])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    return request.param(request.getfixturevalue("postgres_url") if request.param is Asyncpg else tmp_path)


@pytest.fixture(params=[in_program, beside_trio])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param


def test_every_kind_of_function_awaits_the_library(library: Library, run: Run, mode: str) -> None:
    notes = list[str]()

    async def main() -> None:
        async with Client.connect(
            shop(library, notes.append), mode=mode, on_elicit=lambda _: accept(value=2)
        ) as client:
            assert (await client.call_tool("price", {"item": "lamp"})).data == 3
            assert (await client.call_tool("provided", {"item": "lamp"})).data == 3
            assert (await client.call_tool("prices", {"items": ["lamp", "table"] * 3})).data == [3, 5] * 3
            assert (await client.call_tool("buy", {"item": "table"})).data == 10
            assert notes == ["step"]
            assert (await client.read_resource("price://table")).contents[0].text == "5"
            assert "costs 3" in str((await client.get_prompt("offer", {"item": "lamp"})).messages[0].content)
            assert (await client.complete(PromptReference(name="offer"), "item", "l")).values == ["lamp"]

    run(main)


def test_a_call_that_fails_or_is_cancelled_gives_its_connection_back_and_is_rolled_back(
    library: Library, run: Run
) -> None:
    async def main() -> None:
        waiting, token = trio.Event(), trio.lowlevel.current_trio_token()

        def note(_: str) -> None:
            # From the loop of asyncio, in whatever thread it is.
            token.run_sync_soon(waiting.set)

        async with Client.connect(shop(library, note)) as client:
            failed = await client.call_tool("fail")
            assert (failed.is_error, failed.text) == (True, "rolled back")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait")
                await waiting.wait()
                nursery.cancel_scope.cancel()
            # The pool has one connection.
            assert (await client.call_tool("price", {"item": "lamp"})).data == 3

    run(main)
