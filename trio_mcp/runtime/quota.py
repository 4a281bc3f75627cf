"""How much of one limit each caller holds, so that no caller takes the room of the others.

Up to half of a limit anyone may have. Beyond that, a caller may have a quarter of it, and one at least. What is held stays: a
caller that took half while it was alone keeps that, and gets nothing more until the others have left or it has given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, TypeVar

from ..base.shared_limits import SharedLimit
from ..errors import LimitExceeded

K = TypeVar("K")

refusals: Final[Counter[str]] = Counter()
"""How often each limit has refused something in this process."""


def half_of(limit: int) -> int:
    """Return how much of a limit anyone may have, rounded up: one of one."""
    return (limit + 1) // 2


def quarter_of(limit: int) -> int:
    """Return how much of a limit one caller may have while more than half of it is in use."""
    return max(1, limit // 4)


class Quota:
    """What is held of one limit, in total and by each caller; a caller that holds nothing takes no memory.

    A caller is any hashable key. None is one that is alone, as on stdio: it may have all, unless `per_caller` is not
    the default.

    Args:
        what: is limited.
        limit: in total; by default that of `what`.
        per_caller: what one caller may have, however little is in use; by default that of `what`. None for no such limit.

    Attributes:
        in_use: how much all callers hold.
        half: how much of it anyone may have.
    """

    __slots__ = ("_cap", "_held", "_quarter", "_what", "half", "in_use", "limit")

    def __init__(self, what: SharedLimit, limit: int | None = None, per_caller: int | None = None) -> None:
        self.limit = what.limit if limit is None else limit
        cap = what.per_caller if per_caller is None else per_caller
        self._cap = self.limit if cap is None else cap
        self.half, self._quarter = half_of(self.limit), quarter_of(self.limit)
        self._what = what
        self.in_use = 0
        self._held: dict[Hashable | None, int] = {}

    def take(self, caller: Hashable | None, size: int = 1) -> None:
        """Count `size` more for a caller. Raises as `check` does; then nothing is counted."""
        held, in_use = self._held.get(caller, 0) + size, self.in_use + size
        # Nearly always there is room for every caller, and every call comes here.
        if in_use > self.half or held > self._cap:
            self.check(caller, size)
        self._held[caller] = held
        self.in_use = in_use

    def check(self, caller: Hashable | None, size: int = 1, *, capped: bool = True) -> None:
        """Raise `LimitExceeded`, which names the limit, unless a caller may have so much more; see `refusal`."""
        refusal = self.refusal(caller, size, capped=capped)
        if refusal is not None:
            self.count_refusal()
            raise LimitExceeded(refusal)

    def count_refusal(self) -> None:
        """Count that the limit has refused something, for the statistics."""
        refusals[self._what.what] += 1

    def refusal(self, caller: Hashable | None, size: int = 1, *, capped: bool = True) -> str | None:
        """Return why a caller may not have so much more, or None if it may.

        Args:
            capped: whether `per_caller` applies to this caller.
        """
        if self.in_use + size > self.limit:
            named = self._named(self._what.option)
            return f"this server already has {self.in_use} {self._what.what}: its limit is {self.limit}{named}"
        return self.own_refusal(caller, size, capped=capped)

    def own_refusal(self, caller: Hashable | None, size: int = 1, *, capped: bool = True) -> str | None:
        """Return why a caller may not have so much more because of what it holds itself, or None if it may; see `refusal`."""
        what = self._what.what
        is_alone = caller is None and self._cap == self._what.per_caller
        if capped and not is_alone and self._held.get(caller, 0) + size > self._cap:
            return f"{self._cap} of your {what} are as many as you may have{self._named(self._what.cap)}"
        if self.is_over_share(caller, size):
            return (
                f"this server has at most {self.limit} {what}{self._named(self._what.option)}: over half of them are in use, so "
                f"each caller may have a quarter, {self._quarter}, and you would have {self._held.get(caller, 0) + size}"
            )
        return None

    @property
    def is_over_half(self) -> bool:
        """Whether more than half of the limit is in use, so that shares count."""
        return self.in_use > self.half

    def is_over_share(self, caller: Hashable | None, size: int = 0) -> bool:
        """Return whether a caller would hold more than its share with so much more, while over half of the limit is in use."""
        in_use, held = self.in_use + size, self._held.get(caller, 0) + size
        return in_use > self.half and held > self._quarter and caller is not None

    def held(self, caller: Hashable | None) -> int:
        """Return how much a caller holds."""
        return self._held.get(caller, 0)

    def add(self, caller: Hashable | None, size: int = 1) -> None:
        """Add `size` to what a caller holds, without a check."""
        self.in_use += size
        add_to(self._held, caller, size)

    def give_back(self, caller: Hashable | None, size: int = 1) -> None:
        """Subtract `size` from what a caller holds."""
        self.in_use -= size
        add_to(self._held, caller, -size)

    @staticmethod
    def _named(option: str) -> str:
        return f" ({option})" if option else ""

    def __repr__(self) -> str:
        return f"<Quota {self._what.what}: {self.in_use}/{self.limit} callers={len(self._held)}>"


def add_to(table: dict[K, int], key: K, size: int) -> None:
    """Add to an entry, and remove one that holds nothing: there are as many callers as entries."""
    held = table.get(key, 0) + size
    if held:
        table[key] = held
    else:
        table.pop(key, None)
