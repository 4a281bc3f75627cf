"""The journal of one logical call: results of steps, answers to questions and numbers of questions, in order.

Each entry has a name that is qualified by its lane. The journal makes a step run once, and is what a replay reads when the
actor is gone: the body runs again, and recorded steps and questions return immediately. A question is recorded with a digest of
its text and schema. If the body asks something else under the same name, the runs have diverged, and the old answer must not be
given to the new question.
"""

# Example: the body runs `step("price")`, asks "seat", and the process is restarted while the call is parked. The second run gets
# the entries of the first from the request state.
#
#   second run                          recall finds                   replaying before it
#   step("price")                       the result: it does not run    True
#   ask "seat", the same text           the answer                     True
#   ask "meal"                          nothing: it is sent            False from here on
#
# Had "seat" another text in the second run, because another version of the tool runs by then: Divergence.

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ..base.named_tuples import NamedTuple


class EntryKind(Enum):
    """What a journal entry records.

    INTENT, FAILED, ASKED and WITHDRAWN are in the log of a call only, which a store keeps: a step that is about to run, one that
    has failed, a question that is about to be sent, and one that is no longer asked. TIMED_OUT is in the journal of a task only,
    which a call has become: a question that was not answered in time.
    """

    STEP = "step"
    ANSWER = "answer"
    REJECTED = "rejected"
    NUMBER = "number"
    INTENT = "intent"
    FAILED = "failed"
    ASKED = "asked"
    WITHDRAWN = "withdrawn"
    TIMED_OUT = "timed_out"


class JournalEntry(NamedTuple):
    """One record: `value` is a step's result, an answer or its error, `digest` identifies the question (empty for a step)."""

    kind: EntryKind
    name: str
    value: object
    digest: str = ""


class Divergence(Exception):
    """The body asked a different question than the journal recorded under the same name."""


class Journal:
    """An ordered record with look-up by kind and name; one per actor.

    Args:
        entries: the records of an earlier run. The body is *replaying* until it has read all of them, or looks up a name that has
            no entry.
    """

    __slots__ = ("_entries", "_unread")

    def __init__(self, entries: tuple[JournalEntry, ...] = ()) -> None:
        self._entries: dict[tuple[EntryKind, str], JournalEntry] = {
            (entry.kind, entry.name): entry for entry in entries
        }
        self._unread: set[tuple[EntryKind, str]] = set(self._entries)

    @property
    def replaying(self) -> bool:
        """Whether the body still repeats what an earlier run recorded."""
        return bool(self._unread)

    def record(self, entry: JournalEntry) -> None:
        """Add an entry.

        Raises:
            ValueError: the name is taken; a name identifies one step or question of a call.
        """
        key = (entry.kind, entry.name)
        if key in self._entries:
            raise ValueError(f"the {entry.kind.value} {entry.name!r} was recorded already: use a name once per call")
        self._entries[key] = entry

    def recall(self, kind: EntryKind, name: str, digest: str = "") -> JournalEntry | None:
        """Return the entry with this name, or None.

        Raises:
            Divergence: there is an entry, but it answers another question. It is removed.
        """
        key = (kind, name)
        entry = self._entries.get(key)
        # The body has left the path of the earlier run: entries that it has not read are not a replay any more.
        if entry is None:
            self._unread.clear()
            return None
        if entry.digest != digest:
            del self._entries[key]
            self._unread.clear()
            raise Divergence(f"the {kind.value} {name!r} is not the one that was recorded")
        self._unread.discard(key)
        return entry

    def find(self, kind: EntryKind, name: str) -> JournalEntry | None:
        """Return the entry with this name, or None, which does not mean that the body has left the path of the earlier run.

        For a step that asks: if it did not end in the earlier run, only the entries of its questions are there.
        """
        self._unread.discard((kind, name))
        return self._entries.get((kind, name))

    def forget_steps(self, is_stale: Callable[[str], bool]) -> None:
        """Remove the results of the steps with these names: the replay took another path."""
        for key in [key for key in self._entries if key[0] is EntryKind.STEP and is_stale(key[1])]:
            del self._entries[key]
            self._unread.discard(key)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries.values())

    def __repr__(self) -> str:
        return f"<Journal {[f'{e.kind.value} {e.name}' for e in self._entries.values()]}>"
