"""Which scenarios a selection holds, read from lists like those that the suite prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from selections import SELECTIONS, Selection, required_in, scenarios_of, unscored_in
from suites import SetupError, Suite

LIST = """Required for 2025-11-25 (3 scenarios, frozen; run at the 2025-11-25 wire):

Server scenarios (test against a server):
  - ping
  - tools-list

Client scenarios (test against a client):
  - initialize

Run and reported, but never scored:
  extension (1):
    - tasks-lifecycle [server]
  pending (2):
    - server-sse-polling [server]
    - json-schema-2020-12-preservation [client]
""".splitlines()


def test_what_is_required_of_a_side_is_what_its_part_of_the_list_holds() -> None:
    assert required_in(LIST, "server") == ["ping", "tools-list"]
    assert required_in(LIST, "client") == ["initialize"]


def test_what_is_not_scored_is_chosen_by_its_reason() -> None:
    assert unscored_in(LIST, "server", ["pending"]) == ["server-sse-polling"]
    assert unscored_in(LIST, "server", ["extension", "pending"]) == ["tasks-lifecycle", "server-sse-polling"]
    assert unscored_in(LIST, "client", ["pending"]) == ["json-schema-2020-12-preservation"]


def test_a_list_of_another_length_than_expected_stops_the_run() -> None:
    selection = Selection("server", "1", "required", 30, lambda suite, role: ["ping"])
    with pytest.raises(SetupError, match=r"required.*30.*ping"):
        scenarios_of(selection, Suite("1", Path("node"), Path("index.js")))


def test_every_selection_has_a_unique_label() -> None:
    assert len({selection.label for selection in SELECTIONS}) == len(SELECTIONS)
