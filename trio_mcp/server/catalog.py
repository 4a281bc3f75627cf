"""The items of one kind that a server offers, in the order in which they were added.

Items are kept twice: in a dict for look-ups and changes, and in a tuple for readers, which is made from the dict when the first
reader after a change asks for it.

    add("a"), add("b")      dict {a, b}       no tuple: nobody has read
    snapshot()              dict {a, b}       tuple (1 a, 2 b)
    add("c")                dict {a, b, c}    the reader goes on with (1 a, 2 b)
    snapshot()              dict {a, b, c}    tuple (1 a, 2 b, 3 c)
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class NumberedItem(NamedTuple, Generic[T]):
    """An item and its number: later ones have greater numbers, and no number comes twice."""

    number: int
    item: T


class Catalog(Generic[T]):
    """Items by key. It may be changed in any thread while it is read.

    Args:
        kind: what an item is called in errors.
        on_change: called after each change.
    """

    __slots__ = ("_kind", "_lock", "_next", "_on_change", "_places", "_snapshot", "ever")

    def __init__(self, kind: str, on_change: Callable[[], None]) -> None:
        self._kind = kind
        self._on_change = on_change
        self._lock = threading.Lock()
        self._places: dict[str, NumberedItem[T]] = {}
        self._snapshot: tuple[NumberedItem[T], ...] | None = ()
        self._next = 1
        self.ever = False
        """Something was added once: this kind of thing is offered, be the list empty now."""

    def add(self, key: str, item: T) -> None:
        """Add an item at the end.

        Raises:
            ValueError: the key is taken.
        """
        with self._lock:
            if key in self._places:
                raise ValueError(f"there is a {self._kind} named {key!r} already")
            self._places[key] = NumberedItem(self._next, item)
            self._snapshot = None
            self._next += 1
            self.ever = True
        self._on_change()

    def remove(self, key: str) -> T:
        """Take an item out and return it.

        Raises:
            LookupError: there is none of that key.
        """
        with self._lock:
            if key not in self._places:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            removed = self._places.pop(key)
            self._snapshot = None
        self._on_change()
        return removed.item

    def get(self, key: str) -> T | None:
        place = self._places.get(key)
        return None if place is None else place.item

    def snapshot(self) -> tuple[NumberedItem[T], ...]:
        """Return all items in order; the same object for as long as nothing changes."""
        snapshot = self._snapshot
        if snapshot is None:
            # The copy is made under the lock, since a dict that grows in another thread cannot be iterated over; and only
            # here, not in `add`, where the registration of n items would copy n²/2 of them.
            with self._lock:
                snapshot = self._snapshot = tuple(self._places.values())
        return snapshot

    def after(self, number: int) -> Sequence[NumberedItem[T]]:
        """The items behind the one with this number, in order; all of them for 0."""
        places = self.snapshot()
        return places[bisect_right(places, number, key=attrgetter("number")) :]

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[T]:
        return iter([place.item for place in self.snapshot()])

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<Listing of {len(self)} {self._kind}s>"
