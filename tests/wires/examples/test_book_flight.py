"""The flight example: one hold for each call, and either a booking or a release, whatever happens in between."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from connected import connected
from users import User, Written

from examples.book_flight import server
from trio_mcp import accept, decline, dismiss
from trio_mcp.testing import replay_tool
from trio_mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult, ProgressNotificationParams

LISBON = {"destination": "Lisbon"}
TP3, YES, NO = accept(flight="TP3", seat="aisle"), accept(value=True), accept(value=False)


@pytest.fixture
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    path = tmp_path / "bookings"
    monkeypatch.setenv("BOOKINGS", str(path))
    return Written(path)


async def call(mode: str, user: User, **arguments: object) -> CallToolResult:
    async with connected(server, mode, on_elicit=user.answer) as client:
        return await client.call_tool("book_flight", arguments)


async def test_a_flight_is_held_picked_and_booked(mode: str, bookings: Written) -> None:
    user = User(TP3, YES)
    result = await call(mode, user, destination="Lisbon", passengers=2)
    assert result.text == "Booked TP3 to Lisbon, aisle seat, for 2."
    assert [question.message for question in user.asked] == [
        "Which flight? TP1 at 07:40 for 129 euros, TP3 at 12:15 for 89 euros",
        "Book TP3 (aisle) for 89 euros?",
    ]
    assert bookings.lines == ["held Lisbon/2", "booked TP3 aisle Lisbon/2"]


@pytest.mark.parametrize(
    "answers",
    [[decline()], [dismiss()], [TP3, NO], [TP3, decline()], [accept(flight="XX9")]],
    ids=["declined", "dismissed", "not confirmed", "confirmation declined", "no such flight"],
)
async def test_without_a_confirmed_pick_the_seats_are_given_back(
    answers: list[ElicitResult], mode: str, bookings: Written
) -> None:
    result = await call(mode, User(*answers), **LISBON)
    assert (bool(result.is_error), result.text) == (False, "Nothing was booked.")
    assert bookings.lines == ["held Lisbon/1", "released Lisbon/1"]


async def test_a_city_without_flights_is_an_error_that_holds_nothing(mode: str, bookings: Written) -> None:
    result = await call(mode, User(), destination="Atlantis")
    assert (result.is_error, result.text) == (True, "No flights to Atlantis were found.")
    assert bookings.lines == []


async def test_it_reports_its_progress(mode: str, bookings: Written) -> None:
    seen: list[tuple[float, str | None]] = []

    def on_progress(report: ProgressNotificationParams) -> None:
        seen.append((report.progress, report.message))

    async with connected(server, mode, on_elicit=User(TP3, YES).answer) as client:
        await client.call_tool("book_flight", LISBON, on_progress=on_progress)
    assert seen == [(1, "searching"), (2, "2 flights found"), (3, "booked")]


async def test_a_call_that_is_cancelled_while_the_user_thinks_gives_the_seats_back(
    mode: str, bookings: Written
) -> None:
    asked = trio.Event()

    async def think(_question: ElicitRequestFormParams) -> ElicitResult:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    async with connected(server, mode, on_elicit=think) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "book_flight", LISBON)
        await asked.wait()
        nursery.cancel_scope.cancel()
    assert bookings.lines == ["held Lisbon/1", "released Lisbon/1"]


async def test_every_leg_can_be_replayed(bookings: Written) -> None:
    report = await replay_tool(server, "book_flight", LISBON, on_elicit=User(TP3, YES).answer)
    report.check()
    assert report.result is not None
    assert report.result.text == "Booked TP3 to Lisbon, aisle seat, for 1."
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]
