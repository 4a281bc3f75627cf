"""The story of an operation: what its client sent and got, for a person who has to find out what went wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

LONGEST = 700
"""Characters of one line; states and results are long."""


@dataclass(slots=True)
class Story:
    """Lines with the time at which each was added."""

    name: str
    lines: list[tuple[float, str]] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.lines.append((time.monotonic(), text))

    def shortened(self) -> list[tuple[float, str]]:
        """Return its lines; of repeated lines, the first ones and the last."""
        seen = Counter[str]()
        often = Counter(text for _, text in self.lines)
        kept: list[tuple[float, str]] = []
        for at, text in self.lines:
            seen[text] += 1
            if seen[text] <= 2 or seen[text] == often[text]:
                kept.append((at, text if seen[text] <= 2 else f"{text} (time {often[text]})"))
        return kept


def merged(stories: Iterable[Story], begin: float) -> str:
    """Return several stories as one, in the order of time.

    Args:
        begin: the time to count from.
    """
    lines = sorted((at, story.name, text) for story in stories for at, text in story.shortened())
    return "\n".join(f"{at - begin:8.3f} {name:<14} {text[:LONGEST]}" for at, name, text in lines)
