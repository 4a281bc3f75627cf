"""Mistakes in the phases and parameters of a handoff tool that type checkers find."""

from __future__ import annotations

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

trips.handoff(before=hold, client=pick_number, after=book)  # type: ignore[misc]
trips.handoff(before=hold, client=pick, after=book_row)  # type: ignore[misc]
trips.handoff(before=hold, client=pick, after=book, on_cancel=release_number)  # type: ignore[misc]
trips.handoff(before=hold_room, client=pick, after=book)  # type: ignore[arg-type]
trips.execute(drive)  # type: ignore[arg-type]
tool("early").execute(drive)  # type: ignore[arg-type]


@server.handoff_tool(client=pick, after=book, on_cancel=release)
async def search(to: str) -> Hold:
    return Hold(number=1)


@server.handoff_tool(client=pick, after=book, timeout=3)
async def search_slowly(to: str, ctx: Context, *, stops: int = 0) -> Hold:
    return Hold(number=1)


@server.handoff_tool(client=pick, after=book)  # type: ignore[arg-type]
async def search_text(to: str, ctx: Context) -> str:
    return ""


@server.handoff_tool(client=pick, after=book_row)  # type: ignore[misc]
async def search_row(to: str) -> Hold:
    return Hold(number=1)
