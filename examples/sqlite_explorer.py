"""A server for a SQLite database: it reads freely, and asks the user before it writes.

    DATABASE=shop.db python examples/sqlite_explorer.py                 serves it on stdio
    DATABASE=shop.db python examples/sqlite_explorer.py http 8000       serves it at http://127.0.0.1:8000/mcp

The lifespan opens the database twice: once read-only, so that SQLite itself rejects a `query` that writes, and once for
`execute`. SQLite blocks, so its statements run in a thread. A call that is cancelled or times out interrupts its statement.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import trio
from pydantic import Field

from trio_mcp import Context, ResourceNotFound, Server, ToolError
from trio_mcp.types import ToolAnnotations

T = TypeVar("T")
Cell: TypeAlias = str | int | float | None
READ_ONLY = ToolAnnotations(read_only_hint=True)
WRITES = ToolAnnotations(destructive_hint=True)


@dataclass
class Rows:
    """What a statement returned."""

    columns: list[str]
    rows: list[list[Cell]]
    more: bool


class Connection:
    """A connection to the database that tasks use in turn, each in a thread."""

    def __init__(self, path: Path, mode: str) -> None:
        self._sqlite = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
        )
        # Without this, a statement could read and write other files.
        self._sqlite.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        # Called every 10,000 instructions, in the thread; what it raises interrupts the statement.
        self._sqlite.set_progress_handler(trio.from_thread.check_cancelled, 10_000)
        self._turn = trio.Lock()

    async def read(self, sql: str, *values: Cell, limit: int = 1000) -> Rows:
        """Run one statement, and return its first `limit` rows."""
        return await self._in_thread(lambda: self._read(sql, values, limit))

    async def change(self, sql: str, *values: Cell) -> int:
        """Run one statement, and return how many rows it changed."""
        return await self._in_thread(lambda: self._change(sql, values))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Return `work()`. A cancel interrupts the statement.

        Raises:
            ToolError: SQLite rejected it; the model reads why.
        """
        async with self._turn:
            try:
                return await trio.to_thread.run_sync(work)
            except (sqlite3.Error, OverflowError) as error:
                failure = error
        await trio.lowlevel.checkpoint_if_cancelled()  # an interrupted statement has failed, too
        raise ToolError(f"SQLite: {failure}") from failure

    def _read(self, sql: str, values: tuple[Cell, ...], limit: int) -> Rows:
        with closing(self._sqlite.execute(sql, values)) as cursor:
            found = cursor.fetchmany(limit + 1)
            columns = [column[0] for column in cursor.description or ()]
            return Rows(columns, [[readable(cell) for cell in row] for row in found[:limit]], len(found) > limit)

    def _change(self, sql: str, values: tuple[Cell, ...]) -> int:
        before = self._sqlite.total_changes
        self._sqlite.execute(sql, values).fetchall()
        if self._sqlite.in_transaction:  # it would hold the database until another call ends it
            self._sqlite.rollback()
            raise sqlite3.ProgrammingError("each statement is a transaction; BEGIN was rolled back")
        return self._sqlite.total_changes - before

    def close(self) -> None:
        self._sqlite.close()


def readable(cell: Cell | bytes) -> Cell:
    """Return a cell as JSON has it; of a blob, its size."""
    return f"({len(cell)} bytes)" if isinstance(cell, bytes) else cell


@dataclass
class Database:
    """What all calls share."""

    reader: Connection
    writer: Connection


@asynccontextmanager
async def open_database(_server: Server) -> AsyncIterator[Database]:
    path = Path(os.environ["DATABASE"])
    with closing(Connection(path, "ro")) as reader, closing(Connection(path, "rw")) as writer:
        yield Database(reader, writer)


server = Server(
    "sqlite", version="1.0", instructions="Read the resource sqlite://schema first.", lifespan=open_database
)


@server.resource("sqlite://schema")
async def schema(ctx: Context[Database]) -> str:
    """The statements that created all tables and indexes."""
    found = await ctx.state.reader.read("select sql from sqlite_schema where sql is not null order by name")
    return "\n".join(f"{sql};" for (sql,) in found.rows)


@server.resource("sqlite://tables/{table}", mime_type="application/json")
async def sample_of(table: str, ctx: Context[Database]) -> Rows:
    """The first ten rows of a table."""
    if table not in await list_tables(ctx):
        raise ResourceNotFound(f"sqlite://tables/{table}")
    name = table.replace('"', '""')
    return await ctx.state.reader.read(f'select * from "{name}"', limit=10)  # noqa: S608  a name cannot be a parameter


@server.tool(annotations=READ_ONLY)
async def list_tables(ctx: Context[Database]) -> list[str]:
    """List the tables and views."""
    found = await ctx.state.reader.read("select name from sqlite_schema where type in ('table', 'view') order by name")
    return [str(name) for (name,) in found.rows]


@server.tool(annotations=READ_ONLY, timeout=30)
async def query(
    sql: Annotated[str, Field(description="One SELECT statement, with ? for each value.")],
    ctx: Context[Database],
    values: list[Cell] | None = None,
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> Rows:
    """Read from the database."""
    return await ctx.state.reader.read(sql, *(values or ()), limit=limit)


@server.tool(annotations=WRITES, requires={"elicitation"})
async def execute(
    sql: Annotated[str, Field(description="One statement, with ? for each value.")],
    ctx: Context[Database],
    values: list[Cell] | None = None,
) -> str:
    """Change the database, after the user has agreed."""
    shown = "".join(f"\n? = {value!r}" for value in values or ())
    answer = await ctx.elicit(f"May this statement change the database?\n{sql}{shown}")
    if answer.action != "accept":
        return "The user did not agree. Nothing was changed."
    changed = await ctx.state.writer.change(sql, *(values or ()))
    server.resource_updated("sqlite://schema")
    server.resource_updated("sqlite://tables")
    return f"Done. {changed} rows were changed."


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
