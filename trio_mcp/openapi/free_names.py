"""Names of which no two are equal: of definitions, arguments and tools."""

from __future__ import annotations

from collections.abc import Iterable


class FreeNames:
    """The names that are taken, and the next free one for each.

    Args:
        taken: those that are taken at first.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> str:
        """Return a name, or with a number the first one that is free, and take it."""
        # It goes on after the last number: thousands of parameters may want one name.
        number = self._numbers.get(name, 1)
        free = name if number == 1 else f"{name}_{number}"
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._numbers[name] = number
        self._taken.add(free)
        return free
