"""Why listed items cannot be offered, no name or a name that is taken, and what a client could not read in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from ..base.logs import PeerLogger, RepeatedRecords
from ..protocol.codec.models import Dropped
from ..types import Model

M = TypeVar("M", bound=Model)

MAX_NAMED: Final = 20
"""Items of one list that are named in the log; the others are counted."""
MAX_SHOWN: Final = 128
"""Characters of a name that the log shows."""

NAMELESS: Final = "its name, or its URI, is empty"
REPEATED: Final = "the list has another one of that name before it"


def by_key(items: Iterable[M], key_of: Callable[[M], str], left_out: dict[str, str]) -> dict[str, M]:
    """Return the items of a list by their keys, in order; of two with one key the first.

    Args:
        key_of: returns the name or the URI of an item.
        left_out: gets the reasons for those that are left out, by their keys.
    """
    found: dict[str, M] = {}
    for item in items:
        key = key_of(item)
        if not key:
            left_out[key] = NAMELESS
            continue
        if key in found:
            left_out[key] = REPEATED
        else:
            found[key] = item
    return found


class LeftOut:
    """Logs the items that are left out of the lists of one server, each once until it is offered or the reason changes.

    Attributes:
        whose: the server, in the log.
    """

    __slots__ = ("_known", "_logger", "whose")

    def __init__(self, logger: PeerLogger, whose: str) -> None:
        self._logger = logger
        self.whose = whose
        self._known: dict[str, tuple[dict[str, str], int]] = {}
        """By the kind of the items: the reasons of those that were named, and how many there were."""

    def note(self, kind: str, reasons: Mapping[str, str]) -> None:
        """Log the items that are left out of a list now, and were not at the previous call.

        Args:
            kind: what an item is called.
            reasons: by the keys of the items.
        """
        named, before = self._known.get(kind, ({}, 0))
        for key, why in [*reasons.items()][:MAX_NAMED]:
            if named.get(key) != why:
                self._logger.warning("the %s %r of %s is left out: %s", kind, key[:MAX_SHOWN], self.whose, why)
        if len(reasons) > MAX_NAMED and len(reasons) != before:
            self._logger.warning("%d %ss of %s are left out", len(reasons), kind, self.whose)
        self._known[kind] = (dict([*reasons.items()][:MAX_NAMED]), len(reasons))


MAX_RECORDS: Final = 3
"""Results with dropped members that are logged in a minute."""
MAX_DROPPED: Final = 1000
"""Members of results that are remembered as dropped."""


class DroppedMembers:
    """What a client has left out of the results of its server, since it could not be read: each member is logged once.

    Attributes:
        members: all of them, the one that was left out first at the beginning.
    """

    __slots__ = ("_records", "members")

    def __init__(self, logger: PeerLogger) -> None:
        self._records = RepeatedRecords(logger, lines=MAX_RECORDS)
        self.members: dict[Dropped, None] = {}

    def add(self, dropped: Iterable[Dropped]) -> None:
        """Remember and log items that were dropped just now."""
        new = [each for each in dropped if each not in self.members][: MAX_DROPPED - len(self.members)]
        self.members.update(dict.fromkeys(new))
        if new:
            names = ", ".join(f"the {each.kind} {each.name[:MAX_SHOWN]!r}" for each in new[:MAX_NAMED])
            self._records.log("left out, since it cannot be read: %s: %s (%d in all)", names, new[0].why, len(new))
