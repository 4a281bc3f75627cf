"""The SQLite explorer, in its short form: reads one database. `examples/sqlite_explorer.py` can also write.

    SQLITE_DB_PATH=shop.db python examples/ports/sqlite.py

The usual version with FastMCP checks that a statement begins with SELECT, and has the path in a global variable. Here, SQLite
opens the file read-only, and each call gets its connection by `Provide` (in FastMCP `Depends`). Plain functions run in threads
in both.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import trio

from trio_mcp import Context, Provide, Server, ToolError
from trio_mcp.types import ToolAnnotations

Cell: TypeAlias = str | int | float | None
READ_ONLY = ToolAnnotations(read_only_hint=True)


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[Path]:
    path = os.environ["SQLITE_DB_PATH"]
    if not await trio.Path(path).is_file():
        raise FileNotFoundError(path)
    yield Path(path)


@contextmanager
def connect(ctx: Context[Path]) -> Iterator[sqlite3.Connection]:
    """Open the database for one call. Its thread may be another one than that of the tool."""
    uri = f"{ctx.state.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as database:
        yield database


Database: TypeAlias = Annotated[sqlite3.Connection, Provide(connect)]

server = Server("sqlite", lifespan=lifespan)


@server.tool(annotations=READ_ONLY)
def list_tables(database: Database) -> list[str]:
    """List the tables."""
    return [name for (name,) in database.execute("select name from sqlite_schema where type = 'table' order by name")]


@server.tool(annotations=READ_ONLY)
def describe_table(table: str, database: Database) -> list[dict[str, Cell]]:
    """Describe the columns of a table."""
    found = database.execute("select name, type, pk from pragma_table_info(?)", [table]).fetchall()
    if not found:
        raise ToolError(f"There is no table {table}.")
    return [{"name": name, "type": kind, "key": key} for name, kind, key in found]


@server.tool(annotations=READ_ONLY)
def read_query(sql: str, database: Database, limit: int = 100) -> list[dict[str, Cell]]:
    """Run a SELECT statement."""
    database.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in database.execute(sql).fetchmany(limit)]
    except sqlite3.Error as error:
        raise ToolError(f"SQLite: {error}") from error


if __name__ == "__main__":
    server.run()
