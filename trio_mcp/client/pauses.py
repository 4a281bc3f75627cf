"""How long to wait before something that was lost is asked for again."""

from __future__ import annotations

import random

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds: the first time, and at most. Half of it is chance."""

STEADY = 10.0
"""Seconds after which what was opened has lasted: the next pause is the shortest again."""


def pause(lost: int) -> float:
    """Seconds before the next attempt; longer each time, and never the same for all clients of a server (M-CACHE-2c)."""
    longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(lost, 16))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads load, guards nothing
