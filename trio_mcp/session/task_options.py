"""Limits and times of tasks, as the author of a server sets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..checks import check_int, check_seconds
from ..shared_limits import OPEN_TASKS, WAITING_FOR_TASKS

LEAST_TTL: Final = 1.0
"""Seconds; a shorter life is raised to it, since no client could ask for the result of such a task."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Limits and times of tasks; pass it as `ServiceOptions(tasks=...)`. Times are in seconds.

    Raises:
        TypeError, ValueError: a value is of the wrong type or out of range, or `ttl` is above `max_ttl`.

    Attributes:
        ttl: how long a task exists, from its creation on, if its caller does not say; its work is cancelled then.
        max_ttl: the longest time that a caller may ask for, at least `ttl`.
        poll_interval: how often clients should ask for the state of a task.
        open: tasks that are worked on, or wait for an answer; a further one is refused.
        open_per_owner: the same for one principal, or one connection without authentication.
        waiting: requests that wait for results (`tasks/result`), and at most half of the calls that may run; a further one is
            refused, and its caller can poll.
        waiting_per_owner: the same for one principal, or one connection without authentication.
        ask_as_tasks: samples and questions run as tasks at the clients of 2025-11-25 that declare it.
    """

    ttl: float = 3600.0
    max_ttl: float = 86_400.0
    poll_interval: float = 1.0
    open: int = OPEN_TASKS.limit
    open_per_owner: int = 1_000
    waiting: int = WAITING_FOR_TASKS.limit
    waiting_per_owner: int = 1_000
    ask_as_tasks: bool = False

    def __post_init__(self) -> None:
        for name in ("ttl", "max_ttl", "poll_interval"):
            check_seconds(name, getattr(self, name), positive=True, finite=True)
        for name in ("open", "open_per_owner", "waiting", "waiting_per_owner"):
            check_int(name, getattr(self, name))
        if self.ttl > self.max_ttl:
            # A default, or a mistake, of which only one of both would count.
            raise ValueError(
                f"ttl must be at most max_ttl: {self.ttl:g} is above {self.max_ttl:g}, so change one of them"
            )

    def granted_ttl(self, wanted_ms: float | None) -> float:
        """Return the seconds for which a task exists whose caller asked for this many milliseconds; None for the default."""
        return min(max(self.ttl if wanted_ms is None else wanted_ms / 1000, LEAST_TTL), self.max_ttl)
