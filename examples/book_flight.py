"""A handoff tool: it searches flights and holds seats, lets the user pick one, and books it.

    python examples/book_flight.py                 serves it on stdio
    python examples/book_flight.py http 8000       serves it at http://127.0.0.1:8000/mcp

The airline writes to the file that BOOKINGS names. Start the server with TRIO_MCP_KEYS set, kill it while the user chooses,
start it again, and answer: the call resumes, and the file shows one hold and one booking.
"""

from __future__ import annotations

import os
import sys
from typing import Literal

import trio
from pydantic import BaseModel, Field

from trio_mcp import Context, Elicit, Server, ToolError, tool

server = Server("flights", version="1.0", instructions="Books flights; it asks which one, and before it books.")


class Trip(BaseModel):
    destination: str = Field(description="A city.")
    passengers: int = Field(default=1, ge=1, le=9)


class Flight(BaseModel):
    number: str
    departs: str
    euros: int


class Held(BaseModel):
    """What `search` hands to the other phases."""

    reference: str
    flights: list[Flight]


class Pick(BaseModel):
    flight: str = Field(description="The number of the flight.")
    seat: Literal["window", "aisle"] = "window"


PICK = Elicit("pick", Pick)

TIMETABLE = {
    "lisbon": [Flight(number="TP1", departs="07:40", euros=129), Flight(number="TP3", departs="12:15", euros=89)],
    "oslo": [Flight(number="SK8", departs="09:30", euros=140)],
}


async def search(trip: Trip, ctx: Context) -> Held:
    """Search flights and hold seats on them. Runs once."""
    await ctx.progress(1, 3, "searching")
    flights = TIMETABLE.get(trip.destination.strip().lower(), [])
    if not flights:
        raise ToolError(f"No flights to {trip.destination} were found.")
    held = Held(reference=f"{trip.destination}/{trip.passengers}", flights=flights)
    await airline(f"held {held.reference}")
    return held


async def pick_seat(held: Held, ctx: Context) -> Pick | None:
    """Ask for a flight and a seat, and whether to book; None for no. Runs again if the process is restarted."""
    await ctx.progress(2, 3, f"{len(held.flights)} flights found")
    offers = ", ".join(f"{flight.number} at {flight.departs} for {flight.euros} euros" for flight in held.flights)
    picked = await ctx.elicit(f"Which flight? {offers}", PICK)
    if picked.action != "accept":
        return None
    pick = picked.content
    prices = {flight.number: flight.euros for flight in held.flights}
    if pick.flight not in prices:
        return None
    sure = await ctx.elicit(f"Book {pick.flight} ({pick.seat}) for {prices[pick.flight]} euros?", bool)
    return pick if sure.action == "accept" and sure.content else None


async def book(held: Held, pick: Pick | None, ctx: Context, trip: Trip) -> str:
    """Book what was picked, or give the seats back. Runs once."""
    if pick is None:
        await release(held, ctx)
        return "Nothing was booked."
    with trio.move_on_after(3, shield=True):  # a cancel must not interrupt the airline
        await airline(f"booked {pick.flight} {pick.seat} {held.reference}")
    await ctx.progress(3, 3, "booked")
    return f"Booked {pick.flight} to {trip.destination}, {pick.seat} seat, for {trip.passengers}."


async def release(held: Held, _ctx: Context) -> None:
    """Give the seats back."""
    await airline(f"released {held.reference}")


async def airline(line: str) -> None:
    """Stands for a call of the airline's service."""
    async with await trio.open_file(os.environ["BOOKINGS"], "a") as file:
        await file.write(f"{line}\n")


book_flight = (
    tool("book_flight")
    .title("Book a flight")
    .description("Find flights to a city, ask which one to take, and book it.")
    .parameters(Trip)
    .requires("elicitation")
    .limits(timeout=600)
    .elicits(PICK)
    .handoff(before=search, client=pick_seat, after=book, on_cancel=release)
)

server.add_tool(book_flight)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
