"""The table at the end of a run, and the same one for docs/internals/conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from driving import Ran

BEGIN = "<!-- results: written by tests/conformance/run.py --write -->"
END = "<!-- results end -->"

SHOWN = 5
"""Problems of one scenario that are shown; the results folder has all of them."""


def printed(ran: Ran) -> Iterator[str]:
    """A line for a selection, and lines for what did not pass."""
    tally = tally_of(ran)
    verdict = "FAIL" if ran.failed else "pass"
    checks = (
        f"{tally['SUCCESS']} passed, {tally['FAILURE']} failed, {tally['WARNING']} warned, {tally['SKIPPED']} skipped"
    )
    yield f"{ran.selection.label:<44} {score(ran):>6}   {checks:<50} {ran.seconds:>5.1f} s   {verdict}"
    for outcome in ran.failed:
        yield f"    {outcome.scenario}"
        yield from (f"        {problem}" for problem in outcome.problems[:SHOWN])
        if (more := len(outcome.problems) - SHOWN) > 0:
            yield f"        ... and {more} more"


def markdown(results: Sequence[Ran]) -> str:
    """The table of a whole run. It has what is the same in every run: no times, no numbers of checks."""
    rows = ["| side | suite | selection | scenarios passed | rows excused |", "|---|---|---|---|---|"]
    for ran in results:
        selection, excused = ran.selection, sum(len(outcome.excused) for outcome in ran.outcomes)
        cells = (selection.role, selection.version, selection.title, score(ran), excused or "")
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def written_into(page: Path, table: str) -> str:
    """The page with the table in its place.

    Raises:
        ValueError: it has no place for one.
    """
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for the results: two lines, {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def score(ran: Ran) -> str:
    return f"{len(ran.outcomes) - len(ran.failed)}/{len(ran.outcomes)}"


def tally_of(ran: Ran) -> Counter[str]:
    return sum((outcome.tally for outcome in ran.outcomes), Counter[str]())
