"""Timing out the methods of a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from ..checks import check_seconds
from ..errors import RequestTimeout

T = TypeVar("T")

SUBSCRIBE_TIMEOUT: Final = 30.0
"""Seconds that a server may take to acknowledge a stream of changes, or to restore all subscriptions of a session."""

UNSUBSCRIBE_TIMEOUT: Final = 2.0
"""Seconds that ending a subscription may take."""


async def run_with_timeout(timeout: float, what: str, fn: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `fn`.

    Raises:
        RequestTimeout: it took longer than `timeout` seconds, and was cancelled; `what` names it.
    """
    check_seconds("timeout", timeout)
    with trio.move_on_after(timeout):
        return await fn()
    raise timeout_error(timeout, what)


def timeout_error(timeout: float, what: str) -> RequestTimeout:
    return RequestTimeout(f"{what} did not finish within {timeout:g} seconds; it was cancelled at the server")
