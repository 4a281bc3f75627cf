"""What one logical call has learned so far, in order.

The journal holds the results of steps and the answers to questions, each under the lane-qualified name it was asked by. It is
what makes a step run once, and what a replay reads when the actor itself is gone: the body runs again, and everything the
journal knows returns at once. A question is recorded with a digest of its text and schema; if the body asks something else
under the same name, the runs have diverged and the old answer must not be given to the new question.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an entry records."""

    STEP = "step"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing learned: `value` is the step's result or the answer, `digest` identifies the question (or is empty)."""

    kind: Kind
    name: str
    value: object
    digest: str = ""


class Divergence(Exception):
    """The body asked something other than what the journal recorded under that name."""


class Journal:
    """An ordered record with look-up by kind and name; one per actor.

    `entries` given at the start are what an earlier run had learned: until the first look-up that finds nothing, the body is
    *replaying*.
    """

    __slots__ = ("_entries", "_unread")

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self._entries: dict[tuple[Kind, str], Entry] = {(entry.kind, entry.name): entry for entry in entries}
        self._unread: set[tuple[Kind, str]] = set(self._entries)

    @property
    def replaying(self) -> bool:
        """The body has not come to anything new yet."""
        return bool(self._unread)

    def record(self, entry: Entry) -> None:
        """Add what was just learned.

        Raises:
            ValueError: the name is taken; a name identifies one step or question of a call.
        """
        key = (entry.kind, entry.name)
        if key in self._entries:
            raise ValueError(f"the {entry.kind.value} {entry.name!r} was recorded already: use a name once per call")
        self._entries[key] = entry

    def recall(self, kind: Kind, name: str, digest: str = "") -> Entry | None:
        """What is known under this name, or None when nothing is.

        Raises:
            Divergence: something is known, but it answers another question. It is forgotten.
        """
        key = (kind, name)
        entry = self._entries.get(key)
        if entry is None:
            self._unread.clear()
            return None
        if entry.digest != digest:
            del self._entries[key]
            self._unread.clear()
            raise Divergence(f"the {kind.value} {name!r} is not the one that was recorded")
        self._unread.discard(key)
        return entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded, oldest first."""
        return tuple(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Journal {[f'{e.kind.value} {e.name}' for e in self._entries.values()]}>"
