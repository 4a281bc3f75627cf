"""How the runner counts, with results that are made up: every way to look well without being well has to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from counting import Outcome, Role, read_outcomes

STAMP = "2026-11-21T10-00-00-000Z"
PASSED = {"id": "ping-response", "status": "SUCCESS"}
EMPTY = {"id": "wire-schema-valid", "status": "SUCCESS"}


def write(folder: Path, scenario: str, *rows: object, stamp: str = f"-{STAMP}") -> None:
    place = folder / f"{scenario}{stamp}"
    place.mkdir(parents=True)
    (place / "checks.json").write_text(json.dumps(rows))


def row(status: str, id: str = "some-rule", **more: object) -> dict[str, object]:
    return {"id": id, "status": status, **more}


def outcome(
    folder: Path,
    *rows: object,
    role: Role = "server",
    exits: Mapping[str, int | None] = {},
    excused: Sequence[str] = (),
) -> Outcome:
    write(folder, "server-ping" if role == "server" else "ping", *rows)
    (found,) = read_outcomes(folder, role, ["ping"], exits=exits, excused={"ping": excused})
    return found


def test_a_scenario_whose_checks_succeed_passes(tmp_path: Path) -> None:
    passed = outcome(tmp_path, PASSED, EMPTY, row("INFO"))
    assert passed.passed
    assert passed.tally == {"SUCCESS": 2, "INFO": 1}
    assert outcome(tmp_path / "client", PASSED, role="client", exits={"ping": 0}).passed


@pytest.mark.parametrize(
    ("rows", "excused", "problem"),
    [
        *[
            (
                [PASSED, row(status, errorMessage="it was  not\nso")],
                [],
                f"{status} some-rule (some-rule): it was not so",
            )
            for status in ("FAILURE", "SKIPPED", "WARNING")
        ],
        ([PASSED, row("PERHAPS")], [], "FAILURE some-rule (some-rule): has the unknown status 'PERHAPS'"),
        *[(rows, [], "nothing was checked") for rows in ([], [EMPTY], [EMPTY, row("INFO")])],
        # Of several that are alike, only the row that is named is excused, and it has to be there.
        ([PASSED, row("WARNING", "known"), row("WARNING", "other")], ["WARNING known"], "WARNING other (other)"),
        ([PASSED, row("SUCCESS", "known")], ["WARNING known"], "WARNING known is excused, and did not happen"),
        (
            [PASSED, row("SKIPPED", name="OfInitialize"), row("SKIPPED", name="OfPing")],
            ["SKIPPED OfInitialize"],
            "SKIPPED OfPing (some-rule)",
        ),
        ([PASSED, row("FAILURE", "known")], ["FAILURE known"], "FAILURE known (known)"),
    ],
)
def test_a_scenario_fails_with_its_reason(tmp_path: Path, rows: list[object], excused: list[str], problem: str) -> None:
    assert outcome(tmp_path, *rows, excused=excused).problems == [problem]


@pytest.mark.parametrize(
    ("exits", "problem"),
    [
        ({"ping": 3}, "the client exited with 3"),
        ({"ping": None}, "the client did not end by itself"),
        ({}, "the client did not end by itself"),
    ],
)
def test_a_client_that_ends_badly_fails_although_all_its_checks_succeed(
    tmp_path: Path, exits: dict[str, int | None], problem: str
) -> None:
    assert outcome(tmp_path, PASSED, role="client", exits=exits).problems == [problem]


def test_a_scenario_that_the_suite_never_ran_fails(tmp_path: Path) -> None:
    write(tmp_path, "server-ping", PASSED)
    for folder in (tmp_path, tmp_path / "nothing"):
        (missing,) = read_outcomes(folder, "server", ["tools-list"])
        assert missing.problems == ["the suite wrote no checks down"]


def test_results_that_are_cut_off_are_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "server-ping", PASSED)
    (file,) = tmp_path.rglob("checks.json")
    file.write_text(file.read_text()[:-5])
    (found,) = read_outcomes(tmp_path, "server", ["ping"])
    assert [problem[:48] for problem in found.problems] == ["FAILURE checks.json (unreadable): cannot be read"]


def test_two_results_of_one_scenario_are_counted_together(tmp_path: Path) -> None:
    write(tmp_path, "server-ping-2026-11-21T10-00-09-000Z", row("FAILURE"), stamp="")
    assert outcome(tmp_path, PASSED).tally == {"SUCCESS": 1, "FAILURE": 1}


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
    (found,) = read_outcomes(tmp_path, role, [scenario], exits={scenario: 0})
    assert found.passed


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
