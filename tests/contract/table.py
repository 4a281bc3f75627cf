"""The rules and the transports as Markdown tables, with the reasons why some rules do not apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from trio_mcp.testing.contract import LEGACY, MODERN, Maker, Rule, all_rules

GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "A": "What a server offers",
        "B": "Streaming: questions, progress, changes",
        "D": "Structured concurrency",
        "E": "The life of a connection",
        "F": "What only some wires have",
        "G": "What only 2026-07-28 has",
        "peers": "Peers that fail",
        "calls": "Calls that fail",
    }
)
"""The groups of the contract, in order."""

HELD = "✓"
NOT = "no"


class Notes:
    """Numbered reasons why rules do not apply."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, why: str) -> int:
        return self._numbers.setdefault(why, len(self._numbers) + 1)

    def lines(self) -> list[str]:
        return [f"{number}. {why}" for why, number in self._numbers.items()]


def rules_table(makers: Sequence[Maker]) -> str:
    """Return a table for each group of rules, with a column for each transport, and the reasons below them.

    A cell is a tick if the transport is tested against the rule in every revision that both have, else `no` and the number of
    the reason.
    """
    notes = Notes()
    lines: list[str] = []
    for group, title in GROUPS.items():
        members = [each for each in all_rules() if each.group == group]
        if members:
            lines += [f"### {group}: {title}" if len(group) == 1 else f"### {title}", ""]
            lines += [*head(makers), *(row(each, makers, notes) for each in members), ""]
    return "\n".join([*lines, "### Why not", "", *notes.lines(), ""])


def head(makers: Sequence[Maker]) -> list[str]:
    names = ["rule", "revisions", *(maker.name for maker in makers)]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def row(rule: Rule, makers: Sequence[Maker], notes: Notes) -> str:
    cells = [rule.name.replace("_", " "), revisions_of(rule, notes), *(cell(rule, maker, notes) for maker in makers)]
    return f"| {' | '.join(cells)} |"


def revisions_of(rule: Rule, notes: Notes) -> str:
    """Return the revisions that a rule applies to, with the number of the reason why not the others."""
    about = sorted(rule.revisions)
    if set(about) == {*LEGACY, *MODERN}:
        return "all"
    return f"{span(about)} ({notes.number(rule.why)})"


def span(about: Sequence[str]) -> str:
    """Return these revisions, oldest first, as a short text."""
    known = sorted((*LEGACY, *MODERN))
    first = known.index(about[0])
    if len(about) == 1:
        return about[0]
    if list(about) == known[first : first + len(about)]:
        return f"{about[0]} to {about[-1]}"
    return ", ".join(about)


def cell(rule: Rule, maker: Maker, notes: Notes) -> str:
    both = [revision for revision in maker.revisions if revision in rule.revisions]
    if not both:
        return f"{NOT} ({notes.number(f'{maker.name} does not carry that revision')})"
    whys = distinct(why for revision in both if (why := rule.impossible(maker, revision)) is not None)
    return f"{NOT} ({', '.join(str(notes.number(why)) for why in whys)})" if whys else HELD


def distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
