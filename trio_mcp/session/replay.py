"""What a `requestState` remembers of a call, for the day the parked actor is not there.

The retry may reach another process, or come after a restart. Then the body can run again from its top, if its author allows
it: what the call had learned (answers, step results) returns at once and only what is new is asked. That is a *replay*. A
call that must not be replayed is lost with its actor, and its caller is told so.

A state written by this very process never needs a replay: if its actor is not here, the call is over for longer than its
outcomes are kept, and running it again would do twice what was to be done once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from ..errors import InvalidRequestState
from ..runtime import EntryKind, Journal, JournalEntry
from ..types import JsonObject, JsonValue


class Resume(Enum):
    """What becomes of a call whose parked actor is gone."""

    REPLAY = "replay"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was open when the state was sealed."""

    method: str
    digest: str


@dataclass(frozen=True, slots=True)
class Recollection:
    """The part of a state that a replay reads.

    Attributes:
        node: the process that sealed it.
        asked: its open questions, by key.
        entries: what the call had learned; empty for a call that is not to be replayed.
        reference: where the entries are kept when they are too large to travel.
        dropped: how many bytes the entries had, when they were too large and there was nowhere to keep them.
    """

    node: str
    asked: Mapping[str, Asked] = field(default_factory=dict[str, Asked])
    entries: tuple[JournalEntry, ...] = ()
    reference: str | None = None
    dropped: int = 0

    def wire(self) -> JsonObject:
        """As JSON, to be sealed."""
        said: JsonObject = {"node": self.node}
        if self.asked:
            said["asked"] = {key: [asked.method, asked.digest] for key, asked in self.asked.items()}
        if self.entries:
            said["entries"] = entries_to_json(self.entries)
        if self.reference is not None:
            said["reference"] = self.reference
        if self.dropped:
            said["dropped"] = self.dropped
        return said

    @classmethod
    def read(cls, said: JsonValue) -> Recollection:
        """The reverse of `wire`, for what this server's own key has opened.

        Raises:
            InvalidRequestState: it was written by a version of this server that writes it differently.
        """
        try:
            members = cast("dict[str, object]", said)
            asked = cast("dict[str, list[str]]", members.get("asked", {}))
            return cls(
                node=cast("str", members["node"]),
                asked={key: Asked(method, digest) for key, (method, digest) in asked.items()},
                entries=entries_from_json(cast("JsonValue", members.get("entries", []))),
                reference=cast("str | None", members.get("reference")),
                dropped=cast("int", members.get("dropped", 0)),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidRequestState("the journal inside is not one of this version") from None

    def journal(self, answers: Mapping[str, JsonObject]) -> Journal:
        """What the replayed body finds: the old entries, and the answers that came with the retry."""
        new = (JournalEntry(EntryKind.ANSWER, key, answer, self.asked[key].digest) for key, answer in answers.items())
        return Journal((*self.entries, *new))


def entries_to_json(entries: tuple[JournalEntry, ...]) -> JsonValue:
    return [[entry.kind.value, entry.name, entry.digest, cast("JsonValue", entry.value)] for entry in entries]


def entries_from_json(said: JsonValue) -> tuple[JournalEntry, ...]:
    """Raises `TypeError` or `ValueError` for anything else than `entries_to_json` makes."""
    listed = cast("list[tuple[str, str, str, JsonValue]]", said)
    return tuple(JournalEntry(EntryKind(kind), name, value, digest) for kind, name, digest, value in listed)
