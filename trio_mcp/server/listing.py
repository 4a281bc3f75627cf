"""One kind of thing that a server offers, in the order in which it was added."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Place(NamedTuple, Generic[T]):
    """An item and its number: later ones have greater numbers, and no number comes twice."""

    number: int
    item: T


class Listing(Generic[T]):
    """Items by key. It may be changed in any thread while it is read: each change makes a new table, readers keep theirs.

    Args:
        kind: what an item is called in errors.
        on_change: called after each change.
    """

    __slots__ = ("_kind", "_lock", "_next", "_on_change", "_places", "ever")

    def __init__(self, kind: str, on_change: Callable[[], None]) -> None:
        self._kind = kind
        self._on_change = on_change
        self._lock = threading.Lock()
        self._places: dict[str, Place[T]] = {}
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
            self._places = {**self._places, key: Place(self._next, item)}
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
            removed = self._places[key]
            self._places = {other: place for other, place in self._places.items() if other != key}
        self._on_change()
        return removed.item

    def get(self, key: str) -> T | None:
        place = self._places.get(key)
        return None if place is None else place.item

    def after(self, number: int) -> list[Place[T]]:
        """The items behind the one with this number, in order; all of them for 0."""
        return [place for place in self._places.values() if place.number > number]

    @property
    def table(self) -> object:
        """The same object for as long as nothing changes."""
        return self._places

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[T]:
        return iter([place.item for place in self._places.values()])

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<Listing of {len(self)} {self._kind}s>"
