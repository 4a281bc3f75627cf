"""The part of docs/limits.md that is made of the table of shared limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trio_mcp.base.shared_limits import SHARED_LIMITS, SharedLimit

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"
BEGIN = "<!-- made by `python -m tests.base.shared_limits`: begin -->"
END = "<!-- end -->"

MEBI = 1 << 20
NONE = "\N{EN DASH}"


def section() -> str:
    """Return the table as Markdown."""
    return "\n".join(["", "", *table(), "", ""])


def table() -> Iterator[str]:
    yield "| what | limit | of one caller, over half | of one caller, always | what happens | where to set it |"
    yield "|---|---|---|---|---|---|"
    for limit in SHARED_LIMITS:
        what = f"{limit.what}; a caller is {limit.identity}" if limit.identity else limit.what
        cap = NONE if limit.per_caller in (None, limit.limit) else number(limit.per_caller)
        share = number(limit.limit // 4) if limit.limit else "a quarter"
        cells = [what, "none" if limit.optional else number(limit.limit), share, cap, limit.refusal, options(limit)]
        yield f"| {' | '.join(cells)} |"


def number(value: int | None) -> str:
    if value is None:
        return NONE
    return f"{value // MEBI} Mi" if value and value % MEBI == 0 else f"{value:,}"


def options(limit: SharedLimit) -> str:
    """Return where both limits are set."""
    named = [part for option in (limit.option, limit.cap) if option for part in option.split(", and ")]
    if not named:
        return NONE
    first, *more = (part.rsplit(" ", 1) for part in named)
    return ", ".join(" ".join([*words[:-1], f"`{words[-1]}`"]) for words in (first, *more))


def with_section(page: str) -> str:
    """Return the page with this part brought up to date; the rest is left as it is.

    Raises:
        ValueError: the page has no such part.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no part between {BEGIN} and {END}")
    return before + BEGIN + section() + END + after
