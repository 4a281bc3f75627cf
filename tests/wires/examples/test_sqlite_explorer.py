"""The sqlite example: reading changes nothing, writing needs the user, and a statement ends with its call."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from connected import connected
from trio.testing import wait_all_tasks_blocked

from examples.sqlite_explorer import execute, list_tables, query, server
from trio_mcp import PeerError, decline, dismiss
from trio_mcp.testing import MockClient
from trio_mcp.types import ElicitResult

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with one table of two goods."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute('create table "the goods" (name text, euros real, picture blob)')
        database.executemany('insert into "the goods" values (?, ?, ?)', [("bread", 3.2, b"png"), ("wine", 12.5, None)])
        database.commit()
    monkeypatch.setenv("DATABASE", str(path))
    return path


def names(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute('select name from "the goods" order by name')]


# reading


async def test_a_query_returns_rows(mode: str, shop: Path) -> None:
    result = await MockClient(era=mode).call(query, sql='select * from "the goods" where euros < ?', values=[5])
    assert result.data == {
        "columns": ["name", "euros", "picture"],
        "rows": [["bread", 3.2, "(3 bytes)"]],
        "more": False,
    }


async def test_a_query_says_that_there_are_more_rows(mode: str, shop: Path) -> None:
    result = await MockClient(era=mode).call(query, sql='select name from "the goods" order by name', limit=1)
    assert result.data == {"columns": ["name"], "rows": [["bread"]], "more": True}


async def test_tables_and_schema_can_be_read(mode: str, shop: Path) -> None:
    assert (await MockClient(era=mode).call(list_tables)).data == ["the goods"]
    async with connected(server, mode) as client:
        assert (await client.read_resource("sqlite://schema")).text == (
            'CREATE TABLE "the goods" (name text, euros real, picture blob);'
        )
        assert "wine" in (await client.read_resource("sqlite://tables/the%20goods")).text


async def test_an_unknown_table_is_no_resource(mode: str, shop: Path) -> None:
    async with connected(server, mode) as client:
        with pytest.raises(PeerError, match="not found"):
            await client.read_resource("sqlite://tables/orders")


@pytest.mark.parametrize(
    "sql",
    [
        'delete from "the goods"',
        'drop table "the goods"',
        "vacuum into '{other}'",
        "attach '{other}' as other",
        "select * from nothing",
        "select 1; select 2",
    ],
)
async def test_the_model_reads_why_sqlite_rejects_a_query(sql: str, mode: str, shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    result = await MockClient(era=mode).call(query, sql=sql.format(other=other))
    assert result.is_error
    assert result.text.startswith("SQLite: ")
    assert (names(shop), other.exists()) == (["bread", "wine"], False)


async def test_a_query_that_is_cancelled_interrupts_its_statement(mode: str, shop: Path) -> None:
    async with connected(server, mode) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "query", {"sql": ENDLESS})
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        # The connection is free again.
        assert (await client.call_tool("query", {"sql": "select 1"}, returns=dict))["rows"] == [[1]]


# writing


async def test_a_statement_runs_after_the_user_has_read_it_and_agreed(mode: str, shop: Path) -> None:
    client = MockClient(elicits=[{}], era=mode)
    result = await client.call(execute, sql='delete from "the goods" where name = ?', values=["wine"])
    assert result.text == "Done. 1 rows were changed."
    assert names(shop) == ["bread"]
    (question,) = client.questions
    assert question.message.splitlines()[1:] == ['delete from "the goods" where name = ?', "? = 'wine'"]


@pytest.mark.parametrize("answer", [decline(), dismiss()], ids=["declined", "dismissed"])
async def test_nothing_is_written_unless_the_user_agrees(answer: ElicitResult, mode: str, shop: Path) -> None:
    result = await MockClient(elicits=[answer], era=mode).call(execute, sql='delete from "the goods"')
    assert result.text == "The user did not agree. Nothing was changed."
    assert names(shop) == ["bread", "wine"]


@pytest.mark.parametrize(
    ("sql", "values"), [("begin", []), ("insert into nothing values (1)", []), ("select ?", [2**70])]
)
async def test_the_model_reads_why_sqlite_rejects_a_statement(
    sql: str, values: list[int], mode: str, shop: Path
) -> None:
    client = MockClient(elicits=[{}, {}], era=mode)
    with client:
        result = await client.call(execute, sql=sql, values=values)
        assert (result.is_error, result.text.startswith("SQLite: ")) == (True, True)
        assert not (await client.call(execute, sql='delete from "the goods"')).is_error
    assert names(shop) == []


# serving


async def test_without_the_database_the_server_does_not_start(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", str(tmp_path / "missing.db"))
    with pytest.RaisesGroup(sqlite3.OperationalError, allow_unwrapped=True, flatten_subgroups=True):
        async with connected(server, mode):
            raise AssertionError("it started")
