"""A type checker compares the phases of a handoff tool with each other, and a function with the parameters of its tool."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from serving import ROOT

PROGRAM = """
from dataclasses import dataclass

from pydantic import BaseModel
from typing_extensions import TypedDict

from trio_mcp import Context, Elicit, Server, tool

server = Server("typed")


class Trip(BaseModel):
    to: str


@dataclass
class Stay:
    city: str


class Ride(TypedDict):
    to: str


class Hold(BaseModel):
    number: int


async def hold(trip: Trip, ctx: Context) -> Hold:
    return Hold(number=1)


async def hold_room(stay: Stay, ctx: Context) -> Hold:
    return Hold(number=1)


async def pick(hold: Hold, ctx: Context) -> str | None:
    return None


async def pick_number(number: int, ctx: Context) -> str:
    return ""


async def book(hold: Hold, seat: str | None, ctx: Context) -> str:
    return ""


async def book_trip(hold: Hold, seat: str | None, ctx: Context, trip: Trip) -> str:
    return trip.to


async def book_row(hold: Hold, row: int, ctx: Context) -> str:
    return ""


async def release(hold: Hold, ctx: Context) -> None: ...


async def release_number(number: int, ctx: Context) -> None: ...


async def drive(ride: Ride, ctx: Context) -> str:
    return ride["to"]


def walk(ride: Ride, ctx: Context) -> str:
    return ride["to"]


trips = tool("trips").parameters(Trip).elicits(Elicit("seat", str))
server.add_tool(trips.handoff(before=hold, client=pick, after=book, on_cancel=release))
server.add_tool(trips.title("Trip").handoff(before=hold, client=pick, after=book_trip))
tool("stay").parameters(Stay).limits(timeout=3).handoff(before=hold_room, client=pick, after=book)
tool("drive").parameters(Ride).execute(drive)
tool("walk").parameters(Ride).execute(walk)

trips.handoff(before=hold, client=pick_number, after=book)  # wrong
trips.handoff(before=hold, client=pick, after=book_row)  # wrong
trips.handoff(before=hold, client=pick, after=book, on_cancel=release_number)  # wrong
trips.handoff(before=hold_room, client=pick, after=book)  # wrong
trips.execute(drive)  # wrong
tool("early").execute(drive)  # wrong


@server.handoff_tool(client=pick, after=book, on_cancel=release)
async def search(to: str) -> Hold:
    return Hold(number=1)


@server.handoff_tool(client=pick, after=book, timeout=3)
async def search_slowly(to: str, ctx: Context, *, stops: int = 0) -> Hold:
    return Hold(number=1)


@server.handoff_tool(client=pick, after=book)  # wrong
async def search_text(to: str, ctx: Context) -> str:
    return ""


@server.handoff_tool(client=pick, after=book_row)  # wrong
async def search_row(to: str) -> Hold:
    return Hold(number=1)
"""


def test_phases_that_do_not_fit_each_other_are_type_errors(tmp_path: Path) -> None:
    file = tmp_path / "typed_handoff.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    wrong = [number for number, line in enumerate(PROGRAM.splitlines(), start=1) if line.endswith("# wrong")]
    found = {int(number) for number in re.findall(r"typed_handoff\.py:(\d+): error:", done.stdout)}
    assert sorted(found) == wrong, done.stdout
