"""The items of one kind that a server offers, in the order in which they were added.

Items are stored in a dict for look-ups and changes; readers get a tuple, which the first reader after a change makes from it.

    add("a"), add("b")      dict {a, b}       no tuple yet
    snapshot()              dict {a, b}       tuple (1 a, 2 b)
    add("c")                dict {a, b, c}    a reader that iterates continues with (1 a, 2 b)
    snapshot()              dict {a, b, c}    tuple (1 a, 2 b, 3 c)

A catalog may follow others: it then has their items too, under other keys, and changes with them. A change is made in all
catalogs that it reaches, or in none.

    notes: catalog of a server, mounted as "n" in the server with the catalog `all`
    notes.add("find")       `all` gets "n_find"; if that key is taken there, neither catalog changes
    notes.remove("find")    `all` loses "n_find"
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

CHANGING: Final = threading.RLock()
"""Held while a catalog changes, with those that follow it."""
# One for all catalogs: a change may reach several, and with a lock for each, two changes could take them in different orders.
# Changes are rare and short.


class Renaming(Protocol[T]):
    """How the items of a catalog are named in one that follows it."""

    def key(self, key: str, /) -> str:
        """Return the key of an item in the following catalog. Raises `ValueError` if it cannot have one."""
        ...

    def item(self, item: T, /) -> T:
        """Return the item as the following catalog has it. Raises `ValueError` if it cannot be there."""
        ...


class NumberedItem(NamedTuple, Generic[T]):
    """An item and its number. Later items have greater numbers, and a number is never reused."""

    number: int
    item: T


class Catalog(Generic[T]):
    """Items by key. It may be changed in any thread while it is read.

    Args:
        kind: what an item is called in errors.
        on_change: called after each change.
        owner: whose catalog it is, for errors.
        source_of: returns the owner of an item that comes from another catalog, for errors; None for one of the owner itself.
        on_add: called with each item that is added, before `on_change`.

    Attributes:
        by_key: the items, for look-ups. Only this class changes it.
        was_ever_filled: whether an item was added once, even if the catalog is empty now.
    """

    __slots__ = (
        "_followers",
        "_kind",
        "_next",
        "_numbers",
        "_on_add",
        "_on_change",
        "_owner",
        "_snapshot",
        "_source_of",
        "by_key",
        "was_ever_filled",
    )

    def __init__(
        self,
        kind: str,
        on_change: Callable[[], None],
        owner: str = "the server",
        source_of: Callable[[T], str | None] = lambda _item: None,
        on_add: Callable[[T], None] = lambda _item: None,
    ) -> None:
        self._kind = kind
        self._on_change = on_change
        self._owner = owner
        self._source_of = source_of
        self._on_add = on_add
        self.by_key: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._followers: list[tuple[Catalog[T], Renaming[T]]] = []
        self._snapshot: tuple[NumberedItem[T], ...] | None = ()
        self._next = 1
        self.was_ever_filled = False

    def add(self, key: str, item: T) -> None:
        """Add an item at the end.

        Raises:
            ValueError: the key is taken, here or in a catalog that follows this one; or the item cannot be in one of those.
        """
        with CHANGING:
            self.check(key, item)
            self._insert(key, item)
        # Outside the lock: a subscriber may read the catalog.
        self.announce()

    def remove(self, key: str) -> None:
        """Remove an item.

        Raises:
            LookupError: there is no item of that key.
        """
        with CHANGING:
            if key not in self.by_key:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            self._delete(key)
        self.announce()

    def replace(self, key: str, item: T) -> None:
        """Replace an item; it keeps its place.

        Raises:
            LookupError: there is no item of that key.
            ValueError: the item cannot be in a catalog that follows this one.
        """
        with CHANGING:
            if key not in self.by_key:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            self._check_followers(key, item)
            self._put(key, item)
        self.announce()

    def follow(self, other: Catalog[T], renaming: Renaming[T]) -> None:
        """Take over the items of another catalog, and its changes from now on. Announces nothing; `check_follow` comes first."""
        with CHANGING:
            other._followers.append((self, renaming))
            for key, item in other.by_key.items():
                self._insert(renaming.key(key), renaming.item(item))

    def check_follow(self, other: Catalog[T], renaming: Renaming[T]) -> None:
        """Raise `ValueError` if an item of another catalog cannot be in this one, or in one that follows it."""
        with CHANGING:
            for key, item in other.by_key.items():
                self.check(renaming.key(key), renaming.item(item))

    def check(self, key: str, item: T) -> None:
        """Raise `ValueError` if an item cannot be added, here or in a catalog that follows this one."""
        if key in self.by_key:
            raise ValueError(self._taken(key, item))
        self._check_followers(key, item)

    def remember_filled(self, earlier: Catalog[T]) -> None:
        """Count as filled once if the catalog that this one replaces was."""
        self.was_ever_filled = self.was_ever_filled or earlier.was_ever_filled

    def announce(self) -> None:
        """Report a change, here and in the catalogs that follow this one."""
        self._on_change()
        for follower, _ in tuple(self._followers):
            follower.announce()

    def _taken(self, key: str, item: T) -> str:
        """Return the error for an item whose key another one has."""
        here, there = self._source_of(self.by_key[key]), self._source_of(item)
        if here is there is None:
            return f"there is a {self._kind} named {key!r} already"
        return (
            f"{self._owner} cannot have two {self._kind}s named {key!r}: one is from {here or 'itself'}, and the other from "
            f"{there or 'itself'}"
        )

    def _check_followers(self, key: str, item: T) -> None:
        for follower, renaming in self._followers:
            outer_key, outer_item = renaming.key(key), renaming.item(item)
            if key in self.by_key:
                follower._check_followers(outer_key, outer_item)  # noqa: SLF001  it is of this class
            else:
                follower.check(outer_key, outer_item)

    def _insert(self, key: str, item: T) -> None:
        self._numbers[key] = self._next
        self._next += 1
        self.was_ever_filled = True
        self._put_here(key, item)
        for follower, renaming in self._followers:
            follower._insert(renaming.key(key), renaming.item(item))  # noqa: SLF001

    def _put(self, key: str, item: T) -> None:
        self._put_here(key, item)
        for follower, renaming in self._followers:
            follower._put(renaming.key(key), renaming.item(item))  # noqa: SLF001

    def _put_here(self, key: str, item: T) -> None:
        self.by_key[key] = item
        self._snapshot = None
        self._on_add(item)

    def _delete(self, key: str) -> None:
        del self.by_key[key], self._numbers[key]
        self._snapshot = None
        for follower, renaming in self._followers:
            follower._delete(renaming.key(key))  # noqa: SLF001

    def snapshot(self) -> tuple[NumberedItem[T], ...]:
        """Return all items in order; the same object until the next change."""
        snapshot = self._snapshot
        if snapshot is None:
            # Under the lock, because a dict that another thread changes cannot be iterated over. Here and not in `add`,
            # because the registration of n items would copy n²/2 of them.
            with CHANGING:
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
