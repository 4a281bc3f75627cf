"""The flight example: one hold for each call, and either a booking or a release, whatever happens in between."""

from __future__ import annotations

import secrets
import sys
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import IMPORTS, ROOT, HttpProcess, http_process
from users import User

from examples.book_flight import server
from trio_mcp import Client, Disconnected, accept, decline, dismiss
from trio_mcp.testing import replay_tool
from trio_mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult, ProgressNotificationParams

BOOK_FLIGHT = ROOT / "examples" / "book_flight.py"
LISBON = {"destination": "Lisbon"}
TP3, YES, NO = accept(flight="TP3", seat="aisle"), accept(value=True), accept(value=False)
BOOKED = "Booked TP3 to Lisbon, aisle seat, for 1."
MODES = {"legacy": "legacy", "modern": "2026-07-28"}
BOUND = 60.0

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class Bookings:
    """The file that the airline writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


@pytest.fixture
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bookings:
    path = tmp_path / "bookings"
    monkeypatch.setenv("BOOKINGS", str(path))
    return Bookings(path)


async def call(era: str, user: User, **arguments: object) -> CallToolResult:
    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=MODES[era], on_elicit=user.answer) as client:
            return await client.call_tool("book_flight", arguments)


# in both eras


@both_eras
async def test_a_flight_is_held_picked_and_booked(era: str, bookings: Bookings) -> None:
    user = User(TP3, YES)
    result = await call(era, user, destination="Lisbon", passengers=2)
    assert result.text == "Booked TP3 to Lisbon, aisle seat, for 2."
    assert [question.message for question in user.asked] == [
        "Which flight? TP1 at 07:40 for 129 euros, TP3 at 12:15 for 89 euros",
        "Book TP3 (aisle) for 89 euros?",
    ]
    assert bookings.lines == ["held Lisbon/2", "booked TP3 aisle Lisbon/2"]


@both_eras
@pytest.mark.parametrize(
    "answers",
    [[decline()], [dismiss()], [TP3, NO], [TP3, decline()], [accept(flight="XX9")]],
    ids=["declined", "dismissed", "not confirmed", "confirmation declined", "no such flight"],
)
async def test_without_a_confirmed_pick_the_seats_are_given_back(
    answers: list[ElicitResult], era: str, bookings: Bookings
) -> None:
    result = await call(era, User(*answers), **LISBON)
    assert (bool(result.is_error), result.text) == (False, "Nothing was booked.")
    assert bookings.lines == ["held Lisbon/1", "released Lisbon/1"]


@both_eras
async def test_a_city_without_flights_is_an_error_that_holds_nothing(era: str, bookings: Bookings) -> None:
    result = await call(era, User(), destination="Atlantis")
    assert (result.is_error, result.text) == (True, "No flights to Atlantis were found.")
    assert bookings.lines == []


@both_eras
async def test_it_reports_its_progress(era: str, bookings: Bookings) -> None:
    seen: list[tuple[float, str | None]] = []

    def on_progress(report: ProgressNotificationParams) -> None:
        seen.append((report.progress, report.message))

    async with Client.connect(server, mode=MODES[era], on_elicit=User(TP3, YES).answer) as client:
        await client.call_tool("book_flight", LISBON, on_progress=on_progress)
    assert seen == [(1, "searching"), (2, "2 flights found"), (3, "booked")]


@both_eras
async def test_a_call_that_is_cancelled_while_the_user_thinks_gives_the_seats_back(
    era: str, bookings: Bookings
) -> None:
    asked = trio.Event()

    async def think(_question: ElicitRequestFormParams) -> ElicitResult:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=MODES[era], on_elicit=think) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "book_flight", LISBON)
                await asked.wait()
                nursery.cancel_scope.cancel()
    assert bookings.lines == ["held Lisbon/1", "released Lisbon/1"]


async def test_every_leg_can_be_replayed(bookings: Bookings) -> None:
    report = await replay_tool(server, "book_flight", LISBON, on_elicit=User(TP3, YES).answer)
    report.check()
    assert report.result is not None
    assert report.result.text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]


# the process is killed in the middle


@asynccontextmanager
async def process_of(bookings: Bookings) -> AsyncIterator[HttpProcess]:
    keys = urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    async with http_process(BOOK_FLIGHT, BOOKINGS=str(bookings.path), TRIO_MCP_KEYS=keys) as process:
        yield process


async def test_a_server_that_is_killed_while_the_user_picks_holds_and_books_once(bookings: Bookings) -> None:
    async with process_of(bookings) as process:
        user = User(TP3, YES)

        async def restart(question: ElicitRequestFormParams) -> ElicitResult:
            assert bookings.lines == ["held Lisbon/1"]
            await process.restart()
            return user.answer(question)

        with trio.fail_after(BOUND):
            async with Client.connect(process.url, mode=MODES["modern"], on_elicit=restart) as client:
                assert (await client.call_tool("book_flight", LISBON)).text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]


async def test_a_legacy_call_ends_with_its_process_and_books_nothing(bookings: Bookings) -> None:
    async with process_of(bookings) as process:

        async def restart(_question: ElicitRequestFormParams) -> ElicitResult:
            await process.restart()
            return TP3

        with trio.fail_after(BOUND):
            async with Client.connect(process.url, mode=MODES["legacy"], on_elicit=restart) as client:
                with pytest.raises(Disconnected):
                    await client.call_tool("book_flight", LISBON)
    assert bookings.lines == ["held Lisbon/1"]


@both_eras
async def test_it_is_served_on_stdio(era: str, bookings: Bookings) -> None:
    environment = {**IMPORTS, "BOOKINGS": str(bookings.path)}
    command = [sys.executable, str(BOOK_FLIGHT)]
    with trio.fail_after(BOUND):
        async with Client.connect(command, mode=MODES[era], on_elicit=User(TP3, YES).answer, env=environment) as client:
            assert (await client.call_tool("book_flight", LISBON)).text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]
