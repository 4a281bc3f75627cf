"""Questions that timed out: what a sealed state remembers of their timeouts, for an answer that comes when the call is gone.

The user may answer long after the question was withdrawn, and after the outcome of the call was evicted. A legacy client has
had the answer to its call by then: the text of the timeout. So a modern one gets the same text for as long as the server can open
the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import trio

from ...errors import RequestTimeout
from ...types import JsonObject, JsonValue
from .legs import OpenQuestion

MEMBER = "timeout"
"""The member of the sealed payload."""


def with_timeout(payload: JsonObject, questions: Iterable[OpenQuestion]) -> JsonObject:
    """Return the payload of a state, with the timeout of the question that times out first if one has a timeout."""
    timeouts = [asked.question.timeout for asked in questions if asked.question.timeout is not None]
    if not timeouts:
        return payload
    first, now = min(timeouts), trio.current_time()
    return {**payload, MEMBER: [first.deadline - now, first.text, now]}


def expired_timeout(payload: JsonValue, age: float, *, sealed_here: bool) -> RequestTimeout | None:
    """Return the error of the question that has timed out since its state was sealed, or None.

    Args:
        payload: what was sealed.
        age: seconds since then, by the clocks of the machines that sealed and opened it.
        sealed_here: whether this process sealed it; it then goes by Trio's clock, as the timeout itself does.
    """
    recorded = payload.get(MEMBER) if isinstance(payload, dict) else None
    if recorded is None:
        return None
    seconds, text, sealed_at = cast("tuple[float, str, float]", recorded)
    if sealed_here:
        age = trio.current_time() - sealed_at
    return RequestTimeout(text) if age >= seconds else None
