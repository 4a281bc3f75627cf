"""Results that were too large to be sent, until their caller reads them or their time is up.

Each belongs to its owner, has an unguessable name, and is counted in the memory budget. A name that is unknown, over or of
somebody else looks the same from outside.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

import trio

from ..base.named_tuples import NamedTuple
from ..errors import LimitExceeded
from ..runtime import Account, Supervisor
from ..types import ReadResourceResult
from .envelope import KEPT_RESULT_SIZE


class KeptResult(NamedTuple):
    """A result, who may read it, until when, and the account that counts it."""

    result: ReadResourceResult
    owner: Hashable
    until: float
    account: Account


@dataclass(slots=True, eq=False, repr=False)
class KeptResults:
    """Results by name, the oldest first.

    Args:
        ttl: seconds for which a result is kept.
        supervisor: runs the task that drops what is over; started with the first result.
    """

    ttl: float
    _supervisor: Supervisor
    _results: OrderedDict[str, KeptResult] = field(default_factory=OrderedDict[str, KeptResult], init=False)
    _wakened: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot, init=False)
    _state: str = field(default="unused", init=False)

    def keep(self, result: ReadResourceResult, size: int, owner: Hashable, account: Account) -> str:
        """Keep a result, and return the name under which its owner can read it.

        Args:
            size: bytes of the result.
            account: of the owner's connection; the result gets one beside it.

        Raises:
            LimitExceeded: the memory budget has no room, or the server is shutting down; nothing was kept.
        """
        if self._state == "closed":
            raise LimitExceeded("the server is shutting down")
        size += KEPT_RESULT_SIZE
        account.check(size)
        name, own = secrets.token_urlsafe(16), account.open()
        own.draw(size)
        self._results[name] = KeptResult(result, owner, trio.current_time() + self.ttl, own)
        if self._state == "unused":
            self._state = "open"
            self._supervisor.spawn(self._drop_in_time)
        self._wakened.unpark_all()
        return name

    def find(self, name: str, owner: Hashable) -> ReadResourceResult | None:
        """Return a result of this owner; None if there is none of that name."""
        kept = self._results.get(name)
        if kept is None or kept.owner != owner or kept.until <= trio.current_time():
            return None
        return kept.result

    async def _drop_in_time(self) -> None:
        """Drop each result when its time is up; at the end of the service all of them."""
        try:
            while True:
                if self._results:
                    oldest = next(iter(self._results.values()))
                    await trio.sleep_until(oldest.until)
                    self._results.popitem(last=False)[1].account.close()
                else:
                    await self._wakened.park()
        finally:
            self._state = "closed"
            while self._results:
                self._results.popitem()[1].account.close()

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"<KeptResults {len(self._results)} {self._state}>"
