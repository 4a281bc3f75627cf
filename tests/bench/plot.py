"""The picture: each library as a multiple of the floor, by workload.

The same figures give the same bytes: the ids have a fixed salt, and no date is written. Text and lines have the colour of the
text around, which a style sheet in the picture sets for a light and a dark background.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from .table import Ratios

INK = "#010203"
"""Stands for the colour of text until the picture is written."""

STYLE = """\
 <style>
  svg { color: #1f2328; }
  @media (prefers-color-scheme: dark) { svg { color: #e6edf3; } }
 </style>
"""

SERIES = {"hypercorn": ("#8a8f98", "|"), "mcp": ("#d19a1f", "D"), "ts": ("#3b8ed0", "s"), "trio_mcp": ("#d1495b", "o")}
"""The colour, which can be seen on light and on dark, and the mark of each column; ours is drawn over the others."""

SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "trio_mcp",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
}
INCHES_OF_ROW = 0.34
INCHES_OF_FRAME = 1.1
WIDTH = 9.0


def multiples(ratios: Ratios) -> dict[str, dict[str, float]]:
    """Return what each column takes as a multiple of the floor, for the workloads that have a floor."""
    found = {}
    for workload, columns in ratios.items():
        if floor := columns.get("floor"):
            others = {column: floor / ratio for column, ratio in columns.items() if column != "floor" and ratio}
            found[workload] = {"trio_mcp": floor, **others}
    return found


def svg(ratios: Ratios) -> str:
    """Return the picture."""
    of_floor = multiples(ratios)
    with rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, INCHES_OF_FRAME + INCHES_OF_ROW * len(of_floor)), layout="constrained")
        figure.patch.set_visible(False)
        draw(figure.add_subplot(), of_floor)
        said = StringIO()
        figure.savefig(said, format="svg", metadata={"Date": None, "Creator": None})
    head, found, rest = said.getvalue().replace(INK, "currentColor").partition(" <defs>")
    return head + STYLE + found + rest


def draw(axes: Axes, of_floor: Mapping[str, Mapping[str, float]]) -> None:
    """Draw a line for each workload, with a mark for each column."""
    axes.patch.set_visible(False)
    axes.set_xscale("log")
    axes.axvline(1.0, color=INK, linewidth=1.5, label="floor")
    names = list(of_floor)
    for column, (colour, mark) in SERIES.items():
        places = [place for place, name in enumerate(names) if column in of_floor[name]]
        values = [of_floor[names[place]][column] for place in places]
        axes.plot(
            values, places, mark, color=colour, label=column, markersize=9 if mark == "|" else 7, markeredgewidth=2
        )
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("cost as a multiple of the floor (logarithmic; less is better)")
    axes.grid(axis="x", which="both", alpha=0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(SERIES) + 1, frameon=False)
