"""What is run of the suite: the selections, as data, and the scenarios that each of them holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from counting import Role
from suites import ALPHA, STABLE, SetupError, Suite

Names: TypeAlias = Callable[[Suite, Role], list[str]]

HANDSHAKE = "2025-11-25"
MODERN = "2026-07-28"
LATER = ("pending", "added-after-release")
"""Why a scenario is not scored although it checks the specification itself."""

STABLE_PENDING = ("json-schema-2020-12", "server-sse-polling")
"""What the stable build has and leaves out of its suite `active`."""

EXCUSED: Mapping[tuple[str, str], Sequence[str]] = {
    # It answers a call that has not asked yet, and sends no state. Here an answer reaches only the question that was asked.
    (f"server {ALPHA} required @{MODERN}", "input-required-result-ignore-extra-params"): (
        "WARNING IgnoreUnexpectedParams",
    ),
    # It waits for the handshake of the other era as well.
    (f"client {ALPHA} required @{MODERN}", "http-standard-headers"): (
        "SKIPPED ClientMcpMethodHeader_initialize",
        "SKIPPED ClientMcpMethodHeader_notifications_initialized",
    ),
    # It looks for the notifications where an older draft had them, and reports that: it always skips.
    (f"server {ALPHA} tasks @{MODERN}", "tasks-status-notifications"): ("SKIPPED TasksStatusNotificationsScenario",),
}
"""By selection and scenario: rows that cannot pass, because the suite asks for what the specification does not."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Scenarios of one build that are run and counted together.

    Attributes:
        expected: how many scenarios it holds; the suite listing another number is an error.
        names: how to learn which they are.
        whole: the flags that run all of them (servers only). Selections with the same flags share a run.
        single: the flags that, beside `--scenario`, run one of them.
    """

    role: Role
    version: str
    title: str
    expected: int
    names: Names
    single: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.role} {self.version} {self.title}"


def scenarios_of(selection: Selection, suite: Suite) -> list[str]:
    """The names of a selection's scenarios.

    Raises:
        SetupError: they are not as many as expected.
    """
    names = selection.names(suite, selection.role)
    if len(names) != selection.expected:
        raise SetupError(f"{selection.label} holds {len(names)} scenarios, not {selection.expected}: {' '.join(names)}")
    return names


def listed(suite: Suite, role: Role, *flags: str) -> list[str]:
    """Every scenario of a role, filtered by the suite."""
    return [line.split()[1] for line in suite.listed(f"--{role}", *flags) if line.startswith("  - ")]


def all_of(revision: str) -> Names:
    return lambda suite, role: listed(suite, role, "--spec-version", revision)


def required(revision: str) -> Names:
    """What a revision requires: the part of the list before what is never scored."""
    return lambda suite, role: required_in(suite.listed("--requirements", revision), role)


def unscored(revision: str, *reasons: str) -> Names:
    """What is run with a revision's requirements and does not count, for these reasons."""
    return lambda suite, role: unscored_in(suite.listed("--requirements", revision), role, reasons)


def required_in(lines: Sequence[str], role: Role) -> list[str]:
    return [
        line.split()[1] for heading, line in items(lines, r"\S.*") if heading.lower().startswith(f"{role} scenarios")
    ]


def unscored_in(lines: Sequence[str], role: Role, reasons: Sequence[str]) -> list[str]:
    found = [line for heading, line in items(lines, r"  \S+ \(\d+\):") if heading.split()[0] in reasons]
    return [line.split()[1] for line in found if line.endswith(f" [{role}]")]


def items(lines: Sequence[str], headings: str) -> Iterator[tuple[str, str]]:
    """The items of a list, each with the heading before it."""
    heading = ""
    for line in lines:
        if re.fullmatch(headings, line):
            heading = line
        elif heading and line.lstrip().startswith("- "):
            yield heading, line


def active(suite: Suite, role: Role) -> list[str]:
    return [name for name in listed(suite, role) if name not in STABLE_PENDING]


def forced(revision: str) -> tuple[str, ...]:
    """The flags that run one scenario over the wire of a revision."""
    return ("--spec-version", revision, "--force")


def stable_server(title: str, expected: int, names: Names) -> Selection:
    return Selection("server", STABLE, title, expected, names, whole=("--suite", title))


def older_server(revision: str, expected: int) -> Selection:
    whole = ("--suite", "all", "--spec-version", revision)
    return Selection("server", ALPHA, f"all @{revision}", expected, all_of(revision), forced(revision), whole)


def modern_server(revision: str, title: str, expected: int, names: Names) -> Selection:
    whole = ("--requirements", revision)
    return Selection("server", ALPHA, f"{title} @{revision}", expected, names, forced(revision), whole)


def client(revision: str, title: str, expected: int, names: Names) -> Selection:
    return Selection("client", ALPHA, f"{title} @{revision}", expected, names, forced(revision))


SELECTIONS = (
    stable_server("active", 30, active),
    stable_server("all", 32, listed),
    older_server("2025-03-26", 1),
    older_server("2025-06-18", 27),
    modern_server(HANDSHAKE, "required", 30, required(HANDSHAKE)),
    modern_server(HANDSHAKE, "unscored", 3, unscored(HANDSHAKE, *LATER)),
    modern_server(MODERN, "required", 37, required(MODERN)),
    modern_server(MODERN, "unscored", 3, unscored(MODERN, *LATER)),
    modern_server(MODERN, "tasks", 10, unscored(MODERN, "extension")),
    Selection("client", STABLE, "core", 18, all_of(HANDSHAKE)),
    client("2025-06-18", "all", 5, all_of("2025-06-18")),
    client(HANDSHAKE, "required", 18, required(HANDSHAKE)),
    client(HANDSHAKE, "unscored", 1, unscored(HANDSHAKE, *LATER)),
    client(HANDSHAKE, "extensions", 6, unscored(HANDSHAKE, "extension")),
    client(MODERN, "required", 32, required(MODERN)),
    client(MODERN, "unscored", 1, unscored(MODERN, *LATER)),
    client(MODERN, "extensions", 6, unscored(MODERN, "extension")),
)
