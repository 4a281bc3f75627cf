"""How many requests wait for the results of tasks: they may take all day, and must not take the places of ordinary calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ...errors import LimitExceeded
from ..task_options import TaskOptions


@dataclass(slots=True, eq=False)
class Waits:
    """The requests that wait, by their owners.

    Args:
        calls: that the server runs at most, waiting ones included.
    """

    _options: TaskOptions
    calls: int
    _total: int = 0
    _per_owner: Counter[str] = field(default_factory=Counter[str])

    def begin(self, owner: str) -> None:
        """Count one more.

        Raises:
            LimitExceeded: there are as many as may be. The state of the task can still be polled.
        """
        most = min(self._options.waiting, max(1, self.calls // 2))
        if self._total >= most:
            raise LimitExceeded(
                f"{most} requests wait for the results of tasks already, which is the limit of this server "
                "(TaskOptions.waiting, and half of Limits.actors): poll tasks/get"
            )
        if self._per_owner[owner] >= self._options.waiting_per_owner:
            raise LimitExceeded(
                f"{self._options.waiting_per_owner} of your requests wait for the results of tasks already, "
                "which is the limit (TaskOptions.waiting_per_owner): poll tasks/get"
            )
        self._total += 1
        self._per_owner[owner] += 1

    def end(self, owner: str) -> None:
        """Count one fewer."""
        self._total -= 1
        self._per_owner[owner] -= 1
        if not self._per_owner[owner]:
            del self._per_owner[owner]
