"""The limits of a supervisor, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..base.checks import check_int, check_seconds
from ..base.shared_limits import PARKED_CALLS, RUNNING_CALLS
from ..base.values import ComparedByFields
from .actor import CancelReason


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Limits(ComparedByFields):
    """How many actors may exist. Parked ones count in `actors` too. At a limit, new actors are refused; none is evicted.

    Callers share both limits: beyond half of one, a caller may have a quarter of it; see
    https://github.com/trio-mcp/trio-mcp/blob/main/docs/limits.md.

    Attributes:
        actors, parked: limits for all actors, and for those that wait for the next request of their caller.
        actors_per_principal, parked_per_principal: the same for one principal, or one connection without authentication, even
            if there is no other.
        park_ttl: seconds a parked actor waits for the next request of its caller.
    """

    actors: int = RUNNING_CALLS.limit
    actors_per_principal: int = RUNNING_CALLS.limit
    parked: int = PARKED_CALLS.limit
    parked_per_principal: int = PARKED_CALLS.limit
    park_ttl: float = 600.0

    def __post_init__(self) -> None:
        for name in ("actors", "actors_per_principal", "parked", "parked_per_principal"):
            check_int(name, getattr(self, name))
        # It is sealed with each question as a time, which JSON holds if it is finite.
        check_seconds("park_ttl", self.park_ttl, finite=True)


@dataclass(slots=True, eq=False, repr=False)
class SupervisorStatistics(ComparedByFields):
    """Actors by state now, and how actors ended since the supervisor was opened.

    Attributes:
        stuck: actors that were cancelled, did not end within their grace period, and still run.
    """

    running: int = 0
    parked: int = 0
    started: int = 0
    returned: int = 0
    raised: int = 0
    cancelled: dict[CancelReason, int] = field(default_factory=dict[CancelReason, int])
    refused: int = 0
    stuck: int = 0
    ever_stuck: int = 0
