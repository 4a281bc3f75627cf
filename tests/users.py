"""A user for tests of our client, who fills in forms, and a file to which a server writes what it does."""

from __future__ import annotations

from pathlib import Path

from trio_mcp import accept
from trio_mcp.types import ElicitRequestFormParams, ElicitResult


class User:
    """Gives these answers, one after the other, and then says yes; keeps what was asked."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.asked: list[ElicitRequestFormParams] = []
        self._left = list(answers)

    def answer(self, question: ElicitRequestFormParams) -> ElicitResult:
        self.asked.append(question)
        return self._left.pop(0) if self._left else accept(value=True)


class Written:
    """A file to which a server adds a line for each thing that it does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []
