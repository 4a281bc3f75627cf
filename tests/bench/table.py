"""The table: our figure beside the floor's, and as a multiple of what each of the others has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .results import Figures
from .targets import FLOORS, HYPERCORN, OURS
from .workload import Goal, Unit, Workload
from .workloads import WORKLOADS

NOTHING = "-"
LARGE = 999.5
"""From here on a figure is shown as a whole number."""

OF = "of "

Ratios = Mapping[str, Mapping[str, float]]
"""For each workload, by its name, and each column: our figure divided by that of the column."""


def column_targets(workload: Workload) -> dict[str, str]:
    """Return the target that each column shows for this workload."""
    return {"floor": FLOORS[workload.wire], "hypercorn": HYPERCORN, "mcp": "mcp", "ts": "ts"}


COLUMNS = ("floor", "hypercorn", "mcp", "ts")


@dataclass(frozen=True)
class Row:
    """One workload.

    Attributes:
        ours: Our figure.
        ratios: Our figure divided by that of each column.
    """

    workload: Workload
    ours: float
    floor: float | None
    ratios: Mapping[str, float]


def rows_of(figures: Figures) -> list[Row]:
    """Return a row for each workload for which we have a figure, in the order of the workloads."""
    rows = []
    for workload in WORKLOADS.values():
        of_targets = figures.get(workload.name, {})
        if OURS in of_targets:
            ours = of_targets[OURS]
            columns = {column: of_targets.get(target) for column, target in column_targets(workload).items()}
            ratios = {column: ours / figure for column, figure in columns.items() if figure}
            rows.append(Row(workload, ours, columns["floor"], ratios))
    return rows


def ratios_of(rows: Iterable[Row]) -> Ratios:
    return {row.workload.name: row.ratios for row in rows}


def shown(figure: float | None, unit: Unit | None = None) -> str:
    """Return a figure with three significant digits."""
    if figure is None:
        return NOTHING
    digits = f"{figure:.3g}" if figure < LARGE else f"{figure:,.0f}"
    return f"{digits} {unit.value}" if unit else digits


def read(cell: str) -> float:
    """Return the figure that `shown` wrote, without a unit."""
    return float(cell.replace(",", ""))


def reached(goal: Goal, row: Row) -> bool | None:
    """Return whether a goal is met; None if the target that it names has no figure."""
    figure = row.ours if goal.column == OURS else row.ratios.get(goal.column)
    # As it is shown: a reader cannot see why a goal was missed by less.
    return None if figure is None else read(shown(figure)) <= goal.most


def goals_cell(row: Row) -> str:
    """Return what is said of the goals of a row."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    said = []
    for goal in row.workload.goals:
        what = row.workload.unit.value if goal.column == OURS else OF + goal.column
        said.append(f"≤ {goal.most:g} {what}: {words[reached(goal, row)]}")
    return "; ".join(said) or NOTHING


def figures_cells(row: Row) -> dict[str, str]:
    """Return the cells of a row that hold figures, by their headings."""
    unit = row.workload.unit
    cells = {OURS: shown(row.ours, unit), "floor": shown(row.floor, unit)}
    return cells | {OF + column: shown(row.ratios.get(column)) for column in COLUMNS}


def page_table(rows: Sequence[Row]) -> str:
    """Return the table of the page."""
    return markdown(
        [
            {
                "workload": row.workload.name,
                "what it is": row.workload.what,
                **figures_cells(row),
                "goals": goals_cell(row),
            }
            for row in rows
        ]
    )


def terminal_table(rows: Sequence[Row]) -> str:
    """Return the table of one run."""
    return markdown([{"workload": row.workload.name, **figures_cells(row)} for row in rows])


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return a table in Markdown whose columns stand one below the other in a terminal too."""
    if not rows:
        return f"(no figure of {OURS}, so nothing to compare)"
    headings = list(rows[0])
    widths = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in headings}
    lines = [{heading: heading for heading in headings}, *rows]
    texts = [
        "| " + " | ".join(aligned(line[heading], widths[heading], heading) for heading in headings) + " |"
        for line in lines
    ]
    rule = (
        "|" + "|".join("-" * (widths[heading] + 1) + ("-" if is_text(heading) else ":") for heading in headings) + "|"
    )
    return "\n".join([texts[0], rule, *texts[1:]])


def is_text(heading: str) -> bool:
    return heading in ("workload", "what it is", "goals")


def aligned(cell: str, width: int, heading: str) -> str:
    return cell.ljust(width) if is_text(heading) else cell.rjust(width)


def read_ratios(table: str) -> Ratios:
    """Return the ratios of a table that `page_table` or `terminal_table` wrote.

    Raises `ValueError` if the text is no such table.
    """
    lines = [cells(line) for line in table.splitlines() if line.startswith("|")]
    if len(lines) < 2 or "workload" not in lines[0]:
        raise ValueError("there is no table of workloads")
    found = {}
    for line in lines[2:]:
        named = dict(zip(lines[0], line, strict=True))
        of = {heading.removeprefix(OF): cell for heading, cell in named.items() if heading.startswith(OF)}
        found[named["workload"]] = {column: read(cell) for column, cell in of.items() if cell != NOTHING}
    return found


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
