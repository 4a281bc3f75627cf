"""Each example is served on stdio when it is started as a program: a call, with the answers of a user and of a model."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from connected import connected
from serving import IMPORTS, ROOT
from users import User

from trio_mcp import accept
from trio_mcp.types import ElicitResult


class Call(NamedTuple):
    tool: str
    arguments: dict[str, Any]
    text: str
    answers: Sequence[ElicitResult] = ()
    words: Sequence[str] = ()
    """Of the command line."""


FLIGHT = [accept(flight="TP3", seat="aisle")]
CELLS = [accept(cell=number) for number in (1, 2, 3)]
TREE = {"question": "Where to?", "options": ["Rome", "Oslo"]}
CALLS = {
    "book_flight": Call("book_flight", {"destination": "Lisbon"}, "Booked TP3 to Lisbon", FLIGHT),
    "checkout": Call("charge", {"amount": 5}, "Charged 5 euros, confirmed.", words=["stdio"]),
    "decision_tree": Call("decide", TREE, "Oslo", [accept(stars=5), accept(stars=2)]),
    "sqlite_explorer": Call("list_tables", {}, "goods"),
    "tic_tac_toe": Call("play", {}, "The user wins.\nx x x\no o 6\n7 8 9", CELLS),
}


@pytest.mark.parametrize("example", CALLS)
async def test_an_example_is_served_on_stdio(example: str, mode: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("create table goods (name text)")
    call, replies = CALLS[example], iter(["4", "5", "6", "7"])
    files = {"BOOKINGS": "bookings", "CHECKOUT_LEDGER": "ledger", "DATABASE": "shop.db"}
    environment = {**IMPORTS, **{name: str(tmp_path / file) for name, file in files.items()}}
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py"), *call.words]
    handlers = {"on_elicit": User(*call.answers).answer, "on_sample": lambda _params: next(replies)}
    async with connected(command, mode, env=environment, **handlers) as client:
        result = (await client.call_tool(call.tool, call.arguments)).check()
    assert call.text in result.text
