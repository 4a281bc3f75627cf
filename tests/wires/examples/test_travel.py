"""The travel example, called in this process in both eras."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from connected import connected
from serving import ROOT
from users import User

from examples.travel import server
from trio_mcp import Client, accept, decline, dismiss
from trio_mcp.types import ElicitResult

AISLE = accept(flight="TP3", seat="aisle")
YES, NO = accept(value=True), accept(value=False)


@asynccontextmanager
async def client_of(mode: str, *answers: ElicitResult, **handlers) -> AsyncIterator[tuple[Client, User]]:
    traveller = User(*answers)
    async with connected(server, mode, on_elicit=traveller.answer, **handlers) as client:
        yield client, traveller


async def book(mode: str, answers: Sequence[ElicitResult], destination: str = "Lisbon") -> tuple[str, User]:
    async with client_of(mode, *answers, on_sample=lambda _params: "A hop.") as (client, traveller):
        result = await client.call_tool("book_flight", {"destination": destination})
        assert not result.is_error
        return result.text, traveller


async def test_a_flight_is_booked_after_two_questions(mode: str) -> None:
    text, traveller = await book(mode, [AISLE, YES])
    assert text == "Booked TP3 to Lisbon at 12:15, aisle seat, 89 euros. It will be sunny in Lisbon."
    which, sure = traveller.asked
    assert which.requested_schema.properties["flight"].enum == ["TP1", "TP3", "TP5"]
    assert sure.message == "A hop. It will be sunny in Lisbon. Book TP3 (aisle) for 89 euros?"


@pytest.mark.parametrize(
    "answers",
    [[decline()], [dismiss()], [AISLE, decline()], [AISLE, dismiss()], [AISLE, NO]],
    ids=lambda a: str(len(a)),
)
async def test_nothing_is_booked_after_a_no(mode: str, answers: list[ElicitResult]) -> None:
    text, traveller = await book(mode, answers)
    assert text == "Nothing was booked."
    assert len(traveller.asked) == len(answers)


async def test_a_flight_that_was_not_offered_is_asked_for_again(mode: str) -> None:
    text, traveller = await book(mode, [accept(flight="XX9", seat="aisle"), AISLE, YES])
    assert text.startswith("Booked TP3")
    assert "The last answer could not be used: flight" in traveller.asked[1].message


async def test_an_unknown_city_is_not_asked_about(mode: str) -> None:
    text, traveller = await book(mode, [], destination="Atlantis")
    assert text == "No flights to Atlantis were found."
    assert traveller.asked == []


async def test_a_client_without_a_model_can_book_and_hears_how_far_it_is(mode: str) -> None:
    progress: list[str | None] = []
    logged: list[object] = []
    async with client_of(mode, AISLE, YES, on_log=lambda entry: logged.append(entry.data)) as (client, traveller):
        result = await client.call_tool(
            "book_flight", {"destination": "Lisbon"}, on_progress=lambda p: progress.append(p.message)
        )
    assert result.text.startswith("Booked TP3")
    assert traveller.asked[1].message.startswith("It leaves at 12:15.")
    assert progress == ["3 flights found", "TP3 chosen", "booked"]
    assert logged == ["booked TP3"]


async def test_a_search_and_the_folders_have_structured_content(mode: str) -> None:
    async with client_of(mode, on_roots=lambda: [Path("/srv")]) as (client, _):
        found = (await client.call_tool("search_flights", {"destination": " oslo "})).structured_content
        folders = await client.call_tool("list_folders")
    assert isinstance(found, dict)
    assert found["result"][0] == {"number": "SK8", "departs": "09:30", "euros": 140}
    assert folders.structured_content == {"result": ["file:///srv"]}


async def test_hypercorn_serves_the_application(mode: str, hypercorn: str) -> None:
    traveller = User(AISLE, YES)
    async with connected(f"{hypercorn}/mcp", mode, on_elicit=traveller.answer) as client:
        result = await client.call_tool("book_flight", {"destination": "Lisbon"})
    assert result.text.startswith("Booked TP3")


@pytest.fixture(scope="module")
def hypercorn() -> Iterator[str]:
    """The URL at which hypercorn's own command serves the example."""
    command = [sys.executable, "-m", "hypercorn", "-k", "trio", "examples.travel:app", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_a_start_on_stdio_loads_no_http_library() -> None:
    show = f"""
import runpy, sys
from trio_mcp import Server
sys.path[:0] = [{str(ROOT)!r}]
Server.run = lambda self, *transport: print(*sys.modules)
runpy.run_path({str(ROOT / "examples" / "travel.py")!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, timeout=30, check=True)
    assert set(done.stdout.split()).isdisjoint({"hypercorn", "httpx2"})
