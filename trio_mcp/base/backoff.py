"""Exponential back-off with jitter, for everything that is retried after a failure: sessions, streams, subscriptions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

STABLE_AFTER: Final = 10.0
"""Seconds after which a connection counts as stable: the delay after its next failure is the first one again."""

MAX_EXPONENT: Final = 16
"""Failures after which the exponent stays as it is, so that the power cannot overflow."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait between attempts.

        AnthropicProvider(backoff=Backoff(first=1.0, longest=60.0))

    Attributes:
        first: seconds of the first delay, before jitter.
        factor: each further failure multiplies the delay by it.
        longest: the maximum of a delay, in seconds.
        jitter: the share of each delay that is random, from 0 (none) to 1 (all of it). It keeps the clients of a server that
            restarts from reconnecting in the same instant.
        random: returns a number from 0 up to 1; replace it to make the delays deterministic.
    """

    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    random: Callable[[], float] = random.random

    def delay(self, failures: int) -> float:
        """Return the seconds to wait before the next attempt, after this many failures in a row."""
        seconds = min(self.longest, self.first * self.factor ** min(failures, MAX_EXPONENT))
        return seconds * (1 - self.jitter * self.random())


RECONNECT_BACKOFF: Final = Backoff(first=0.5)
"""For the sessions and streams of a client."""
