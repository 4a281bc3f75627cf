"""`trio-mcp demo`: a transcript of what really passed."""

from __future__ import annotations

import pytest
from command import trio_mcp


@pytest.fixture(scope="module")
def eras() -> tuple[str, str]:
    """The output about the legacy client, and about the modern one."""
    done = trio_mcp("demo")
    assert (done.returncode, done.stderr) == (0, "")
    legacy, modern = done.stdout.split("A legacy client, 2025-11-25")[1].split("A modern client")
    return legacy, modern


def test_both_users_are_asked_the_same_questions_and_get_the_same_result(eras: tuple[str, str]) -> None:
    assert all("The tool's result: Booked TP3 to Lisbon, aisle seat." in shown for shown in eras)
    legacy, modern = ([line for line in shown.splitlines() if " | " in line] for shown in eras)
    assert legacy == modern
    assert len(legacy) == 5


def test_an_old_client_gets_requests_of_the_server(eras: tuple[str, str]) -> None:
    legacy = eras[0]
    assert "client -> request 1: initialize" in legacy
    assert "server -> request 1: elicitation/create '2 flights to Lisbon. Which one?' flight, seat" in legacy
    assert 'client -> answer to 1: accept {"flight": "TP3", "seat": "aisle"}' in legacy
    assert "server -> request 2: sampling/createMessage" in legacy


def test_a_new_client_gets_rounds_and_no_request(eras: tuple[str, str]) -> None:
    modern = eras[1]
    assert "client -> request 1: server/discover" in modern
    assert modern.count("input_required, requestState and ") == 3
    assert modern.count("tools/call book_flight again, with requestState and ") == 3
    assert "server -> request" not in modern
