"""A memory budget: how many bytes a process may hold for its peers, and who holds them.

Each holder has an `Account`: a connection, a request body, a queue of messages, a call. What a peer sends is checked before it
is stored, and counted for as long as it is held. What one holder draws counts for its connection, and for the principal of that
connection if there is one.

Up to half of the budget anyone may draw. Over half, nobody may take the room of others: a connection may hold the total divided
by the number of connections, and a principal a quarter of the total. A connection without a principal counts as one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Final, Self

from ..checks import check_int
from ..errors import LimitExceeded
from .machine_memory import usable_memory

SHARE_OF_MACHINE: Final = 4
"""By default a process may hold this fraction of its memory for its peers."""


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """A snapshot of a memory budget.

    Attributes:
        total: bytes that may be held.
        drawn: bytes that are held.
        refused: how often something was refused since the budget was made.
    """

    total: int
    drawn: int
    refused: int


class MemoryBudget:
    """Bytes that may be held for peers; services, also those of several threads, may share one.

    Args:
        total: in bytes; by default a quarter of the memory of the machine, or of its control group.

    Raises:
        TypeError, ValueError: the total is no whole number of at least 1.
    """

    def __init__(self, total: int | None = None) -> None:
        if total is None:
            total = usable_memory() // SHARE_OF_MACHINE
        self.total = check_int("total", total, least=1, hint="leave it out for the default")
        self._lock = threading.Lock()
        self._drawn = 0
        self._refused = 0
        self._by_connection: Counter[Hashable] = Counter()
        self._by_principal: Counter[str] = Counter()

    def open(self, connection: Hashable | None = None, principal: str | None = None) -> Account:
        """Open an account.

        Args:
            connection: what tells the connection from others; by default the account counts as a connection by itself.
            principal: its authenticated identity.
        """
        return Account(self, object() if connection is None else connection, principal)

    def statistics(self) -> MemoryStatistics:
        """Return how much is held now, and how often something was refused."""
        return MemoryStatistics(self.total, self._drawn, self._refused)

    def refusal(self, size: int, connection: Hashable, principal: str | None) -> str | None:
        """Return why these bytes may not be drawn, or None if they may."""
        total, after = self.total, self._drawn + size
        if after <= total // 2:
            return None
        if after > total:
            return f"the memory budget of this server, {total} bytes, is used up"
        over_half = "over half of the memory budget of this server is used, and"
        held = self._by_connection[connection] + size
        share = total // (len(self._by_connection) or 1)
        if held > share:
            return f"{over_half} this connection would hold more than its share of {share} bytes"
        if principal is not None:
            held = self._by_principal[principal] + size
        if held > total // 4:
            return f"{over_half} you would hold more than a quarter of it, {total // 4} bytes"
        return None

    def is_full(self, size: int) -> bool:
        """Return whether no one may draw these bytes."""
        return self._drawn + size > self.total

    def count_refusal(self) -> None:
        self._refused += 1

    def add(self, size: int, connection: Hashable, principal: str | None) -> None:
        """Count bytes that are held, or with a negative size bytes that no longer are."""
        # Services in several threads may share a budget, and `+=` is not atomic.
        with self._lock:
            self._drawn += size
            self._by_connection[connection] += size
            # Without an entry that holds nothing: the number of entries is that of the connections.
            if not self._by_connection[connection]:
                del self._by_connection[connection]
            if principal is not None:
                self._by_principal[principal] += size
                if not self._by_principal[principal]:
                    del self._by_principal[principal]

    def __repr__(self) -> str:
        return f"<MemoryBudget {self._drawn}/{self.total} connections={len(self._by_connection)}>"


@dataclass(slots=True, eq=False)
class Account:
    """What one holder has drawn from a budget. Closing it gives everything back; what is drawn afterwards is not counted."""

    budget: MemoryBudget
    connection: Hashable
    principal: str | None
    drawn: int = field(default=0, init=False)
    closed: bool = field(default=False, init=False)

    def open(self) -> Account:
        """Open another account for the same connection and principal."""
        return Account(self.budget, self.connection, self.principal)

    def has_room(self, size: int) -> bool:
        """Return whether these bytes may be drawn."""
        return self.budget.refusal(size, self.connection, self.principal) is None

    def check(self, size: int) -> None:
        """Raise `LimitExceeded`, which names the budget, unless these bytes may be drawn."""
        refusal = self.budget.refusal(size, self.connection, self.principal)
        if refusal is not None:
            self.budget.count_refusal()
            raise LimitExceeded(f"{refusal}; try again later (ServiceOptions.memory)")

    def draw(self, size: int) -> None:
        """Count bytes as held, whether or not there is room: `check` first what may be refused."""
        if not self.closed:
            self.drawn += size
            self.budget.add(size, self.connection, self.principal)

    def give_back(self, size: int) -> None:
        """Count bytes as no longer held."""
        self.draw(-size)

    def close(self) -> None:
        """Give back everything; closing it again does nothing."""
        if self.drawn:
            self.draw(-self.drawn)
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@cache
def process_budget() -> MemoryBudget:
    """Return the budget that the services of this process share by default."""
    return MemoryBudget()
