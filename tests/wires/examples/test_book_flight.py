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
from users import User, Written

from examples.book_flight import server
from trio_mcp import Client, Disconnected, accept, decline, dismiss
from trio_mcp.testing import replay_tool
from trio_mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult, ProgressNotificationParams

BOOK_FLIGHT = ROOT / "examples" / "book_flight.py"
LISBON = {"destination": "Lisbon"}
TP3, YES, NO = accept(flight="TP3", seat="aisle"), accept(value=True), accept(value=False)
BOOKED = "Booked TP3 to Lisbon, aisle seat, for 1."
BOUND = 60.0


@pytest.fixture
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    path = tmp_path / "bookings"
    monkeypatch.setenv("BOOKINGS", str(path))
    return Written(path)


async def call(mode: str, user: User, **arguments: object) -> CallToolResult:
    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=mode, on_elicit=user.answer) as client:
            return await client.call_tool("book_flight", arguments)


# in both eras


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

    async with Client.connect(server, mode=mode, on_elicit=User(TP3, YES).answer) as client:
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

    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=mode, on_elicit=think) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "book_flight", LISBON)
                await asked.wait()
                nursery.cancel_scope.cancel()
    assert bookings.lines == ["held Lisbon/1", "released Lisbon/1"]


async def test_every_leg_can_be_replayed(bookings: Written) -> None:
    report = await replay_tool(server, "book_flight", LISBON, on_elicit=User(TP3, YES).answer)
    report.check()
    assert report.result is not None
    assert report.result.text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]


# the process is killed in the middle


@asynccontextmanager
async def process_of(bookings: Written) -> AsyncIterator[HttpProcess]:
    keys = urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    async with http_process(BOOK_FLIGHT, BOOKINGS=str(bookings.path), TRIO_MCP_KEYS=keys) as process:
        yield process


async def test_a_server_that_is_killed_while_the_user_picks_holds_and_books_once(bookings: Written) -> None:
    async with process_of(bookings) as process:
        user = User(TP3, YES)

        async def restart(question: ElicitRequestFormParams) -> ElicitResult:
            assert bookings.lines == ["held Lisbon/1"]
            await process.restart()
            return user.answer(question)

        with trio.fail_after(BOUND):
            async with Client.connect(process.url, mode="modern", on_elicit=restart) as client:
                assert (await client.call_tool("book_flight", LISBON)).text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]


async def test_a_legacy_call_ends_with_its_process_and_books_nothing(bookings: Written) -> None:
    async with process_of(bookings) as process:

        async def restart(_question: ElicitRequestFormParams) -> ElicitResult:
            await process.restart()
            return TP3

        with trio.fail_after(BOUND):
            async with Client.connect(process.url, mode="legacy", on_elicit=restart) as client:
                with pytest.raises(Disconnected):
                    await client.call_tool("book_flight", LISBON)
    assert bookings.lines == ["held Lisbon/1"]


async def test_it_is_served_on_stdio(mode: str, bookings: Written) -> None:
    environment = {**IMPORTS, "BOOKINGS": str(bookings.path)}
    command = [sys.executable, str(BOOK_FLIGHT)]
    with trio.fail_after(BOUND):
        async with Client.connect(command, mode=mode, on_elicit=User(TP3, YES).answer, env=environment) as client:
            assert (await client.call_tool("book_flight", LISBON)).text == BOOKED
    assert bookings.lines == ["held Lisbon/1", "booked TP3 aisle Lisbon/1"]
