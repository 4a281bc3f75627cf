"""The page: its part that a run writes, and whether a run is worse than what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .table import Ratios, Row, page_table, read_ratios

BEGIN = "<!-- bench: begin. `python -m bench --update` writes what follows. -->"
END = "<!-- bench: end -->"

LIMIT = 1.10
"""A ratio that exceeds that of the page by more than this factor is a regression."""


@dataclass(frozen=True)
class Regression:
    """A ratio that grew.

    Attributes:
        column: Of the table: what we are compared with.
        before: The ratio on the page.
        now: The ratio in this run.
    """

    workload: str
    column: str
    before: float
    now: float

    def __str__(self) -> str:
        return (
            f"{self.workload}: {self.now:.3g} of {self.column}, and {self.before:.3g} on the page "
            f"({self.now / self.before - 1:+.0%})"
        )


def parts(text: str) -> tuple[str, str, str]:
    """Return what is before, between and after the markers. Raises `ValueError` if they are not there."""
    before, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has to have the lines {BEGIN} and {END}")
    return before, inside, after


def with_section(text: str, rows: Sequence[Row], how: str, picture: str) -> str:
    """Return the page with another table; `how` is the paragraph above it."""
    before, _, after = parts(text)
    alternative = "Cost of each library as a multiple of the floor, by workload"
    inside = f"\n\n{how}\n\n{page_table(rows)}\n\n![{alternative}]({picture})\n\n"
    return f"{before}{BEGIN}{inside}{END}{after}"


def ratios_on(text: str) -> Ratios:
    """Return the ratios of the page."""
    return read_ratios(parts(text)[1])


def regressions(on_page: Ratios, now: Ratios) -> list[Regression]:
    """Return the ratios of this run that are worse than those of the page by more than the limit."""
    return [
        Regression(workload, column, before, now[workload][column])
        for workload, columns in on_page.items()
        for column, before in columns.items()
        if now.get(workload, {}).get(column, 0.0) > before * LIMIT
    ]


def not_on_page(on_page: Ratios, now: Ratios) -> list[str]:
    """Return what this run has and the page does not: workloads, and ratios of workloads."""
    missing = [workload for workload in now if workload not in on_page]
    return missing + [
        f"{workload} of {column}"
        for workload, columns in now.items()
        for column in columns
        if workload in on_page and column not in on_page[workload]
    ]
