"""The items of one kind that a server offers, in the order in which they were added.

Items are stored in a dict for look-ups and changes; readers get a tuple, which the first reader after a change makes from it.

    add("a"), add("b")      dict {a, b}       no tuple yet
    snapshot()              dict {a, b}       tuple (1 a, 2 b)
    add("c")                dict {a, b, c}    a reader that iterates continues with (1 a, 2 b)
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
    """An item and its number. Later items have greater numbers, and a number is never reused."""

    number: int
    item: T


class Catalog(Generic[T]):
    """Items by key. It may be changed in any thread while it is read.

    Args:
        kind: what an item is called in errors.
        on_change: called after each change.

    Attributes:
        by_key: the items, for look-ups. Only this class changes it.
        was_ever_filled: whether an item was added once, even if the catalog is empty now.
    """

    __slots__ = ("_kind", "_lock", "_next", "_numbers", "_on_change", "_snapshot", "by_key", "was_ever_filled")

    def __init__(self, kind: str, on_change: Callable[[], None]) -> None:
        self._kind = kind
        self._on_change = on_change
        self._lock = threading.Lock()
        self.by_key: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._snapshot: tuple[NumberedItem[T], ...] | None = ()
        self._next = 1
        self.was_ever_filled = False

    def add(self, key: str, item: T) -> None:
        """Add an item at the end.

        Raises:
            ValueError: the key is taken.
        """
        with self._lock:
            if key in self.by_key:
                raise ValueError(f"there is a {self._kind} named {key!r} already")
            self.by_key[key] = item
            self._numbers[key] = self._next
            self._snapshot = None
            self._next += 1
            self.was_ever_filled = True
        # Outside the lock: a subscriber may read the catalog.
        self._on_change()

    def remove(self, key: str) -> None:
        """Remove an item.

        Raises:
            LookupError: there is no item of that key.
        """
        with self._lock:
            if key not in self.by_key:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            del self.by_key[key], self._numbers[key]
            self._snapshot = None
        self._on_change()

    def snapshot(self) -> tuple[NumberedItem[T], ...]:
        """Return all items in order; the same object until the next change."""
        snapshot = self._snapshot
        if snapshot is None:
            # Under the lock, because a dict that another thread changes cannot be iterated over. Here and not in `add`,
            # because the registration of n items would copy n²/2 of them.
            with self._lock:
                pairs = zip(self._numbers.values(), self.by_key.values(), strict=True)
                snapshot = self._snapshot = tuple(NumberedItem(*pair) for pair in pairs)
        return snapshot

    def after(self, number: int) -> Sequence[NumberedItem[T]]:
        """Return the items with greater numbers than this, in order; all of them for 0."""
        # By number and not by position, so that a cursor stays valid when items before it are removed.
        numbered = self.snapshot()
        return numbered[bisect_right(numbered, number, key=attrgetter("number")) :]

    def __iter__(self) -> Iterator[T]:
        return iter([numbered.item for numbered in self.snapshot()])

    def __len__(self) -> int:
        return len(self.by_key)
