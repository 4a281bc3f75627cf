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

A catalog may hold what a peer lists: another server, behind a proxy. Nothing that a peer lists may be an error of the program. So
its items never keep a key from an item of the program, whichever comes first, and are left out for as long as that is there.

    far: catalog of a proxy, mounted as "n" in `all`, too
    far.add("find")         ValueError: `all` has "n_find"
    far.add("look")         `all` gets "n_look"
    all.add("n_look")       `far` loses "look", and calls `far.peer_list.leave_out`
    all.remove("n_look")    calls `far.peer_list.offer_again`, which adds "look" again
"""

from __future__ import annotations

import inspect
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

from ..base.named_tuples import NamedTuple

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


class PeerList(Protocol):
    """The list of a peer, whose items a catalog holds."""

    def leave_out(self, key: str, why: str, /) -> None:
        """Note that an item was removed, because an item of the program has the key in a catalog that follows this one."""
        ...

    def offer_again(self) -> None:
        """Add the items that were skipped before, if that is possible now that an item of the program was removed."""
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
        refusal: returns why an item of a peer cannot have a key, though it is free; None if it can.
        normal: returns one spelling for all that a key may have; None if a key has one.

    Attributes:
        by_key: the items, for look-ups. Only this class changes it.
        peer_list: the list whose items these are; None if the program has registered them.
        was_ever_filled: whether an item was added once, even if the catalog is empty now.
    """

    __slots__ = (
        "_followers",
        "_kind",
        "_leaders",
        "_next",
        "_normal",
        "_numbers",
        "_on_add",
        "_on_change",
        "_owner",
        "_refusal",
        "_snapshot",
        "_source_of",
        "_spellings",
        "by_key",
        "peer_list",
        "was_ever_filled",
    )

    def __init__(
        self,
        kind: str,
        on_change: Callable[[], None],
        owner: str = "the server",
        source_of: Callable[[T], str | None] = lambda _item: None,
        on_add: Callable[[T], None] = lambda _item: None,
        refusal: Callable[[str, T], str | None] = lambda _key, _item: None,
        normal: Callable[[str], str] | None = None,
    ) -> None:
        self._normal = normal
        self._spellings: dict[str, str] = {}
        """The keys by their normal spelling."""
        self._kind = kind
        self._on_change = on_change
        self._owner = owner
        self._source_of = source_of
        self._on_add = on_add
        self._refusal = refusal
        self.peer_list: PeerList | None = None
        self.by_key: dict[str, T] = {}
        self._numbers: dict[str, int] = {}
        self._followers: list[tuple[Catalog[T], Renaming[T]]] = []
        self._leaders: list[tuple[Catalog[T], Renaming[T]]] = []
        """The catalogs that this one follows."""
        self._snapshot: tuple[NumberedItem[T], ...] | None = ()
        self._next = 1
        self.was_ever_filled = False

    def key_of(self, key: str) -> str | None:
        """Return a key as the item has it, or None if no item has it in any spelling."""
        return key if key in self.by_key else self._spellings.get(self._normal(key)) if self._normal else None

    def find(self, key: str) -> T | None:
        """Return the item of a key, in any spelling."""
        return None if (found := self.key_of(key)) is None else self.by_key[found]

    def add(self, key: str, item: T) -> None:
        """Add an item at the end.

        An item of a peer that has the key is removed, unless the new one is a peer's too.

        Raises:
            ValueError: the key is taken, here or in a catalog that follows this one; or the item cannot be in one of those.
        """
        with CHANGING:
            self.check(key, item)
            emptied = [] if self.peer_list is not None else self._make_room(key, item)
            self._insert(key, item)
        # Outside the lock: a subscriber may read the catalog.
        for catalog in (*emptied, self):
            catalog.announce()

    def remove(self, key: str) -> None:
        """Remove an item.

        Raises:
            LookupError: there is no item of that key.
        """
        with CHANGING:
            if (found := self.key_of(key)) is None:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            self._delete(found)
            waiting = {} if self.peer_list is not None else dict.fromkeys(self._waiting())
        self.announce()
        for each in waiting:
            each.offer_again()

    def replace(self, key: str, item: T) -> None:
        """Replace an item; it keeps its place.

        Raises:
            LookupError: there is no item of that key.
            ValueError: the item cannot be in a catalog that follows this one.
        """
        with CHANGING:
            if key not in self.by_key:
                raise LookupError(f"there is no {self._kind} named {key!r}")
            self._check_followers(key, item, of_peer=self.peer_list is not None)
            self._put(key, item)
        self.announce()

    def follow(self, other: Catalog[T], renaming: Renaming[T]) -> None:
        """Take over the items of another catalog, and its changes from now on. Announces nothing; `check_follow` comes first."""
        with CHANGING:
            other._followers.append((self, renaming))
            self._leaders.append((other, renaming))
            for key, item in tuple(other.by_key.items()):
                outer_key, outer_item = renaming.key(key), renaming.item(item)
                if other._origin(key) is None:
                    for catalog in self._make_room(outer_key, outer_item):
                        catalog.announce()
                self._insert(outer_key, outer_item)

    def check_follow(self, other: Catalog[T], renaming: Renaming[T]) -> None:
        """Raise `ValueError` if an item of another catalog cannot be in this one, or in one that follows it.

        An item of a peer is removed from the other catalog instead.
        """
        with CHANGING:
            for key, item in tuple(other.by_key.items()):
                origin = other._origin(key)
                try:
                    self.check(renaming.key(key), renaming.item(item), of_peer=origin is not None)
                except ValueError as error:
                    if origin is None:
                        raise
                    catalog, own = origin
                    catalog._leave_out(own, str(error))  # noqa: SLF001

    def check(self, key: str, item: T, *, of_peer: bool | None = None) -> None:
        """Raise `ValueError` if an item cannot be added, here or in a catalog that follows this one.

        Args:
            of_peer: whether it is a peer's; by default if this is the catalog of one.
        """
        if of_peer is None:
            of_peer = self.peer_list is not None
        # First, so that the reason does not depend on which of two servers has listed its items before the other.
        if of_peer and (why := self._refusal(key, item)) is not None:
            raise ValueError(why)
        if (taken := self.key_of(key)) is not None and (of_peer or self._origin(taken) is None):
            raise ValueError(self._taken(taken, self.by_key[taken], item))
        self._check_followers(key, item, of_peer=of_peer)

    def announce(self) -> None:
        """Report a change, here and in the catalogs that follow this one."""
        self._on_change()
        for follower, _ in tuple(self._followers):
            follower.announce()

    def _taken(self, key: str, item: T, other: T) -> str:
        """Return the error for another item whose key an item has."""
        here, there = self._source_of(item), self._source_of(other)
        if here is there is None:
            return f"there is a {self._kind} named {key!r} already{line_of(getattr(item, 'function', None))}"
        return (
            f"{self._owner} cannot have two {self._kind}s named {key!r}: one is from {here or 'itself'}, and the other from "
            f"{there or 'itself'}"
        )

    def _check_followers(self, key: str, item: T, *, of_peer: bool) -> None:
        for follower, renaming in self._followers:
            outer_key, outer_item = renaming.key(key), renaming.item(item)
            if key in self.by_key:
                follower._check_followers(outer_key, outer_item, of_peer=of_peer)  # noqa: SLF001  it is of this class
            else:
                follower.check(outer_key, outer_item, of_peer=of_peer)

    # items of peers

    def _origin(self, key: str) -> tuple[Catalog[T], str] | None:
        """Return the catalog of the peer whose item has a key, and its key there; None if it is not a peer's."""
        if self.peer_list is not None:
            return self, key
        for leader, renaming in self._leaders:
            # Else every item of a large server would be looked for when it is mounted.
            if next(leader._peer_lists(), None) is None:  # noqa: SLF001
                continue
            for own in leader.by_key:
                if renaming.key(own) == key:
                    return leader._origin(own)  # noqa: SLF001
        return None

    def _make_room(self, key: str, item: T) -> list[Catalog[T]]:
        """Remove the items of peers whose keys an item needs, here and in followers; return the catalogs of the peers."""
        if key in self.by_key:
            # It was found by `check`. In the followers it has the same keys.
            origin = self._origin(key)
            assert origin is not None
            catalog, own = origin
            catalog._leave_out(own, self._taken(key, item, self.by_key[key]))  # noqa: SLF001
            return [catalog]
        return [
            catalog
            for follower, renaming in self._followers
            for catalog in follower._make_room(renaming.key(key), renaming.item(item))  # noqa: SLF001
        ]

    def _leave_out(self, key: str, why: str) -> None:
        assert self.peer_list is not None
        self._delete(key)
        self.peer_list.leave_out(key, why)

    def _waiting(self) -> Iterator[PeerList]:
        """Yield the lists that may have an item for a key that is free now, here and in the catalogs that follow this one."""
        yield from self._peer_lists()
        for follower, _ in self._followers:
            yield from follower._waiting()  # noqa: SLF001

    def _peer_lists(self) -> Iterator[PeerList]:
        if self.peer_list is not None:
            yield self.peer_list
        for leader, _ in self._leaders:
            yield from leader._peer_lists()  # noqa: SLF001

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
        if self._normal is not None:
            self._spellings[self._normal(key)] = key
        self._snapshot = None
        self._on_add(item)

    def _delete(self, key: str) -> None:
        del self.by_key[key], self._numbers[key]
        if self._normal is not None:
            self._spellings.pop(self._normal(key), None)
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


def line_of(function: object) -> str:
    """Return where a function was defined, to be put behind an error; empty if Python does not know."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return "" if code is None else f", from {code.co_filename}:{code.co_firstlineno}"
