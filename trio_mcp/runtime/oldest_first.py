"""Things that are kept for their callers while there is room; where there is none, the oldest go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Generic, TypeAlias, TypeVar

from .memory_budget import TableAccount
from .quota import Quota

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


Kept: TypeAlias = tuple[V, Hashable | None, int]
"""One thing that is kept, whose it is, and its size in bytes."""


class OldestFirst(Generic[K, V]):
    """A table in the order in which its entries came. A caller over its share loses its own oldest entries, and no other's.

    Args:
        count: limits the number of entries.
        sizes: limits their bytes; None for no such limit.
        on_evict: called with what had to go.
    """

    __slots__ = ("_by_caller", "_entries", "_limits", "_on_evict")

    def __init__(
        self, count: Quota, sizes: Quota | None = None, on_evict: Callable[[K, Kept[V]], None] | None = None
    ) -> None:
        self._limits = (count,) if sizes is None else (count, sizes)
        self._on_evict = on_evict
        self._entries: OrderedDict[K, Kept[V]] = OrderedDict()
        self._by_caller: dict[Hashable | None, OrderedDict[K, None]] = {}

    def add(self, key: K, value: V, caller: Hashable | None = None, size: int = 0) -> None:
        """Keep one more, under a key that is free, and evict what there is no room for."""
        self._entries[key] = value, caller, size
        self._by_caller.setdefault(caller, OrderedDict())[key] = None
        for limit, amount in zip(self._limits, (1, size), strict=False):
            limit.add(caller, amount)
        self._make_room(caller)

    def grow(self, key: K, size: int) -> None:
        """Add `size` bytes to an entry; evict until the limits hold."""
        value, caller, before = self._entries[key]
        self._entries[key] = value, caller, before + size
        for limit in self._limits[1:]:
            limit.add(caller, size)
        self._make_room(caller)

    def _make_room(self, caller: Hashable | None) -> None:
        # Nearly always there is room for every caller.
        if all(limit.in_use <= limit.half for limit in self._limits):
            return
        own = self._by_caller[caller]
        while own and any(limit.is_over_share(caller) for limit in self._limits):
            self._evict(next(iter(own)))
        # The newest stays, however large it is.
        while len(self._entries) > 1 and any(limit.in_use > limit.limit for limit in self._limits):
            self.evict_oldest()

    def fit(self, account: TableAccount, caller: Hashable | None, size: int = 0) -> None:
        """Evict, as far as there is something, until the memory budget has room for these bytes of a caller.

        A caller over its share of the budget loses its own. Where it is used up, the caller that has most here loses most.
        """
        if not account.is_over_half(size):
            return
        own = self._by_caller.get(caller)
        while own and account.is_over_share(size, caller):
            self._evict(next(iter(own)))
        if self._entries and account.is_used_up(size):
            self._evict_of_largest(lambda: account.is_used_up(size))

    def _evict_of_largest(self, is_full: Callable[[], bool]) -> None:
        limit, callers = self._limits[-1], list(self._by_caller)
        largest = [(-limit.held(caller), number) for number, caller in enumerate(callers)]
        heapify(largest)
        while largest and is_full():
            caller = callers[largest[0][1]]
            self._evict(next(iter(self._by_caller[caller])))
            if caller in self._by_caller:
                heapreplace(largest, (-limit.held(caller), largest[0][1]))
            else:
                heappop(largest)

    def evict_oldest(self) -> None:
        """Evict the oldest entry of all; there is one."""
        self._evict(next(iter(self._entries)))

    def pop(self, key: K) -> Kept[V] | None:
        """Remove an entry and return it; None if there is none."""
        kept = self._entries.pop(key, None)
        if kept is None:
            return None
        _, caller, size = kept
        own = self._by_caller[caller]
        del own[key]
        if not own:
            del self._by_caller[caller]
        for limit, amount in zip(self._limits, (1, size), strict=False):
            limit.give_back(caller, amount)
        return kept

    def get(self, key: K) -> V | None:
        """Return what is kept under a key; None if there is nothing."""
        kept = self._entries.get(key)
        return None if kept is None else kept[0]

    @property
    def first(self) -> V | None:
        """What has been kept for longest; None if there is nothing."""
        return self.get(next(iter(self._entries))) if self._entries else None

    def close(self) -> None:
        """Remove everything; `on_evict` is called no more."""
        # It refers to the owner of this table.
        self._on_evict = None
        for key in list(self._entries):
            self.pop(key)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<OldestFirst {len(self)} callers={len(self._by_caller)}>"

    def _evict(self, key: K) -> None:
        kept = self.pop(key)
        if kept is not None and self._on_evict is not None:
            self._on_evict(key, kept)
