"""A travel agent that asks before it books: one file that shows what a tool can do.

    python examples/travel.py                      serves it on stdio
    python examples/travel.py http 8000            serves it at http://127.0.0.1:8000/mcp
    hypercorn -k trio examples.travel:app          serves it as an ASGI application

Run `trio-mcp call examples/travel.py book_flight destination=Lisbon` to answer its questions yourself.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import trio
from pydantic import BaseModel, create_model

from trio_mcp import Context, Server
from trio_mcp.errors import CapabilityError

server = Server("travel", version="1.0", instructions="Finds flights and books them; it asks before it books.")


@dataclass(frozen=True)
class Flight:
    number: str
    departs: str
    euros: int


class Seat(BaseModel):
    flight: str
    seat: Literal["window", "aisle"] = "window"


TIMETABLE = {
    "lisbon": [Flight("TP1", "07:40", 129), Flight("TP3", "12:15", 89), Flight("TP5", "19:05", 104)],
    "oslo": [Flight("SK8", "09:30", 140), Flight("DY4", "16:20", 75)],
}


@server.tool
def search_flights(destination: str) -> list[Flight]:
    """List today's flights to a city."""
    return TIMETABLE.get(destination.strip().lower(), [])


@server.tool
async def book_flight(destination: str, ctx: Context) -> str:
    """Book a flight, after asking which one and whether the price is right."""
    flights = {flight.number: flight for flight in await ctx.step("search", search_flights, destination)}
    if not flights:
        return f"No flights to {destination} were found."
    await ctx.progress(1, 3, f"{len(flights)} flights found")
    choice = await ctx.elicit(f"{len(flights)} flights to {destination}. Which one?", seat_on(flights))
    if choice.action != "accept":
        return "Nothing was booked."
    flight, seat = flights[choice.content.flight], choice.content.seat
    await ctx.progress(2, 3, f"{flight.number} chosen")
    summary, weather = await ctx.branch_all(
        lambda branch: summarize(flight, branch),
        lambda _branch: forecast(destination),
    )
    sure = await ctx.elicit(f"{summary} {weather} Book {flight.number} ({seat}) for {flight.euros} euros?", bool)
    if sure.action != "accept" or not sure.content:
        return "Nothing was booked."
    await ctx.log("info", f"booked {flight.number}")
    await ctx.progress(3, 3, "booked")
    return f"Booked {flight.number} to {destination} at {flight.departs}, {seat} seat, {flight.euros} euros. {weather}"


@server.tool
async def list_folders(ctx: Context) -> list[str]:
    """List the folders the client works in."""
    return [root.uri for root in await ctx.roots()]


def seat_on(flights: dict[str, Flight]) -> type[Seat]:
    """The form, with the flights that were found as its choices: types that a running tool makes are fine."""
    return create_model("Seat", __base__=Seat, flight=(Literal[tuple(flights)], ...))  # type: ignore[arg-type]


async def summarize(flight: Flight, ctx: Context) -> str:
    """One line from the client's model; a plain one if it has none."""
    try:
        return (await ctx.sample(f"In one line: a flight that leaves at {flight.departs}.", max_tokens=50)).text
    except CapabilityError:
        return f"It leaves at {flight.departs}."


async def forecast(city: str) -> str:
    await trio.sleep(0.05)  # a real one would ask a weather service
    return f"It will be sunny in {city}."


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
else:  # imported, as hypercorn does; a start on stdio stays quick, for it does not wait for the HTTP libraries
    from trio_mcp_transports.http import asgi_app

    app = asgi_app(server)
