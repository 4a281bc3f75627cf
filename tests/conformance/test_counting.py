"""How the runner counts, with results that are made up: every way to look well without being well has to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from counting import Outcome, Role, read_outcomes

STAMP = "2026-11-21T10-00-00-000Z"
PASSED = {"id": "ping-response", "status": "SUCCESS"}
EMPTY = {"id": "wire-schema-valid", "status": "SUCCESS"}


def write(folder: Path, scenario: str, *rows: object) -> None:
    place = folder / f"{scenario}-{STAMP}"
    place.mkdir(parents=True)
    (place / "checks.json").write_text(json.dumps(rows))


def row(status: str, id: str = "some-rule", **more: object) -> dict[str, object]:
    return {"id": id, "status": status, **more}


def server(tmp_path: Path, *rows: object, **more: object) -> Outcome:
    write(tmp_path, "server-ping", *rows)
    (outcome,) = read_outcomes(tmp_path, "server", ["ping"], **more)
    return outcome


def client(tmp_path: Path, *rows: object, exit_status: int | None = 0) -> Outcome:
    write(tmp_path, "initialize", *rows)
    (outcome,) = read_outcomes(tmp_path, "client", ["initialize"], exits={"initialize": exit_status})
    return outcome


def test_a_scenario_whose_checks_succeed_passes(tmp_path: Path) -> None:
    outcome = server(tmp_path, PASSED, EMPTY, row("INFO"))
    assert outcome.passed
    assert outcome.tally == {"SUCCESS": 2, "INFO": 1}


@pytest.mark.parametrize("status", ["FAILURE", "SKIPPED", "WARNING"])
def test_one_check_that_does_not_succeed_fails_its_scenario(tmp_path: Path, status: str) -> None:
    outcome = server(tmp_path, PASSED, row(status, errorMessage="it was  not\nso"))
    assert outcome.problems == [f"{status} some-rule (some-rule): it was not so"]


def test_a_status_that_nobody_knows_is_a_failure(tmp_path: Path) -> None:
    assert server(tmp_path, PASSED, row("PERHAPS")).problems == [
        "FAILURE some-rule (some-rule): has the unknown status 'PERHAPS'"
    ]


def test_a_scenario_that_the_suite_never_ran_fails(tmp_path: Path) -> None:
    write(tmp_path, "server-ping", PASSED)
    ping, other = read_outcomes(tmp_path, "server", ["ping", "tools-list"])
    assert ping.passed
    assert other.problems == ["the suite wrote no checks down"]


def test_a_results_folder_that_does_not_exist_fails_every_scenario(tmp_path: Path) -> None:
    (outcome,) = read_outcomes(tmp_path / "nothing", "server", ["ping"])
    assert not outcome.passed


def test_results_that_are_cut_off_are_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "server-ping", PASSED)
    (file,) = tmp_path.rglob("checks.json")
    file.write_text(file.read_text()[:-5])
    (outcome,) = read_outcomes(tmp_path, "server", ["ping"])
    assert [problem[:48] for problem in outcome.problems] == ["FAILURE checks.json (unreadable): cannot be read"]


@pytest.mark.parametrize("rows", [[], [EMPTY], [EMPTY, row("INFO")]])
def test_a_scenario_that_proves_nothing_fails(tmp_path: Path, rows: list[object]) -> None:
    assert server(tmp_path, *rows).problems == ["nothing was checked"]


def test_a_warning_that_is_excused_is_let_pass_and_another_is_not(tmp_path: Path) -> None:
    rows = [PASSED, row("WARNING", "known"), row("WARNING", "other")]
    outcome = server(tmp_path, *rows, excused={"ping": ["WARNING known"]})
    assert outcome.problems == ["WARNING other (other)"]


def test_an_excuse_that_nobody_needs_has_to_leave_the_list(tmp_path: Path) -> None:
    outcome = server(tmp_path, PASSED, row("SUCCESS", "known"), excused={"ping": ["WARNING known"]})
    assert outcome.problems == ["WARNING known is excused, and did not happen"]


def test_of_rows_with_one_id_only_the_one_that_is_named_is_excused(tmp_path: Path) -> None:
    rows = [PASSED, row("SKIPPED", name="OfInitialize"), row("SKIPPED", name="OfPing")]
    outcome = server(tmp_path, *rows, excused={"ping": ["SKIPPED OfInitialize"]})
    assert outcome.problems == ["SKIPPED OfPing (some-rule)"]


def test_a_failure_cannot_be_excused(tmp_path: Path) -> None:
    assert not server(tmp_path, PASSED, row("FAILURE", "known"), excused={"ping": ["FAILURE known"]}).passed


def test_a_client_that_exits_with_another_status_than_0_fails_although_all_its_checks_succeed(tmp_path: Path) -> None:
    assert client(tmp_path, PASSED).passed
    assert client(tmp_path / "again", PASSED, exit_status=3).problems == ["the client exited with 3"]


def test_a_client_that_was_killed_fails_although_the_suite_says_that_it_exited_with_0(tmp_path: Path) -> None:
    assert client(tmp_path, PASSED, exit_status=None).problems == ["the client did not end by itself"]


def test_a_client_whose_exit_is_not_known_fails(tmp_path: Path) -> None:
    write(tmp_path, "initialize", PASSED)
    (outcome,) = read_outcomes(tmp_path, "client", ["initialize"])
    assert not outcome.passed


def test_two_results_of_one_scenario_are_counted_together(tmp_path: Path) -> None:
    write(tmp_path, "server-ping", PASSED)
    later = tmp_path / "server-ping-2026-11-21T10-00-09-000Z"
    later.mkdir()
    (later / "checks.json").write_text(json.dumps([row("FAILURE")]))
    (outcome,) = read_outcomes(tmp_path, "server", ["ping"])
    assert outcome.tally == {"SUCCESS": 1, "FAILURE": 1}


@pytest.mark.parametrize(
    ("role", "folder", "scenario"),
    [
        ("server", "server-server-initialize", "server-initialize"),
        ("client", "auth/metadata-var1", "auth/metadata-var1"),
        ("client", "json-schema-2020-12-preservation", "json-schema-2020-12-preservation"),
    ],
)
def test_a_scenario_is_found_by_its_own_name(tmp_path: Path, role: Role, folder: str, scenario: str) -> None:
    write(tmp_path, folder, PASSED)
    (outcome,) = read_outcomes(tmp_path, role, [scenario], exits={scenario: 0})
    assert outcome.passed


@pytest.mark.parametrize(
    ("script", "said"), [("raise SystemExit(7)", "7"), ("pass", "0"), ("import os; os.abort()", "134")]
)
def test_how_a_client_ended_is_written_down(tmp_path: Path, script: str, said: str) -> None:
    here = tmp_path / "a folder"  # with a blank in its name
    here.mkdir()
    (here / "client.py").write_text(script)
    status = here / "status"
    environment = {"PYTHON": sys.executable, "HERE": str(here), "EXIT_STATUS": str(status)}
    done = subprocess.run(
        ["sh", Path(__file__).parent / "client_exit.sh", "http://127.0.0.1:1/mcp"],
        env={**os.environ, **{f"CONFORMANCE_{name}": value for name, value in environment.items()}},
        capture_output=True,
        timeout=30,
    )
    assert (status.read_text().strip(), str(done.returncode)) == (said, said)
