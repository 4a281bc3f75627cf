"""What became of each operation of a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .operations import Operation


@dataclass(frozen=True, slots=True)
class TakenOperation:
    """An operation that became a tool.

    Attributes:
        tool: the name of the tool.
        resource: the URI or the template of the resource that it became too, if it was asked for and is possible.
        notes: what differs from the document, or is not as it could be.
    """

    operation: Operation
    tool: str
    resource: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutOperation:
    """An operation that did not become a tool.

    Attributes:
        chosen: `include` does not select it; otherwise it cannot be called.
    """

    operation: Operation
    reason: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class OpenApiReport:
    """What became of the operations of a document. Its text has a line for each, and for each note."""

    taken: tuple[TakenOperation, ...]
    left_out: tuple[LeftOutOperation, ...]

    @property
    def impossible(self) -> tuple[LeftOutOperation, ...]:
        """The operations that `include` selects, and that cannot be called."""
        return tuple(each for each in self.left_out if not each.chosen)

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(each.tool for each in self.taken)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for taken in self.taken:
            resource = "" if taken.resource is None else f", resource {taken.resource}"
            yield f"{taken.operation.key}: tool {taken.tool}{resource}"
            yield from (f"    {note}" for note in taken.notes)
        for left_out in self.left_out:
            yield f"{left_out.operation.key}: left out: {left_out.reason}"
