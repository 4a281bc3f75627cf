"""`Retry-After`: how long a server or an API asks to wait (RFC 9110, 10.2.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def seconds_to_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, as a number or as a date; None without one that can be read."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
