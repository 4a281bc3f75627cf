"""The ledger: a file to which every effect of every server process appends a line, in one write."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Effect(NamedTuple):
    """One effect of an operation.

    Attributes:
        at: on the monotonic clock of the machine, in seconds.
        process: the id of the process that had it.
    """

    operation: str
    name: str
    at: float
    process: int


class Ledger:
    """Counts effects.

    Args:
        path: of the file, which is made with the first effect.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, operation: str, name: str) -> None:
        """Have an effect."""
        line = f"{operation} {name} {time.monotonic():.3f} {os.getpid()}\n"
        # One write at the end of the file, so that no line is torn, and a kill leaves all of it or nothing.
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def effects(self) -> list[Effect]:
        """Return all effects, in their order."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [Effect(operation, name, float(at), int(pid)) for operation, name, at, pid in map(str.split, lines)]

    def of(self, operation: str) -> list[Effect]:
        """Return the effects of an operation."""
        return [effect for effect in self.effects() if effect.operation == operation]


def counted(effects: Iterable[Effect]) -> Counter[str]:
    """Return how often each effect was had, by its name."""
    return Counter(effect.name for effect in effects)
