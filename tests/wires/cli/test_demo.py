"""`trio-mcp demo`: a transcript of what really passed."""

from __future__ import annotations

import re

import pytest
from command import trio_mcp


@pytest.fixture(scope="module")
def parts() -> list[str]:
    """The parts of the output: the tool, the legacy client, the modern one, and the tree."""
    done = trio_mcp("demo")
    assert (done.returncode, done.stderr) == (0, "")
    *parts, last = re.split(r"\n={10,}\n", done.stdout)[1:]
    return [*parts, last]


@pytest.fixture(scope="module")
def eras(parts: list[str]) -> tuple[str, str]:
    """The output about the legacy client, and about the modern one."""
    return parts[1], parts[2]


def test_it_has_four_parts_and_no_control_characters_in_a_pipe(parts: list[str]) -> None:
    assert len(parts) == 4
    assert "async def book_flight" in parts[0]
    assert "\x1b" not in "".join(parts)


def test_both_users_are_asked_the_same_questions_and_get_the_same_result(eras: tuple[str, str]) -> None:
    assert all("'Booked TP3 to Lisbon, aisle seat.'" in shown for shown in eras)
    legacy, modern = ([line for line in shown.splitlines() if " answers " in line] for shown in eras)
    assert legacy == modern
    assert len(legacy) == 3


def test_the_tree_shows_who_waits_for_what(parts: list[str]) -> None:
    tree = parts[3]
    assert "travel 1.0: 3 calls, 1 parked" in tree
    assert tree.count("waits for the user (elicit)") == 1
    assert tree.count("branch 1 advertise: waits for the model (sample)") == 2


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
