"""What the code of docs/state.md does."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any

import pytest
import trio
from connected import connected
from pages import Names, run
from talk import talk_to
from trio.testing import MockClock
from wire_terms import SERVER_BUSY

from trio_mcp import PeerError, Provide, ToolError


@pytest.fixture
def page() -> Names:
    return run("state")


async def test_a_transaction_is_rolled_back_by_an_error(page: Names, mcp_era: str) -> None:
    async with connected(page["server"], mode=mcp_era) as client:
        state = page["server"].services[0].offers.calls.state
        await client.call_tool("add_note", {"topic": "a", "body": "text"})
        assert (await client.call_tool("move_notes", {"source": "a", "target": "trash"})).is_error
        assert state.database.execute("select topic from notes").fetchall() == [("a",)]
        await client.call_tool("move_notes", {"source": "a", "target": "b"})
        assert state.database.execute("select topic from notes").fetchall() == [("b",)]
    with pytest.raises(sqlite3.ProgrammingError):
        state.database.execute("select 1")


async def test_concurrent_calls_have_separate_transactions(page: Names, mcp_era: str) -> None:
    server, begun, go_on = page["server"], trio.Event(), trio.Event()

    async def write(topic: Any, cursor: Any) -> str:
        cursor.execute("insert into notes values (?, '')", (topic,))
        begun.set()
        await go_on.wait()
        if topic == "bad":
            raise ToolError("no")
        return topic  # type: ignore[no-any-return]

    write.__annotations__ = {
        "topic": str,
        "cursor": Annotated[sqlite3.Cursor, Provide(page["transaction"])],
        "return": str,
    }
    server.add_tool(write)
    async with connected(server, mode=mcp_era) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "write", {"topic": "bad"})
            await begun.wait()
            nursery.start_soon(client.call_tool, "write", {"topic": "good"})
            nursery.start_soon(client.call_tool, "add_note", {"topic": "alone", "body": ""})
            await trio.testing.wait_all_tasks_blocked()
            go_on.set()
        database = server.services[0].offers.calls.state.database
        rows = database.execute("select topic from notes order by topic").fetchall()
    assert rows == [("alone",), ("good",)]


async def test_a_call_is_timed_with_its_retries(page: Names, mcp_era: str, autojump_clock: MockClock) -> None:
    async with connected(page["server"], mode=mcp_era) as client:
        assert (await client.call_tool("fetch", {"url": "x"})).text == "the page"
        assert page["server"].services[0].offers.calls.state.seconds == {"fetch": pytest.approx(1.1)}
    assert page["fetched"] == ["x"] * 3


async def test_calls_beyond_the_rate_are_refused_for_a_minute(
    page: Names, mcp_era: str, autojump_clock: MockClock
) -> None:
    async with connected(page["server"], mode=mcp_era, bound=200) as client:
        note = {"topic": "a", "body": "text"}
        results = [await client.call_tool("add_note", note) for _ in range(101)]
        assert [number for number, result in enumerate(results) if result.is_error] == [100]
        assert "100 calls a minute" in results[100].text
        await trio.sleep(61)
        assert not (await client.call_tool("add_note", note)).is_error


async def test_an_error_of_the_database_reaches_the_model_in_other_words(page: Names) -> None:
    async with connected(page["server"]) as client:
        page["server"].services[0].offers.calls.state.database.execute("drop table notes")
        result = await client.call_tool("add_note", {"topic": "a", "body": "text"})
    assert (result.is_error, result.text) == (True, "The database is not available. Try again in a minute.")


async def test_prompts_are_for_callers_with_a_principal(page: Names) -> None:
    async with talk_to(page["server"]) as talk:
        assert (await talk.error(talk.ask("prompts/get", name="x")))["code"] == -32001
    async with talk_to(page["server"], principal="ann") as talk:
        assert (await talk.error(talk.ask("prompts/get", name="x")))["code"] == -32601


async def test_more_calls_than_run_and_wait_are_refused(page: Names, mcp_era: str, autojump_clock: MockClock) -> None:
    codes: list[int] = []

    async def render() -> None:
        try:
            await client.call_tool("render", {"scene": "a"})
        except PeerError as error:
            codes.append(error.code)

    async with connected(page["server"], mode=mcp_era) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(14):
                nursery.start_soon(render)
        assert trio.current_time() == 6
    assert codes == [SERVER_BUSY] * 2
