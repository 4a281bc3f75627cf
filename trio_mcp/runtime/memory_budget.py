"""A memory budget: how many bytes a process may hold for its peers, and who holds them.

Each holder has an `Account`: a connection, a request body, a queue of messages, a call. What a peer sends is checked before it
is stored, and counted for as long as it is held. What one holder draws counts for its connection, and for the principal of that
connection if there is one. What a table keeps counts for the caller that it is kept for, and for no connection (`TableAccount`).

Up to half of the budget anyone may draw. Over half, a holder may not take the room of others: a connection may hold the total
divided by the number of connections, and a principal a quarter of the total. A connection without a principal counts as one.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..base.checks import check_int
from ..base.named_tuples import NamedTuple
from ..errors import LimitExceeded
from .quota import add_to, half_of, quarter_of

# How much memory this process may use, and giving back what it does not.

UNKNOWN_MACHINE: Final = 4 * 1024**3
"""The memory of a machine that does not say how much it has."""


def usable_memory() -> int:
    """Return the bytes of memory that this process may use: those of the machine, or of its control group if it has fewer."""
    return min([machine_memory(), *control_group_limits()])


def machine_memory() -> int:
    if sys.platform == "win32":
        return UNKNOWN_MACHINE
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN_MACHINE


def control_group_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[int]:
    """Return the memory limits, in bytes, of the control groups of this process (Linux, cgroups(7)); often none."""
    return [limit for file in control_group_files(root, own) if (limit := read_limit(file)) is not None]


def control_group_files(root: Path, own: Path) -> Iterator[Path]:
    """Yield the files that may hold such a limit: the limit of each group applies to the groups in it."""
    # A container sees its own group as the root, whatever path its processes are said to be in.
    yield root / "memory.max"
    yield root / "memory/memory.limit_in_bytes"
    try:
        groups = own.read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            base, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
            group = base / path.lstrip("/")
            for each in (group, *group.parents):
                if each.is_relative_to(base):
                    yield each / name


def read_limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    # "max" stands for no limit.
    return int(text) if text.isdigit() else None


def give_back_free_memory() -> None:
    """Return the pages that nothing uses, also between others, to the system, where the C library can (malloc_trim(3), glibc).

    It keeps them otherwise: results of a megabyte that were sent leave holes between those that were not, and what does not fit
    into a hole makes the process grow.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):
        # `CDLL(None)` has no C library here, as on Windows.
        return None
    return trim


SHARE_OF_MACHINE: Final = 4
"""By default a process may hold this fraction of its memory for its peers."""


TRIM_SHARE: Final = 32
"""Over half, what is free is given back to the system whenever this fraction of the budget was asked for since the last time."""

LEAST_SHARE: Final = 128 * 1024
"""Bytes that every connection may hold while there is room, however many there are: enough for a call."""


class MemoryStatistics(NamedTuple):
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
    """The bytes that may be held for peers; services, even in several threads, may share one budget.

    Args:
        total: in bytes; by default a quarter of the memory of the machine, or of its control group.

    Attributes:
        half: the bytes up to which every caller may draw.
        drawn: bytes that are held.

    Raises:
        TypeError, ValueError: the total is not a whole number of at least 1.
    """

    def __init__(self, total: int | None = None) -> None:
        if total is None:
            total = usable_memory() // SHARE_OF_MACHINE
        self.total = check_int("total", total, least=1, hint="leave it out for the default")
        self.half, self._quarter = half_of(self.total), quarter_of(self.total)
        self.drawn = 0
        self._lock = threading.Lock()
        self._refused = 0
        self._asked_since_trim = 0
        self._keeping: list[Account] = []
        self._by_connection: dict[Hashable, int] = {}
        self._by_principal: dict[Hashable | None, int] = {}
        """And by other callers, what tables keep for them."""

    def open(self, connection: Hashable | None = None, principal: str | None = None) -> Account:
        """Open an account.

        Args:
            connection: what tells the connection from others; by default the account counts as a connection by itself.
            principal: its authenticated identity.
        """
        own = object() if connection is None else connection
        return Account(self, own, principal, connection if principal is None else principal)

    def open_table(self) -> TableAccount:
        """Open an account for a table that callers share."""
        return TableAccount(self)

    def statistics(self) -> MemoryStatistics:
        """Return how much is held now, and how often something was refused."""
        return MemoryStatistics(self.total, self.drawn, self._refused)

    def is_over_half(self, size: int) -> bool:
        """Return whether more than half would be drawn with these bytes. If so, accounts give back what they have kept."""
        if self.drawn + size <= self.half:
            return False
        for account in self._keeping:
            account.give_back_kept()
        return self.drawn + size > self.half

    def is_used_up(self, size: int) -> bool:
        """Return whether these bytes exceed the total."""
        return self.is_over_half(size) and self.drawn + size > self.total

    def let_keep(self, account: Account) -> None:
        """Let an account keep bytes until it is closed."""
        self._keeping = [*self._keeping, account]

    def note_closed(self, account: Account) -> None:
        """Forget an account that kept bytes."""
        self._keeping = [each for each in self._keeping if each is not account]

    def refusal(self, size: int, account: Account) -> str | None:
        """Return why an account may not draw these bytes, or None if it may."""
        if not self.is_over_half(size):
            return None
        if self.is_used_up(size):
            return self._used_up()
        over_half = "over half of the memory budget of this server is used, and"
        held = self._by_connection.get(account.connection, 0) + size
        share = max(self.total // (len(self._by_connection) or 1), LEAST_SHARE)
        if held > share:
            return f"{over_half} this connection would hold more than its share of {share} bytes"
        if account.principal is not None:
            held = self.held_by(account.principal) + size
        return self._over_quarter() if held > self._quarter else None

    def caller_refusal(self, size: int, caller: Hashable | None) -> str | None:
        """Return why a table may not draw these bytes for a caller, or None if it may."""
        if self.is_used_up(size):
            return self._used_up()
        return self._over_quarter() if self.is_over_share(size, caller) else None

    def is_over_share(self, size: int, caller: Hashable | None) -> bool:
        """Return whether a caller would hold more than a quarter with these bytes, while over half is drawn."""
        return self.is_over_half(size) and self.held_by(caller) + size > self._quarter

    def held_by(self, caller: Hashable | None) -> int:
        """Return how much a principal holds, or how much tables hold for another caller."""
        return self._by_principal.get(caller, 0)

    def _over_quarter(self) -> str:
        return (
            "over half of the memory budget of this server is used, and you would hold more than a quarter of it, "
            f"{self._quarter} bytes"
        )

    def check(self, size: int, account: Account) -> None:
        """Raise `LimitExceeded` if an account may not draw these bytes; called over half of the budget."""
        self.check_refusal(size, self.refusal(size, account))

    def check_refusal(self, size: int, refusal: str | None) -> None:
        """Raise `LimitExceeded` if these bytes are refused, for this reason; called over half of the budget."""
        self._asked_since_trim += size
        if self._asked_since_trim > self.total // TRIM_SHARE:
            self._asked_since_trim = 0
            give_back_free_memory()
        if refusal is not None:
            self._refused += 1
            raise LimitExceeded(f"{refusal}; try again later (ServiceOptions.memory)")

    def check_total(self, size: int) -> None:
        """Raise `LimitExceeded` if these bytes would exceed the whole budget; shares of callers do not matter."""
        if self.is_used_up(size):
            self._refused += 1
            raise LimitExceeded(f"{self._used_up()}; try again later (ServiceOptions.memory)")

    def _used_up(self) -> str:
        return f"the memory budget of this server, {self.total} bytes, is used up"

    def add(self, size: int, account: Account) -> None:
        """Count bytes that an account holds, or with a negative size bytes that it no longer holds."""
        # Services in several threads may share a budget, and `+=` is not atomic.
        with self._lock:
            self.drawn += size
            # Not by `add_to`: every tool call comes here twice, mostly without a principal.
            held = self._by_connection.get(account.connection, 0) + size
            if held:
                self._by_connection[account.connection] = held
            else:
                self._by_connection.pop(account.connection, None)
            if account.principal is not None:
                add_to(self._by_principal, account.principal, size)

    def add_for(self, size: int, caller: Hashable | None) -> None:
        """Count bytes that a table holds for a caller, or with a negative size bytes that it no longer holds."""
        with self._lock:
            self.drawn += size
            add_to(self._by_principal, caller, size)

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.drawn}/{self.total} connections={len(self._by_connection)}>"


@dataclass(slots=True, eq=False)
class Account:
    """What one holder has drawn from a budget. Closing it gives everything back; what is drawn afterwards is not counted.

    Attributes:
        caller: whose it is, for the limits that callers share (`Quota`): the principal, or else the connection; None if the
            transport knows of no other caller.
        parent: the account that opened it, if that keeps bytes.
        kept: bytes that accounts which it has opened no longer hold, and that stay counted for the next one.
        most_kept: up to how many it keeps.
    """

    budget: MemoryBudget
    connection: Hashable
    principal: str | None
    caller: Hashable | None
    drawn: int = 0
    parent: Account | None = None
    closed: bool = False
    kept: int = 0
    most_kept: int = 0
    _thread: int = 0

    def keep(self, most: int) -> None:
        """Keep up to `most` bytes of what its calls give back, until it is closed or half of the budget is drawn.

        To count the bytes of each call takes longer than to pass them from one call to the next. It is for the only connection
        of a process: no other one could use them.
        """
        self.most_kept, self._thread = most, threading.get_ident()
        self.budget.let_keep(self)

    def give_back_kept(self) -> None:
        """Give back the bytes that it keeps. Does nothing in another thread than that of its calls."""
        kept = self.kept
        if kept and threading.get_ident() == self._thread:
            self.kept = 0
            self.budget.add(-kept, self)

    def open(self, size: int = 0) -> Account:
        """Open another account for the same connection and principal, and draw these bytes.

        Raises:
            LimitExceeded: there is no room for them; nothing was drawn.
        """
        budget = self.budget
        # As `check` and `draw` do: every call comes here.
        if budget.drawn + size > budget.half:
            budget.check(size, self)
        if self.kept >= size:
            self.kept -= size
        else:
            budget.add(size, self)
        parent = self if self.most_kept else None
        return Account(budget, self.connection, self.principal, self.caller, size, parent)

    def has_room(self, size: int) -> bool:
        """Return whether these bytes may be drawn."""
        budget = self.budget
        return budget.drawn + size <= budget.half or budget.refusal(size, self) is None

    def check(self, size: int) -> None:
        """Raise `LimitExceeded`, which names the budget, unless these bytes may be drawn."""
        # Nearly always there is room for every caller, and every call asks several times.
        if self.budget.drawn + size > self.budget.half:
            self.budget.check(size, self)

    def take(self, size: int) -> None:
        """Count bytes as held. Raises as `check` does; then nothing is counted."""
        self.check(size)
        self.draw(size)

    def check_step(self, size: int) -> None:
        """Raise `LimitExceeded` unless there is room for these bytes within one step, in which nothing else is done.

        They are not part of anybody's share: the next one may have the same room.
        """
        self.budget.check_total(size)

    def draw(self, size: int) -> None:
        """Count bytes as held, whether or not there is room: `check` first what may be refused."""
        if not self.closed:
            self.drawn += size
            self.budget.add(size, self)

    def give_back(self, size: int) -> None:
        """Count bytes as no longer held."""
        self.draw(-size)

    def close(self) -> None:
        """Give back everything; closing it again does nothing."""
        budget, parent, drawn = self.budget, self.parent, self.drawn
        if self.most_kept and not self.closed:
            self.give_back_kept()
            self.most_kept = 0
            budget.note_closed(self)
        if drawn and parent is not None and parent.kept + drawn <= parent.most_kept and budget.drawn <= budget.half:
            parent.kept += drawn
        elif drawn:
            budget.add(-drawn, self)
        self.drawn = 0
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class TableAccount:
    """What a table that callers share has drawn from a budget. Closing it is like closing an `Account`.

    A caller is a principal, or whatever else tells it from others.
    """

    __slots__ = ("_budget", "_closed", "_held")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held: dict[Hashable | None, int] = {}
        self._closed = False

    @property
    def is_free(self) -> bool:
        """Whether no more than half of the budget is drawn, so that shares do not count."""
        return not self._budget.is_over_half(0)

    def has_room(self, size: int, caller: Hashable | None) -> bool:
        """Return whether these bytes may be drawn for a caller."""
        budget = self._budget
        return budget.drawn + size <= budget.half or budget.caller_refusal(size, caller) is None

    def is_over_half(self, size: int) -> bool:
        """Return whether more than half of the budget would be drawn with these bytes, so that shares count."""
        return self._budget.is_over_half(size)

    def is_over_share(self, size: int, caller: Hashable | None) -> bool:
        """Return whether a caller would hold more than its share with these bytes."""
        return self._budget.is_over_share(size, caller)

    def is_used_up(self, size: int) -> bool:
        """Return whether these bytes exceed the total, whatever the shares."""
        return self._budget.is_used_up(size)

    def check(self, size: int, caller: Hashable | None) -> None:
        """Raise `LimitExceeded`, which names the budget, unless these bytes may be drawn for a caller."""
        budget = self._budget
        if budget.drawn + size > budget.half:
            budget.check_refusal(size, budget.caller_refusal(size, caller))

    def draw(self, size: int, caller: Hashable | None) -> None:
        """Count bytes as held for a caller, whether or not there is room."""
        if not self._closed:
            add_to(self._held, caller, size)
            self._budget.add_for(size, caller)

    def give_back(self, size: int, caller: Hashable | None) -> None:
        """Count bytes as no longer held for a caller."""
        self.draw(-size, caller)

    def close(self) -> None:
        """Give back everything; closing it again does nothing."""
        self._closed = True
        for caller, size in self._held.items():
            self._budget.add_for(-size, caller)
        self._held.clear()

    def __repr__(self) -> str:
        return f"<TableAccount {sum(self._held.values())} callers={len(self._held)}>"


@cache
def process_budget() -> MemoryBudget:
    """Return the budget that the services of this process share by default."""
    return MemoryBudget()
