"""From what the suite writes down to a verdict. The suite's own exit status is too kind to be one.

It takes a client that died for one that passed, a row that was skipped for one that was no row, and a scenario that fell over
for one that does not exist. Here every scenario that was asked for has to prove something, and a client has to end well.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["server", "client"]

STATUSES = ("SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO")
STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
EMPTY = ("wire-schema-valid",)
"""Checks that a server passes by saying nothing."""

SHOWN = 300
"""Characters of a check's message that are shown."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of a scenario. Several may share an id; their names tell them apart."""

    id: str
    name: str
    status: str
    message: str = ""

    @property
    def excuse(self) -> str:
        """What a list of excused rows calls this one."""
        return f"{self.status} {self.name}"

    def __str__(self) -> str:
        said = " ".join(self.message.split())[:SHOWN]
        return f"{self.excuse} ({self.id})" + (f": {said}" if said else "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario.

    Attributes:
        checks: None when the suite wrote none down.
        exit_status: how a client ended; None when it did not end by itself. A server is not asked.
        excused: rows that may be as they are, and have to be, such as "WARNING ServerSendsRetryField".
    """

    scenario: str
    role: Role
    checks: tuple[Check, ...] | None
    exit_status: int | None = 0
    excused: Collection[str] = ()

    @property
    def tally(self) -> Counter[str]:
        return Counter(check.status for check in self.checks or ())

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Why it did not pass, one line each."""
        return [*self._unproven(), *self._ended_badly()]

    def _unproven(self) -> Iterator[str]:
        if self.checks is None:
            yield "the suite wrote no checks down"
            return
        for check in self.checks:
            excused = check.status != "FAILURE" and check.excuse in self.excused
            if check.status not in ("SUCCESS", "INFO") and not excused:
                yield str(check)
        for excuse in sorted(set(self.excused) - {check.excuse for check in self.checks}):
            yield f"{excuse} is excused, and did not happen"
        if all(check.status == "INFO" or check.id in EMPTY for check in self.checks):
            yield "nothing was checked"

    def _ended_badly(self) -> Iterator[str]:
        if self.role == "client" and self.exit_status is None:
            yield "the client did not end by itself"
        elif self.role == "client" and self.exit_status != 0:
            yield f"the client exited with {self.exit_status}"


def read_outcomes(
    folder: Path,
    role: Role,
    wanted: Collection[str],
    *,
    exits: Mapping[str, int | None] = {},
    excused: Mapping[str, Collection[str]] = {},
) -> list[Outcome]:
    """The outcome of each scenario that was asked for, whether the suite ran it or not."""
    written: dict[str, tuple[Check, ...]] = {}
    for path in sorted(folder.rglob("checks.json")):
        scenario = scenario_of(path.parent, folder, role)
        written[scenario] = written.get(scenario, ()) + read_checks(path)
    exit_statuses = exits if role == "client" else dict.fromkeys(wanted, 0)
    return [Outcome(name, role, written.get(name), exit_statuses.get(name), excused.get(name, ())) for name in wanted]


def scenario_of(path: Path, folder: Path, role: Role) -> str:
    """`FOLDER/server-ping-2026-11-21T10-00-00-000Z` is the scenario `ping`; a slash in a name makes a folder more."""
    name = STAMP.sub("", path.relative_to(folder).as_posix())
    return name.removeprefix("server-") if role == "server" else name


def read_checks(path: Path) -> tuple[Check, ...]:
    """The rows in one file; a row that cannot be understood is a failed one."""
    try:
        rows = json.loads(path.read_text())
    except ValueError as error:
        return (Check("unreadable", path.name, "FAILURE", f"cannot be read: {error}"),)
    return tuple(read_check(row) for row in rows)


def read_check(row: Mapping[str, object]) -> Check:
    status, row_id = str(row.get("status")), str(row.get("id"))
    name = str(row.get("name") or row_id)
    if status not in STATUSES:
        return Check(row_id, name, "FAILURE", f"has the unknown status {status!r}")
    return Check(row_id, name, status, str(row.get("errorMessage") or row.get("description") or ""))
