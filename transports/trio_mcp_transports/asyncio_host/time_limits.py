"""Time limits of what a host does for a request: mostly it is done at once, and then the limit costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

SEND_SECONDS: Final = 10.0
"""How long a client may take to read the next `SEND_BYTES`; `ConnectionLimits.send_timeout` of our own connection."""
SEND_BYTES: Final = 1 << 16


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await something of the host, and return its result.

    Raises:
        TimeoutError: it took longer. It is cancelled then.
    """
    # Some hosts return an awaitable that is no coroutine.
    if isinstance(work, CoroutineType):
        try:
            wanted = work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        work = rest_of(work, wanted)
    async with asyncio.timeout(seconds):
        return await work


def seconds_to_send(size: int) -> float:
    """Return how long a client may take until there is room for more.

    Args:
        size: bytes that were sent last: the host waits in front of the next message until its client has read them.
    """
    return SEND_SECONDS * (1 + size // SEND_BYTES)


@coroutine
def rest_of(work: Coroutine[Any, Any, T], wanted: object) -> Generator[object, None, T]:
    """Await the rest of a coroutine whose first step was made on asyncio, and which waits for what that has yielded."""
    try:
        while True:
            try:
                yield wanted
            except BaseException as error:  # noqa: BLE001, ASYNC103  as `await` does
                wanted = work.throw(error)
            else:
                wanted = work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
